"""The delivery log: list and get deliveries, send a test, retry and recover."""

from typing import Any

import orjson

from booking_core import events, tokens
from booking_core.context import Caller
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.errors import Conflict, Malformed, NotFound, Unprocessable
from booking_core.events import NewEvent
from booking_core.models.events import EventType
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.webhooks import (
    DeliveryRecover,
    DeliveryStatus,
    DeliveryTrigger,
    EndpointStatus,
    RecoverableStatus,
)
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import DeliveryRow, EndpointRow

Delivery = dict[str, Any]

PING_MESSAGE = "This is a test."


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    endpoint_id: str,
    *,
    status: DeliveryStatus | None = None,
    event_type: EventType | None = None,
    event_id: str | None = None,
) -> Page:
    """Return a page of an endpoint's deliveries (decision W3).

    Raises:
        NotFound: the organization has no such endpoint.
    """
    zone = caller.organization.zone
    found = store.LIST.find(
        tx,
        caller,
        page,
        lambda row: rules.present_delivery(DeliveryRow._make(row), zone),
        endpoint_id=endpoint_id,
        queued={} if status is DeliveryStatus.QUEUED else None,
        ended=None if status is None or status is DeliveryStatus.QUEUED else status.value,
        event_type=None if event_type is None else event_type.value,
        event_id=event_id,
    )
    # The query finds nothing for a missing endpoint, so the endpoint is looked up only when the page is empty.
    if not found["data"] and store.get(tx, caller.organization.id, endpoint_id) is None:
        raise NotFound
    return found


def get(tx: Tx, caller: Caller, endpoint_id: str, delivery_id: str) -> Delivery:
    """Return one delivery, by its own id or by the id of any of its attempts.

    Raises:
        NotFound: the endpoint has no such delivery, or the organization no such endpoint.
    """
    row = store.get_delivery(tx, caller.organization.id, endpoint_id, delivery_id)
    if row is None:
        raise NotFound
    return rules.present_delivery(row, caller.organization.zone)


def send_test(tx: Tx, caller: Caller, endpoint_id: str) -> Delivery:
    """Queue a `ping` for one endpoint (decision W4).

    It is a delivery like any other while the endpoint is enabled. A disabled endpoint gets a single attempt, which does
    not change its health. The event is stored, so that the receiver can read it back.

    Raises:
        NotFound: the organization has no such endpoint.
    """
    organization, at = caller.organization, caller.at
    endpoint = _locked(tx, caller, endpoint_id)
    message = orjson.dumps({"message": PING_MESSAGE, "endpoint_id": endpoint_id})
    _, last = events.lock_sequences(tx, {organization.id: (0, 1)})[organization.id]
    event_id = events.append(tx, organization, NewEvent(EventType.PING, None, message), sequence=last + 1, at=at)
    row = DeliveryRow(
        created_at=at,
        id=tokens.new_id(),
        endpoint_id=endpoint_id,
        event_id=event_id,
        event_type=EventType.PING,
        status=DeliveryStatus.QUEUED,
        failure_reason=None,
        trigger=DeliveryTrigger.TEST,
        attempt_count=0,
        max_attempts=WEBHOOK_ATTEMPTS if endpoint.status == EndpointStatus.ENABLED else 1,
        next_attempt_at=at,
        last_attempt_at=None,
        completed_at=None,
        last_response_status=None,
        last_error=None,
        updated_at=at,
        attempts=None,
    )
    store.insert_delivery(tx, organization.id, row, event_sequence=last + 1)
    return rules.present_delivery(row, organization.zone)


def retry(tx: Tx, caller: Caller, endpoint_id: str, delivery_id: str) -> Delivery:
    """Queue a dead delivery for one more attempt (decision W5).

    Raises:
        NotFound: the endpoint has no such delivery, or the organization no such endpoint.
        Conflict: `delivery_not_dead`, `endpoint_not_enabled`.
    """
    organization = caller.organization
    endpoint = _locked(tx, caller, endpoint_id)
    row = store.lock_delivery(tx, organization.id, endpoint_id, delivery_id)
    if row is None:
        raise NotFound
    rules.check_enabled(endpoint)
    if row.status != DeliveryStatus.DEAD:
        raise Conflict("delivery_not_dead", "Only a dead delivery can be tried again.")
    row = row._replace(
        status=DeliveryStatus.QUEUED,
        max_attempts=row.max_attempts + 1,
        next_attempt_at=caller.at,
        completed_at=None,
        updated_at=max(caller.at, row.updated_at),
    )
    store.retry(tx, organization.id, row)
    return rules.present_delivery(row, organization.zone)


def recover(tx: Tx, caller: Caller, endpoint_id: str, request: DeliveryRecover) -> int:
    """Queue the failed deliveries of a period again, and return how many (decision W2).

    Each starts over with as many attempts and the same delays as a new delivery; its earlier attempts stay in its log.
    Tests are not queued again.

    Raises:
        Malformed: `since` or `until` is no timestamp.
        NotFound: the organization has no such endpoint.
        Conflict: `endpoint_not_enabled`.
        Unprocessable: the time ends before it begins.
    """
    since = _instant(caller, "since", request.since)
    until = None if request.until is None else _instant(caller, "until", request.until)
    rules.check_enabled(_locked(tx, caller, endpoint_id))
    if until is not None and until < since:
        raise Unprocessable.at("until", "The time ends before it begins.", "window_reversed")
    statuses = request.statuses or list(RecoverableStatus)
    return store.recover(
        tx,
        caller.organization.id,
        endpoint_id,
        since=since,
        until=until,
        statuses=sorted({status.value for status in statuses}),
        types=sorted({kind.value for kind in request.event_types or ()}),
        more_attempts=WEBHOOK_ATTEMPTS,
        at=caller.at,
    )


def _instant(caller: Caller, field: str, text: str) -> int:
    try:
        return caller.organization.zone.parse(text)
    except ValueError as error:
        raise Malformed.at(field, str(error)) from None


def _locked(tx: Tx, caller: Caller, endpoint_id: str) -> EndpointRow:
    row = store.lock(tx, caller.organization.id, endpoint_id)
    if row is None:
        raise NotFound
    return row
