"""The delivery log: list and get deliveries, send a test, retry, and redeliver an event."""

from typing import Any

import orjson

from booking_core.base import cursors
from booking_core.base.context import Actor, Caller
from booking_core.base.cursors import Binding
from booking_core.base.errors import Conflict, NotFound, Unprocessable
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, PageRequest, page_of
from booking_core.models.events import EventType
from booking_core.models.webhooks import DeliveryRedeliver, DeliveryStatus, DeliveryTrigger, EndpointStatus
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.webhooks import following, log, rules, store
from booking_core.webhooks.log import LogQuery
from booking_core.webhooks.rules import DeliveryRow, EndpointRow, Event

PresentedDelivery = dict[str, Any]

PING_MESSAGE = "This is a test."
NOT_DEAD = "Only a dead delivery is retried. To send the event of any other now, use redeliver with its event_id."


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    endpoint_id: str,
    *,
    status: DeliveryStatus | None = None,
    event_type: EventType | None = None,
    event_id: str | None = None,
    recovery_id: str | None = None,
) -> JsonPage:
    """Return a page of an endpoint's deliveries (decisions W3, W16).

    Raises:
        NotFound: the organization has no such endpoint.
    """
    organization_id = caller.organization.id
    filters = {"endpoint_id": endpoint_id, "status": status, "event_type": event_type, "event_id": event_id}
    filters |= {"recovery_id": recovery_id}
    applied = tuple((name, str(value)) for name, value in sorted(filters.items()) if value is not None)
    binding = Binding(organization_id, "deliveries", page.order, applied)
    after = None
    if page.starting_after is not None:
        after = cursors.decode_sequence(caller.secret_keys, binding, page.starting_after)
    rules.existing(store.get(tx, organization_id, endpoint_id))
    query = LogQuery(page.order, after, page.limit + 1, status, event_type, recovery_id)
    return page_of(
        log.find(tx, organization_id, endpoint_id, query)
        if event_id is None
        else _by_event(tx, organization_id, endpoint_id, event_id, query),
        page,
        lambda placed: rules.present_delivery(placed[1], caller.organization.zone),
        lambda placed: cursors.encode_sequence(caller.secret_keys, binding, placed[0]),
    )


def _by_event(tx: Tx, organization_id: str, endpoint_id: str, event_id: str, query: LogQuery) -> list[log.Placed]:
    """Return the delivery of an event, if it matches the query."""
    row = _get(tx, organization_id, endpoint_id, rules.delivery_id(event_id, endpoint_id), event_id=event_id)
    return [(0, row)] if row is not None and query.has(row) else []


def get(tx: Tx, caller: Caller, endpoint_id: str, delivery_id: str) -> PresentedDelivery:
    """Return one delivery, by its own id or by the id of any of its attempts.

    Raises:
        NotFound: the endpoint has no such delivery, or the organization no such endpoint.
    """
    rules.existing(store.get(tx, caller.organization.id, endpoint_id))
    row = _get(tx, caller.organization.id, endpoint_id, delivery_id)
    if row is None:
        raise NotFound
    return rules.present_delivery(row, caller.organization.zone)


def _get(
    tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str, *, event_id: str | None = None
) -> DeliveryRow | None:
    """Return one delivery. An event that became a row meanwhile is looked for once more among the rows."""
    return (
        store.get_delivery(tx, organization_id, endpoint_id, delivery_id)
        or log.get_event(tx, organization_id, endpoint_id, delivery_id, event_id=event_id)
        or store.get_delivery(tx, organization_id, endpoint_id, delivery_id)
    )


def count(tx: Tx, actor: Actor, *, since: int) -> list[dict[str, Any]]:
    """Return every endpoint with the numbers of its deliveries by state, of the events since an instant."""
    endpoints = store.find(tx, actor.organization.id)
    counts = log.count(tx, actor.organization.id, [endpoint.id for endpoint in endpoints], since)
    return [
        {"id": endpoint.id, "url": endpoint.url, "description": endpoint.description, "status": endpoint.status}
        | {"deliveries": counts[endpoint.id]}
        for endpoint in endpoints
    ]


def send_test(tx: Tx, caller: Caller, endpoint_id: str) -> PresentedDelivery:
    """Queue a `ping` for one endpoint (decision W4).

    It is a delivery like any other while the endpoint is enabled. A disabled endpoint gets a single attempt, which does
    not change its health. The event is stored: the receiver can read it in the feed.

    Raises:
        NotFound: the organization has no such endpoint.
    """
    organization, at = caller.organization, caller.at
    endpoint = rules.existing(store.lock(tx, organization.id, endpoint_id))
    message = orjson.dumps({"message": PING_MESSAGE, "endpoint_id": endpoint_id})
    _, last = events.lock_sequences(tx, {organization.id: (0, 1)})[organization.id]
    event_id = events.append(tx, organization, NewEvent(EventType.PING, None, message), sequence=last + 1, at=at)
    event = Event(event_id, EventType.PING, last + 1, at, None)
    row = rules.new_delivery(endpoint_id, event, DeliveryTrigger.TEST)
    if endpoint.status != EndpointStatus.ENABLED:
        row = row._replace(max_attempts=1)
    store.insert_delivery(tx, organization.id, row, event)
    return rules.present_delivery(row, organization.zone)


def retry(tx: Tx, caller: Caller, endpoint_id: str, delivery_id: str) -> PresentedDelivery:
    """Queue a dead delivery for one more attempt (decision W5).

    Raises:
        NotFound: the endpoint has no such delivery, or the organization no such endpoint.
        InsufficientScope: the key may not read the event's resource.
        Conflict: `delivery_not_dead`, `endpoint_not_enabled`.
    """
    organization = caller.organization
    endpoint = rules.existing(store.lock(tx, organization.id, endpoint_id))
    row = store.lock_delivery(tx, organization.id, endpoint_id, delivery_id)
    row = row or log.get_event(tx, organization.id, endpoint_id, delivery_id)
    if row is None:
        raise NotFound
    rules.check_entitled(caller, [row.event_type])
    rules.check_enabled(endpoint)
    if row.status != DeliveryStatus.DEAD:
        raise Conflict("delivery_not_dead", NOT_DEAD)
    row = row._replace(max_attempts=row.max_attempts + 1)
    row = store.queue_again(tx, organization.id, row, at=caller.at)
    return rules.present_delivery(row, organization.zone)


def redeliver(tx: Tx, caller: Caller, endpoint_id: str, request: DeliveryRedeliver) -> PresentedDelivery:
    """Queue the delivery of an event to an endpoint, also if it succeeded before or is of a type that the endpoint does
    not subscribe to, and return it. A delivery that waits for its next attempt is due at once. A delivery that is due
    or in flight is returned unchanged.

    It has as many attempts and the same delays as a new delivery; its earlier attempts stay in its log.

    Raises:
        NotFound: the organization has no such endpoint.
        InsufficientScope: the key may not read the event's resource.
        Conflict: `endpoint_not_enabled`.
        Unprocessable: `unknown_event`, also of a purged event; `event_about_endpoint` or `ping`.
    """
    organization = caller.organization
    endpoint = rules.existing(store.lock(tx, organization.id, endpoint_id))
    rules.check_enabled(endpoint)
    event = _redeliverable(tx, caller, endpoint, request.event_id)
    # From here on no worker makes a row of the event.
    following.lock_cursor(tx, organization.id, endpoint_id)
    return rules.present_delivery(_queue(tx, organization.id, endpoint_id, event, caller.at), organization.zone)


def _redeliverable(tx: Tx, caller: Caller, endpoint: EndpointRow, event_id: str) -> Event:
    """Return an event that may be sent to the endpoint once more."""
    event = log.find_event(tx, caller.organization.id, event_id)
    if event is None:
        raise Unprocessable.at("event_id", "There is no such event, or it is no longer kept.", "unknown_event")
    rules.check_entitled(caller, [event.type])
    if event.type == EventType.PING:
        raise Unprocessable.at("event_id", "A ping is not sent again: send another test.", "ping")
    if event.resource_id == endpoint.id:
        message = "An endpoint is not sent events about itself."
        raise Unprocessable.at("event_id", message, "event_about_endpoint")
    return event


def _queue(tx: Tx, organization_id: str, endpoint_id: str, event: Event, at: int) -> DeliveryRow:
    """Queue the row of the event again, or a new one. The workers make the row of an event that is not served yet."""
    delivery_id = rules.delivery_id(event.id, endpoint_id)
    row = store.lock_delivery(tx, organization_id, endpoint_id, delivery_id)
    if row is None:
        missing = log.get_event(tx, organization_id, endpoint_id, delivery_id, event_id=event.id)
        if missing is not None and missing.status == DeliveryStatus.QUEUED:
            return missing
        event = event if missing else event._replace(created_at=at)
        row = rules.new_delivery(endpoint_id, event, DeliveryTrigger.REDELIVER, at)
        store.insert_delivery(tx, organization_id, row, event)
        return row
    if row.status == DeliveryStatus.QUEUED and not rules.is_waiting(row, at):
        return row
    return store.queue_again(tx, organization_id, rules.started_over(row, DeliveryTrigger.REDELIVER), at=at)
