"""Webhook endpoints: create, list, change and delete them, and rotate their secrets.

Ids are canonical UUIDs in lower case; the API normalizes them. Changes of an endpoint's event types, its status or its
existence are made under the lock of the organization's counters, under which events are published too: an event comes
wholly before the change or wholly after it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Caller
from booking_core.base.errors import Unprocessable
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, envelope
from booking_core.db.tables import webhook_secrets
from booking_core.models.events import EventType
from booking_core.models.limits import SECRET_OVERLAP_S_DEFAULT
from booking_core.models.webhook_urls import split_url
from booking_core.models.webhooks import (
    DisabledReason,
    EndpointStatus,
    SecretRotate,
    WantedStatus,
    WebhookEndpointChange,
    WebhookEndpointCreate,
)
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.webhooks import following, log, rules, store
from booking_core.webhooks.rules import EndpointRow
from webhook_verify import generate_secret

Endpoint = dict[str, Any]
IsPublic = Callable[[str], bool]
"""Returns whether the host of a URL has only public addresses."""


def create(tx: Tx, caller: Caller, request: WebhookEndpointCreate, *, is_public: IsPublic) -> Endpoint:
    """Create an endpoint and return it with its secret, which is never shown again (decision W1).

    Raises:
        InsufficientScope: the key may not read something that is subscribed to.
        Conflict: `endpoint_limit_reached`.
        Unprocessable: `port_not_allowed` or `address_not_public`.
    """
    organization, at = caller.organization, caller.at
    check(caller, request)
    # Concurrent creations wait: the limit holds.
    _, last = events.lock_sequences(tx, {organization.id: (0, 0)})[organization.id]
    rules.check_limit(len(store.find(tx, organization.id)))
    _check_address(request.url, is_public)
    row = EndpointRow(
        id=tokens.new_id(),
        url=request.url,
        description=request.description or None,
        enabled_at=at,
        created_at=at,
        updated_at=at,
        event_types=",".join(request.event_types),
        max_per_second=request.max_per_second,
    )
    row = _with_headers(caller, row, request.headers or {})
    store.insert(tx, organization.id, row)
    following.begin(tx, organization.id, row.id, request.event_types, last)
    return _present(caller, row) | {"secret": _new_secret(tx, caller, row.id)}


def check(caller: Caller, request: WebhookEndpointCreate | WebhookEndpointChange) -> None:
    """Check the parts of a request that need neither the database nor DNS.

    Raises:
        InsufficientScope: the key may not read something that is subscribed to.
    """
    rules.check_entitled(caller, request.event_types or ())


def find_all(tx: Tx, caller: Caller) -> JsonPage:
    """Return every endpoint, on one page, the newest first."""
    return envelope([_present(caller, row) for row in store.find(tx, caller.organization.id)], None)


def get(tx: Tx, caller: Caller, endpoint_id: str) -> Endpoint:
    """Return one endpoint.

    Raises:
        NotFound: the organization has no such endpoint.
    """
    return _present(caller, rules.existing(store.get(tx, caller.organization.id, endpoint_id)))


def change(
    tx: Tx,
    caller: Caller,
    endpoint_id: str,
    request: WebhookEndpointChange,
    *,
    is_public: IsPublic,
) -> Endpoint:
    """Change fields of an endpoint and return it (decisions W2, W6).

    Disabling fails its queued deliveries, a thousand at once and the others by workers. Later events get no
    deliveries. A new list of types holds for later events. Enabling clears its failures, starts the 72 hours again
    and publishes `webhook.enabled` to the other endpoints. A new URL, new headers and enabling need the read scopes
    of all that the endpoint may send (decision W17): its event types, and the types of its log, which `retry` and
    `recover` send again.

    Raises:
        InsufficientScope: the key may not read something that would be sent.
        NotFound: the organization has no such endpoint.
        Unprocessable: `port_not_allowed` or `address_not_public`.
    """
    check(caller, request)
    before = _locked(tx, caller, endpoint_id)
    row = _changed(caller, before, request)
    if request.status == WantedStatus.ENABLED or rules.receiver(row) != rules.receiver(before):
        rules.check_entitled(caller, {*rules.event_types(row), *log.types(tx, caller.organization.id, row.id)})
    if row.url != before.url:
        _check_address(row.url, is_public)
    if row == before:
        return _present(caller, before)
    row = row._replace(updated_at=_after(caller, before))
    _save(tx, caller, before, row)
    return _present(caller, row)


def _changed(caller: Caller, before: EndpointRow, request: WebhookEndpointChange) -> EndpointRow:
    """Return the row with the fields of the request."""
    row, at = before, caller.at
    if request.url is not None:
        row = row._replace(url=request.url)
    if "description" in request.model_fields_set:
        row = row._replace(description=request.description or None)
    if request.event_types is not None and sorted(request.event_types) != rules.event_types(before):
        row = row._replace(event_types=",".join(request.event_types))
    if request.headers is not None:
        row = _with_headers(caller, row, request.headers)
    if "max_per_second" in request.model_fields_set:
        row = row._replace(max_per_second=request.max_per_second)
    if request.status == WantedStatus.ENABLED and before.status != EndpointStatus.ENABLED:
        row = row._replace(
            status=EndpointStatus.ENABLED,
            enabled_at=at,
            disabled_at=None,
            disabled_reason=None,
            consecutive_failures=0,
            last_timed_out=False,
            warned_hours=0,
        )
    if request.status == WantedStatus.DISABLED and before.status != EndpointStatus.DISABLED:
        row = row._replace(**_switched_off(at))
    return row


def _save(tx: Tx, caller: Caller, before: EndpointRow, row: EndpointRow) -> None:
    """Write the changed endpoint, and its place in the log."""
    organization_id, at = caller.organization.id, caller.at
    was_on, is_on = (endpoint.status == EndpointStatus.ENABLED for endpoint in (before, row))
    former, types = set(rules.event_types(before)), set(rules.event_types(row))
    if was_on != is_on or types != former:
        last = following.lock(tx, organization_id, row.id)
        if was_on and not is_on:
            following.disable(tx, organization_id, row.id, at)
        following.unsubscribe(tx, organization_id, row.id, former - types, last)
        missed_at = None if was_on and is_on else at
        following.subscribe(tx, organization_id, row.id, types - former, last, missed_at)
        if is_on and not was_on:
            following.enable(tx, organization_id, row.id, types, last)
    store.save(tx, organization_id, row)
    if is_on and not was_on:
        _publish(tx, caller, EventType.WEBHOOK_ENABLED, row)


def delete(tx: Tx, caller: Caller, endpoint_id: str) -> None:
    """Delete an endpoint. Its row is kept for its deliveries; its secrets are not.

    Raises:
        NotFound: the organization has no such endpoint.
    """
    row = _locked(tx, caller, endpoint_id)
    following.lock(tx, caller.organization.id, row.id)
    following.forget(tx, caller.organization.id, row.id, caller.at)
    at = _after(caller, row)
    row = row._replace(deleted_at=at, header_names=None, headers_sealed=None, updated_at=at)
    store.save(tx, caller.organization.id, row._replace(**_switched_off(at)))


def rotate_secret(tx: Tx, caller: Caller, endpoint_id: str, request: SecretRotate) -> Endpoint:
    """Give the endpoint a new secret, and return both.

    The former secret signs beside it until the overlap ends; at most two former secrets sign at a time, each until the
    end that it was given (decision W16). Without an overlap, for a secret that leaked, all of them end at once.
    `webhook.secret_rotated` is published to the other endpoints.

    Raises:
        NotFound: the organization has no such endpoint.
        Conflict: `too_many_secrets`.
    """
    organization, at = caller.organization, caller.at
    row = _locked(tx, caller, endpoint_id)
    overlap_s = SECRET_OVERLAP_S_DEFAULT if request.overlap_seconds is None else request.overlap_seconds
    ends_at = at + overlap_s * SECOND
    live = rules.live_ends(row, at) if overlap_s else []
    rules.check_rotation(live, organization.zone)
    forgotten_until = at if overlap_s else log.END
    store.expire_secret(tx, organization.id, endpoint_id, ends_at=ends_at, forgotten_until=forgotten_until)
    ends = ",".join(map(str, [*live, ends_at])) if overlap_s else None
    row = row._replace(secrets_expire_at=ends, updated_at=_after(caller, row))
    store.save(tx, organization.id, row)
    secret = _new_secret(tx, caller, endpoint_id)
    _publish(tx, caller, EventType.WEBHOOK_SECRET_ROTATED, row)
    return _present(caller, row) | {"secret": secret}


# Helpers ---------------------------------------------------------------------------------------------------------


def _present(caller: Caller, row: EndpointRow) -> Endpoint:
    return rules.present(row, caller.organization.zone, caller.at)


def _with_headers(caller: Caller, row: EndpointRow, headers: Mapping[str, str]) -> EndpointRow:
    """Return the endpoint with these headers, sealed for its row, instead of others."""
    if not headers:
        return row._replace(header_names=None, headers_sealed=None)
    owner, plain = (caller.organization.id, row.id), orjson.dumps(dict(headers))
    sealed = caller.secret_keys.seal(rules.HEADERS_PURPOSE, plain, *owner)
    return row._replace(header_names=orjson.dumps(sorted(headers)).decode(), headers_sealed=sealed)


def _locked(tx: Tx, caller: Caller, endpoint_id: str) -> EndpointRow:
    return rules.existing(store.lock(tx, caller.organization.id, endpoint_id))


def _switched_off(at: int) -> dict[str, Any]:
    """Return the columns of an endpoint that a client disables or deletes."""
    return {"status": EndpointStatus.DISABLED, "disabled_at": at, "disabled_reason": DisabledReason.MANUAL}


def _after(caller: Caller, row: EndpointRow) -> int:
    """Return the new updated_at, which never goes back, also when the clock does."""
    return max(caller.at, row.updated_at)


def _check_address(url: str, is_public: IsPublic) -> None:
    rules.check_port(split_url(url, allow_http=True))  # the request has checked its scheme
    if not is_public(url):
        # The same message for every address: it reveals nothing about a network.
        message = "Webhooks go to public addresses."
        raise Unprocessable.at("url", message, "address_not_public")


def _new_secret(tx: Tx, caller: Caller, endpoint_id: str) -> str:
    secret = generate_secret()
    organization_id, secret_id = caller.organization.id, tokens.new_id()
    key = {"organization_id": organization_id, "endpoint_id": endpoint_id, "id": secret_id}
    sealed = caller.secret_keys.seal(rules.SECRET_PURPOSE, secret.encode(), *key.values())
    tx.insert(webhook_secrets, **key, secret_sealed=sealed, expires_at=None, created_at=caller.at)
    return secret


def _publish(tx: Tx, caller: Caller, kind: EventType, row: EndpointRow) -> None:
    presented = orjson.dumps(rules.present(row, caller.organization.zone, caller.at))
    events.publish(tx, caller.organization, [NewEvent(kind, row.id, presented)], at=caller.at)
