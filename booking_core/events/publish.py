"""Publishing events: numbered, rendered once, and written in the transaction of the change that they report.

A transaction writes one row of the feed, and the database derives one delivery for each endpoint that subscribes to
the type. A crash loses all of it or none of it. The package `webhooks` sends the deliveries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from sqlalchemy import (
    ColumnElement,
    Text,
    any_,
    case,
    cast,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.dml import Insert, Update

from booking_core import tokens
from booking_core.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.unit_of_work import InsertFromSelect
from booking_core.models.events import EventType
from booking_core.models.limits import API_VERSION, WEBHOOK_ATTEMPTS
from booking_core.models.webhooks import DeliveryStatus, DeliveryTrigger, EndpointStatus, FailureReason

_ONCE = frozenset(
    {
        EventType.BOOKING_CREATED,
        EventType.BOOKING_CONFIRMED,
        EventType.BOOKING_CANCELLED,
        EventType.CUSTOMER_CREATED,
        EventType.GIFT_CARD_ISSUED,
    }
)
"""The types that a resource has at most once. Their occurrence is 0, so that a unique index refuses another."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be published."""

    type: EventType
    resource_id: str | None
    object: bytes
    """The resource as JSON, exactly as REST shows it, less its secrets (manage_url null, no code)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside `object` in `data`."""


# Numbering -------------------------------------------------------------------------------------------------------

_WANTED = {key: column.type for key, column in tables.counters.c.items()}
"""The columns of the rows parameter, named as the columns that they are added to."""


def _lock(dialect: Dialect, *, blocking: bool) -> Update:
    counters = tables.counters.c
    wanted = rows_parameter(dialect, "wanted", _WANTED).c
    change = update(tables.counters).where(counters.organization_id == wanted.organization_id)
    if dialect.name == "postgresql":
        # Rows are locked in the order of their ids before any is changed, so that two batches with several
        # organizations in common wait for each other and never deadlock.
        in_order = (
            select(counters.organization_id)
            .where(in_rows(dialect, counters.organization_id, "wanted", "organization_id"))
            .order_by(counters.organization_id)
            .with_for_update(key_share=True, skip_locked=not blocking)
            .correlate(None)
        )
        change = change.where(counters.organization_id == any_(func.array(in_order.scalar_subquery())))
    return change.values(
        last_booking_number=counters.last_booking_number + wanted.last_booking_number,
        last_event_sequence=counters.last_event_sequence + wanted.last_event_sequence,
    ).returning(counters.organization_id, counters.last_booking_number, counters.last_event_sequence)


_LOCK_SEQUENCES = Statement(partial(_lock, blocking=True))
_TRY_SEQUENCES = Statement(partial(_lock, blocking=False))


def lock_sequences(tx: Tx, wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Reserve booking numbers and event sequences, so many of each by organization.

    This is the last lock of a transaction, held until it ends: numbers are dense, and their order is the order of
    commits. A statement after it sees everything that an earlier holder of the lock committed. It is one statement for
    any number of organizations, and sends no collected rows: they go with the COMMIT.

    Returns:
        The last booking number and the last event sequence before the reserved ones, by organization.
    """
    return _reserve(tx, _LOCK_SEQUENCES, wanted)


def try_lock_sequences(tx: Tx, wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Reserve numbers as `lock_sequences`, and skip organizations that another transaction has locked."""
    return _reserve(tx, _TRY_SEQUENCES, wanted)


def _reserve(tx: Tx, statement: Statement, wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    parameter = as_json(
        {"organization_id": organization_id, "last_booking_number": booking_numbers, "last_event_sequence": events}
        for organization_id, (booking_numbers, events) in sorted(wanted.items())
    )
    with tx.no_autoflush():
        found = tx.all(statement, wanted=parameter)
    before = {}
    for organization_id, booking_number, sequence in found:
        booking_numbers, events = wanted[organization_id]
        before[organization_id] = (booking_number - booking_numbers, sequence - events)
    return before


# Publishing ------------------------------------------------------------------------------------------------------


def append(tx: Tx, organization: Organization, event: NewEvent, *, sequence: int, at: int) -> str:
    """Write an event with its deliveries.

    The envelope (API v1 section 6) is rendered here, once: the feed and every attempt of every delivery send these
    bytes.

    Returns:
        The event's id.
    """
    event_id = tokens.new_id()
    envelope = {
        "id": event_id,
        "type": event.type,
        "created_at": organization.zone.iso(at),
        "api_version": API_VERSION,
        "sequence": sequence,
        "data": {"object": orjson.Fragment(event.object), **event.extra},
    }
    tx.insert(
        tables.events,
        organization_id=organization.id,
        sequence=sequence,
        id=event_id,
        type=event.type.value,
        resource_type=event.type.resource_type.value,
        resource_id=event.resource_id,
        occurrence=0 if event.type in _ONCE else sequence,
        body=orjson.dumps(envelope).decode(),
        created_at=at,
    )
    tx.insert_from_select(
        DELIVERIES,
        organization_id=organization.id,
        event_id=event_id,
        event_type=event.type.value,
        event_sequence=sequence,
        resource_id=event.resource_id,
        created_at=at,
    )
    return event_id


def publish(tx: Tx, organization: Organization, new_events: Sequence[NewEvent], *, at: int) -> list[str]:
    """Number and write the events of one organization, in order.

    Returns:
        The events' ids.
    """
    _, last = lock_sequences(tx, {organization.id: (0, len(new_events))})[organization.id]
    return [
        append(tx, organization, event, sequence=sequence, at=at)
        for sequence, event in enumerate(new_events, start=last + 1)
    ]


# Deliveries ------------------------------------------------------------------------------------------------------

_EVENT = {
    key: tables.deliveries.c[key].type
    for key in ("organization_id", "event_id", "event_type", "event_sequence", "resource_id", "created_at")
}


def _delivery_id(dialect: Dialect, event_id: ColumnElement[str], endpoint_id: ColumnElement[str]) -> ColumnElement[str]:
    """Return the id of a new delivery: a UUID of version 8 with the event's instant and a hash of event and endpoint.

    Ids that begin with the instant lie together in an index, and a random id would cost PostgreSQL four times as much.
    On SQLite, which has no hash function, the rest is random.
    """
    if dialect.name == "postgresql":
        event_bytes, endpoint_bytes = func.uuid_send(event_id), func.uuid_send(endpoint_id)
        instant = func.encode(func.substr(event_bytes, 1, 6), "hex")
        hashed = func.md5(event_bytes.op("||")(endpoint_bytes))
        return cast(func.overlay(func.overlay(hashed, instant.op("||")("8"), 1), "a", 17), tables.Id)
    random = "lower('8' || substr(hex(randomblob(2)), 2) || '-a' || substr(hex(randomblob(2)), 2) || '-' ||"
    return func.substr(event_id, 1, 14).concat(literal_column(f"{random} hex(randomblob(6)))", Text))


def _deliveries(dialect: Dialect, name: str) -> Insert:
    """Return the statement that inserts a delivery for each event and each endpoint that subscribes to its type.

    A disabled endpoint gets a failed delivery, which `recover` can find (decision W6). An endpoint gets no events about
    itself (decision W8).
    """
    event = rows_parameter(dialect, name, _EVENT).c
    endpoint, subscription = tables.webhook_endpoints.c, tables.webhook_subscriptions.c
    enabled = endpoint.status == EndpointStatus.ENABLED.value
    values = {
        "organization_id": event.organization_id,
        "id": _delivery_id(dialect, event.event_id, endpoint.id),
        "endpoint_id": endpoint.id,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_sequence": event.event_sequence,
        "resource_id": event.resource_id,
        "status": case((enabled, DeliveryStatus.QUEUED.value), else_=DeliveryStatus.FAILED.value),
        "failure_reason": case((enabled, None), else_=FailureReason.ENDPOINT_DISABLED.value),
        "trigger": literal(DeliveryTrigger.EVENT.value),
        "max_attempts": literal(WEBHOOK_ATTEMPTS),
        "next_attempt_at": case((enabled, event.created_at)),
        "completed_at": case((enabled, None), else_=event.created_at),
        "created_at": event.created_at,
        "updated_at": event.created_at,
    }
    selected = select(*values.values()).where(
        subscription.organization_id == event.organization_id,
        subscription.event_type == event.event_type,
        endpoint.organization_id == event.organization_id,
        endpoint.id == subscription.endpoint_id,
        endpoint.id.is_distinct_from(event.resource_id),
        endpoint.deleted_at.is_(None),
    )
    return insert(tables.deliveries).from_select(list(values), selected)


DELIVERIES = InsertFromSelect("deliveries_of_events", _deliveries)
