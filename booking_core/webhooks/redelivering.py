"""Redelivery: any event that is kept is sent to an endpoint once more, whatever became of it there."""

from typing import Any, NamedTuple

from sqlalchemy import bindparam, select

from booking_core.base.context import Caller
from booking_core.base.errors import NotFound, Unprocessable
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, deliveries, events
from booking_core.db.unit_of_work import Update
from booking_core.models.events import EventType
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.webhooks import DeliveryRedeliver, DeliveryStatus, DeliveryTrigger
from booking_core.webhooks import following, log, recovering, rules, store
from booking_core.webhooks.rules import DeliveryRow, EndpointRow


class _Event(NamedTuple):
    id: str
    type: str
    sequence: int
    resource_id: str | None


_EVENT = Statement(
    select(*(events.c[name] for name in _Event._fields)).where(
        events.c.organization_id == bindparam("organization_id", type_=Id), events.c.id == bindparam("id", type_=Id)
    )
)
_REQUEUE = Update(
    "redeliver",
    deliveries,
    sets=(
        *("status", "failure_reason", "trigger", "max_attempts", "next_attempt_at", "completed_at", "updated_at"),
        *("lease_token", "lease_until", "lost_leases", "generation"),
    ),
)


def redeliver(tx: Tx, caller: Caller, endpoint_id: str, request: DeliveryRedeliver) -> dict[str, Any]:
    """Queue the delivery of an event to an endpoint, also if it succeeded before or is of a type that the endpoint does
    not subscribe to, and return it. One that is queued already is returned unchanged.

    It has as many attempts and the same delays as a new delivery; its earlier attempts stay in its log.

    Raises:
        NotFound: the organization has no such endpoint.
        InsufficientScope: the key may not read the event's resource.
        Conflict: `endpoint_not_enabled`.
        Unprocessable: `unknown_event`, also of one that is no longer kept; `event_about_endpoint` or `ping`.
    """
    organization = caller.organization
    endpoint = store.lock(tx, organization.id, endpoint_id)
    if endpoint is None:
        raise NotFound
    rules.check_enabled(endpoint)
    event = _find(tx, caller, endpoint, request.event_id)
    # From here on no worker makes a delivery of the event.
    following.lock_cursors(tx, [(organization.id, endpoint_id)])
    return rules.present_delivery(_queue(tx, organization.id, endpoint, event, caller.at), organization.zone)


def _find(tx: Tx, caller: Caller, endpoint: EndpointRow, event_id: str) -> _Event:
    row = tx.first(_EVENT, organization_id=caller.organization.id, id=event_id)
    if row is None:
        raise Unprocessable.at("event_id", "There is no such event, or it is no longer kept.", "unknown_event")
    event = _Event._make(row)
    rules.check_entitled(caller, [event.type])
    if event.type == EventType.PING:
        raise Unprocessable.at("event_id", "A ping is not sent again: send another test.", "ping")
    if event.resource_id == endpoint.id:
        message = "An endpoint is not sent events about itself."
        raise Unprocessable.at("event_id", message, "event_about_endpoint")
    return event


def _queue(tx: Tx, organization_id: str, endpoint: EndpointRow, event: _Event, at: int) -> DeliveryRow:
    """Queue the event: its row again, its part of a range of missed events, or a row of its own."""
    found = log.by_event(tx, organization_id, endpoint, event.id)
    if not found:
        return _insert(tx, organization_id, endpoint, event, at)
    row = found[0][1]
    if row.status == DeliveryStatus.QUEUED:
        return row
    locked = store.lock_delivery(tx, organization_id, endpoint, row.id)
    if locked is not None:
        return _requeue(tx, organization_id, endpoint, locked, at)
    recovering.recover_event(tx, organization_id, endpoint.id, event.type, event.sequence, at)
    return log.by_event(tx, organization_id, endpoint, event.id)[0][1]


def _insert(tx: Tx, organization_id: str, endpoint: EndpointRow, event: _Event, at: int) -> DeliveryRow:
    row = rules.new_delivery(
        rules.delivery_id(event.id, endpoint.id),
        endpoint.id,
        event.id,
        event.type,
        created_at=at,
        trigger=DeliveryTrigger.REDELIVER,
        due_at=at,
    )
    store.insert_delivery(
        tx,
        organization_id,
        row,
        event_sequence=event.sequence,
        resource_id=event.resource_id,
        generation=endpoint.generation,
    )
    return row


def _requeue(tx: Tx, organization_id: str, endpoint: EndpointRow, row: DeliveryRow, at: int) -> DeliveryRow:
    row = row._replace(
        status=DeliveryStatus.QUEUED,
        failure_reason=None,
        trigger=DeliveryTrigger.REDELIVER,
        max_attempts=row.attempt_count + WEBHOOK_ATTEMPTS,
        next_attempt_at=at,
        completed_at=None,
        updated_at=max(at, row.updated_at),
    )
    fresh = {"lease_token": None, "lease_until": None, "lost_leases": 0, "generation": endpoint.generation}
    changed = {name: getattr(row, name) for name in _REQUEUE.sets if name not in fresh}
    tx.update(_REQUEUE, organization_id=organization_id, id=row.id, **changed, **fresh)
    return row
