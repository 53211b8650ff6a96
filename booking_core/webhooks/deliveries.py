"""The delivery log: list and get deliveries, send a test, retry, and redeliver an event."""

from typing import Any, NamedTuple

import orjson

from booking_core.base import cursors
from booking_core.base.context import Actor, Caller
from booking_core.base.cursors import Binding
from booking_core.base.errors import Conflict, NotFound, Unprocessable
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, PageRequest, envelope
from booking_core.models.events import EventType
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.pages import Order
from booking_core.models.webhooks import DeliveryRedeliver, DeliveryStatus, DeliveryTrigger, EndpointStatus
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.webhooks import following, log, rules, store
from booking_core.webhooks.rules import DeliveryRow, EndpointRow

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
    query = _Query(page.order, after, page.limit + 1, status, event_type, recovery_id)
    placed = (
        _merge(tx, organization_id, endpoint_id, query)
        if event_id is None
        else _by_event(tx, organization_id, endpoint_id, event_id, query)
    )
    rows, has_more = placed[: page.limit], len(placed) > page.limit
    zone = caller.organization.zone
    return envelope(
        [rules.present_delivery(row, zone) for _, row in rows],
        cursors.encode_sequence(caller.secret_keys, binding, rows[-1][0]) if has_more else None,
    )


class _Query(NamedTuple):
    order: Order
    after: int | None
    limit: int
    status: DeliveryStatus | None
    event_type: EventType | None
    recovery_id: str | None

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the sequence before the page, and its last one."""
        if self.order is Order.ASC:
            return (0 if self.after is None else self.after), log.END
        return 0, (log.END if self.after is None else self.after - 1)

    @property
    def types(self) -> list[str]:
        return [kind.value for kind in EventType] if self.event_type is None else [self.event_type.value]

    def has(self, row: DeliveryRow) -> bool:
        pairs = (self.status, row.status), (self.event_type, row.event_type), (self.recovery_id, row.recovery_id)
        return all(requested in (None, value) for requested, value in pairs)


def _merge(tx: Tx, organization_id: str, endpoint_id: str, query: _Query) -> list[log.Placed]:
    """Return the first deliveries that match the query, of the rows and of the events without a row.

    The events are read first: an event that becomes a row meanwhile is read twice, and none is missed.
    """
    stretches = [
        stretch.within(*query.bounds)
        for stretch in log.stretches(tx, organization_id, endpoint_id)
        if stretch.event_type in query.types and query.status in (None, stretch.status) and not query.recovery_id
    ]
    missing = log.find_events(tx, organization_id, endpoint_id, stretches, query.order, query.limit)
    placed = {event.sequence: stretch.delivery(event, endpoint_id) for stretch, event in missing}
    placed |= log.find_rows(
        tx,
        organization_id,
        endpoint_id,
        query.types,
        query.bounds,
        query.order,
        query.limit,
        status=query.status,
        recovery_id=query.recovery_id,
    )
    return sorted(placed.items(), reverse=query.order is Order.DESC)[: query.limit]


def _by_event(tx: Tx, organization_id: str, endpoint_id: str, event_id: str, query: _Query) -> list[log.Placed]:
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
    row = rules.new_delivery(
        endpoint_id,
        event_id,
        EventType.PING,
        created_at=at,
        trigger=DeliveryTrigger.TEST,
        due_at=at,
        max_attempts=WEBHOOK_ATTEMPTS if endpoint.status == EndpointStatus.ENABLED else 1,
    )
    store.insert_delivery(tx, organization.id, row, last + 1, None)
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
    following.lock_cursors(tx, [(organization.id, endpoint_id)])
    return rules.present_delivery(_queue(tx, organization.id, endpoint_id, event, caller.at), organization.zone)


def _redeliverable(tx: Tx, caller: Caller, endpoint: EndpointRow, event_id: str) -> log.Event:
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


def _queue(tx: Tx, organization_id: str, endpoint_id: str, event: log.Event, at: int) -> DeliveryRow:
    """Queue the row of the event again, or a new one. The workers make the row of an event that is not served yet."""
    delivery_id = rules.delivery_id(event.id, endpoint_id)
    row = store.lock_delivery(tx, organization_id, endpoint_id, delivery_id)
    if row is None:
        missing = log.get_event(tx, organization_id, endpoint_id, delivery_id, event_id=event.id)
        if missing is not None and missing.status == DeliveryStatus.QUEUED:
            return missing
        created_at = at if missing is None else missing.created_at
        row = rules.new_delivery(
            endpoint_id, event.id, event.type, created_at=created_at, trigger=DeliveryTrigger.REDELIVER, due_at=at
        )._replace(updated_at=at)
        store.insert_delivery(tx, organization_id, row, event.sequence, event.resource_id)
        return row
    if row.status == DeliveryStatus.QUEUED and not rules.is_waiting(row, at):
        return row
    row = row._replace(
        failure_reason=None, trigger=DeliveryTrigger.REDELIVER, max_attempts=row.attempt_count + WEBHOOK_ATTEMPTS
    )
    return store.queue_again(tx, organization_id, row, at=at)
