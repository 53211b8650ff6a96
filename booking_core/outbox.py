"""Events on their way into the feed: numbered, rendered once, written in the transaction that they tell of.

Whoever changes something tells of it in the same `Writes`: one row of the feed, and one delivery for each endpoint
that subscribes to the type, which the database derives. A process that dies loses all of it or none of it. Reading
the feed belongs to the room `events`, sending to the room `webhooks`.
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
"""What a resource sees once in its life. Their occurrence is 0, so that a unique index refuses a second one."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event about to be written."""

    type: EventType
    resource_id: str | None
    object: bytes
    """The resource as JSON, exactly as REST shows it, less its secrets (manage_url null, no code)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside `object` in `data`."""


# Numbering -------------------------------------------------------------------------------------------------------

_WANTED = {key: column.type for key, column in tables.counters.c.items()}
"""Named as the columns that they are added to."""


def _locking(dialect: Dialect, *, waits: bool) -> Update:
    counters = tables.counters.c
    wanted = rows_parameter(dialect, "wanted", _WANTED).c
    change = update(tables.counters).where(counters.organization_id == wanted.organization_id)
    if dialect.name == "postgresql":
        # Locked in the order of their ids before any is changed, so that two batches that meet in several organizations
        # wait for each other and never deadlock.
        in_order = (
            select(counters.organization_id)
            .where(in_rows(dialect, counters.organization_id, "wanted", "organization_id"))
            .order_by(counters.organization_id)
            .with_for_update(key_share=True, skip_locked=not waits)
            .correlate(None)
        )
        change = change.where(counters.organization_id == any_(func.array(in_order.scalar_subquery())))
    return change.values(
        last_booking_number=counters.last_booking_number + wanted.last_booking_number,
        last_event_sequence=counters.last_event_sequence + wanted.last_event_sequence,
    ).returning(counters.organization_id, counters.last_booking_number, counters.last_event_sequence)


_LOCK_SEQUENCES = Statement(partial(_locking, waits=True))
_TRY_SEQUENCES = Statement(partial(_locking, waits=False))


def lock_sequences(tx: Tx, wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Reserves numbers: how many booking numbers and how many events, by organization.

    The last lock of a transaction, held until it ends: what is numbered is dense, and its order is the order of
    commits. What is written after it sees everything that an earlier holder of the lock committed. One statement for
    any number of organizations. It sends no collected rows: those that the transaction writes go with the COMMIT.

    Returns:
        The last booking number and the last event sequence before the reserved ones, by organization.
    """
    return _reserve(tx, _LOCK_SEQUENCES, wanted)


def try_sequences(tx: Tx, wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The same without waiting: organizations whose numbers another transaction has are left out."""
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


# Telling ---------------------------------------------------------------------------------------------------------


def tell(tx: Tx, organization: Organization, told: Told, *, sequence: int, at: int) -> str:
    """Adds the event and its deliveries to what is about to be written.

    The envelope (API v1 section 6) is rendered here, once: the feed and every attempt of every delivery send these
    bytes.

    Returns:
        The event's id.
    """
    event_id = tokens.new_id()
    envelope = {
        "id": event_id,
        "type": told.type,
        "created_at": organization.zone.iso(at),
        "api_version": API_VERSION,
        "sequence": sequence,
        "data": {"object": orjson.Fragment(told.object), **told.extra},
    }
    tx.insert(
        tables.events,
        organization_id=organization.id,
        sequence=sequence,
        id=event_id,
        type=told.type.value,
        resource_type=told.type.resource_type.value,
        resource_id=told.resource_id,
        occurrence=0 if told.type in _ONCE else sequence,
        body=orjson.dumps(envelope).decode(),
        created_at=at,
    )
    tx.insert_from_select(
        DELIVERIES,
        organization_id=organization.id,
        event_id=event_id,
        event_type=told.type.value,
        event_sequence=sequence,
        resource_id=told.resource_id,
        created_at=at,
    )
    return event_id


def publish(tx: Tx, organization: Organization, tolds: Sequence[Told], *, at: int) -> list[str]:
    """Numbers and tells the events of one organization, in order; the caller writes `pending` right after.

    Returns:
        The events' ids.
    """
    _, last = lock_sequences(tx, {organization.id: (0, len(tolds))})[organization.id]
    return [
        tell(tx, organization, told, sequence=sequence, at=at) for sequence, told in enumerate(tolds, start=last + 1)
    ]


# Deliveries ------------------------------------------------------------------------------------------------------

_TOLD = {
    key: tables.deliveries.c[key].type
    for key in ("organization_id", "event_id", "event_type", "event_sequence", "resource_id", "created_at")
}


def _delivery_id(dialect: Dialect, event_id: ColumnElement[str], endpoint_id: ColumnElement[str]) -> ColumnElement[str]:
    """The id of a new delivery, made by the database: a UUID of version 8, the event's instant and then a hash of event
    and endpoint. What begins with the instant lies together in an index; and PostgreSQL would ask the operating system
    for a random one, at four times the cost. On SQLite, which has no hash, the rest is random."""
    if dialect.name == "postgresql":
        event, endpoint = func.uuid_send(event_id), func.uuid_send(endpoint_id)
        instant = func.encode(func.substr(event, 1, 6), "hex")
        hashed = func.md5(event.op("||")(endpoint))
        return cast(func.overlay(func.overlay(hashed, instant.op("||")("8"), 1), "a", 17), tables.Id)
    random = "lower('8' || substr(hex(randomblob(2)), 2) || '-a' || substr(hex(randomblob(2)), 2) || '-' ||"
    return func.substr(event_id, 1, 14).concat(literal_column(f"{random} hex(randomblob(6)))", Text))


def _deliveries(dialect: Dialect, name: str) -> Insert:
    """One delivery for each told event and each endpoint that subscribes to its type.

    An endpoint that does not take events now gets a failed one, which `recover` can find (decision W6). An endpoint is
    never told about itself (decision W8).
    """
    told = rows_parameter(dialect, name, _TOLD).c
    endpoint, subscription = tables.webhook_endpoints.c, tables.webhook_subscriptions.c
    enabled = endpoint.status == EndpointStatus.ENABLED.value
    values = {
        "organization_id": told.organization_id,
        "id": _delivery_id(dialect, told.event_id, endpoint.id),
        "endpoint_id": endpoint.id,
        "event_id": told.event_id,
        "event_type": told.event_type,
        "event_sequence": told.event_sequence,
        "resource_id": told.resource_id,
        "status": case((enabled, DeliveryStatus.QUEUED.value), else_=DeliveryStatus.FAILED.value),
        "failure_reason": case((enabled, None), else_=FailureReason.ENDPOINT_DISABLED.value),
        "trigger": literal(DeliveryTrigger.EVENT.value),
        "max_attempts": literal(WEBHOOK_ATTEMPTS),
        "next_attempt_at": case((enabled, told.created_at)),
        "completed_at": case((enabled, None), else_=told.created_at),
        "created_at": told.created_at,
        "updated_at": told.created_at,
    }
    derived = select(*values.values()).where(
        subscription.organization_id == told.organization_id,
        subscription.event_type == told.event_type,
        endpoint.organization_id == told.organization_id,
        endpoint.id == subscription.endpoint_id,
        endpoint.id.is_distinct_from(told.resource_id),
        endpoint.deleted_at.is_(None),
    )
    return insert(tables.deliveries).from_select(list(values), derived)


DELIVERIES = InsertFromSelect("deliveries_of_events", _deliveries)
