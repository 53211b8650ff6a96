"""Publishing events: numbered, rendered once, and written in the transaction of the change that they report.

A transaction writes one row of the feed and nothing for webhooks: the package `webhooks` follows the feed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from sqlalchemy import any_, bindparam, func, select, update
from sqlalchemy.sql.dml import Update

from booking_core.base import tokens
from booking_core.base.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import Statement, as_json, columns_of, in_rows, on_postgresql, rows_parameter
from booking_core.models.events import EventType
from booking_core.models.limits import API_VERSION

ONCE = frozenset(
    {
        EventType.BOOKING_CREATED,
        EventType.BOOKING_CONFIRMED,
        EventType.BOOKING_CANCELLED,
        EventType.CUSTOMER_CREATED,
        EventType.GIFT_CARD_ISSUED,
    }
)
"""The types that a resource has at most once. Their occurrence is 0: a unique index refuses a second one."""

_NO_CHANGES = frozenset({"updated_at", "manage_url"})
"""Fields that are never in `changes`: every change has the first, and no event holds the second."""


def former_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a resource that differ, each with its whole value before the change.

    A field that the resource did not have before has null.
    """
    names = (name for name in after if name not in _NO_CHANGES)
    return {name: before.get(name) for name in names if before.get(name) != after[name]}


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be published."""

    type: EventType
    resource_id: str | None
    object: bytes
    """The resource as JSON, exactly as REST shows it, less its secrets (manage_url null, no code)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside `object` in `data`."""


def updated(
    kind: EventType, resource_id: str, *, before: bytes, after: bytes, extra: Mapping[str, Any] | None = None
) -> NewEvent:
    """Return an event of a type of `UPDATES`, with the former values of the fields that differ as `changes`.

    Args:
        before: the resource as JSON before the change, rendered as `after` is.
        after: the `object` of the event.
        extra: more fields beside `object`.
    """
    changes = former_values(orjson.loads(before), orjson.loads(after))
    return NewEvent(kind, resource_id, after, {**(extra or {}), "changes": changes})


# Numbering -------------------------------------------------------------------------------------------------------

_COLUMNS = {
    key: tables.counters.c[key].type for key in ("organization_id", "last_booking_number", "last_event_sequence")
}
"""The columns of the rows parameter, named as the columns that they are added to."""


def _lock(*, blocking: bool) -> Update:
    counters = tables.counters.c
    row = rows_parameter("wanted", _COLUMNS).c
    # Rows are locked in the order of their ids before any is changed: two batches with several organizations in common
    # wait for each other and never deadlock.
    in_order = (
        select(counters.organization_id)
        .where(in_rows(counters.organization_id, "wanted", "organization_id"))
        .order_by(counters.organization_id)
        .with_for_update(key_share=True, skip_locked=not blocking)
        .correlate(None)
    )
    return (
        update(tables.counters)
        .where(
            counters.organization_id == row.organization_id,
            on_postgresql(counters.organization_id == any_(func.array(in_order.scalar_subquery()))),
        )
        .values(
            last_booking_number=counters.last_booking_number + row.last_booking_number,
            last_event_sequence=counters.last_event_sequence + row.last_event_sequence,
        )
        .returning(counters.organization_id, counters.last_booking_number, counters.last_event_sequence)
    )


_LOCK_SEQUENCES, _TRY_SEQUENCES = Statement(_lock(blocking=True)), Statement(_lock(blocking=False))


def lock_sequences(tx: Tx, counts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Reserve booking numbers and event sequences, so many of each by organization.

    This is the last lock of a transaction, held until it ends: numbers are dense, and their order is the order of
    commits. A statement after it sees everything that an earlier holder of the lock committed. It is one statement for
    any number of organizations, and sends no collected rows: they go with the COMMIT.

    Returns:
        The last booking number and the last event sequence before the reserved ones, by organization.
    """
    return _reserve(tx, _LOCK_SEQUENCES, counts)


def try_lock_sequences(tx: Tx, counts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Reserve numbers as `lock_sequences`, and skip organizations that another transaction has locked."""
    return _reserve(tx, _TRY_SEQUENCES, counts)


def _reserve(tx: Tx, statement: Statement, counts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    parameter = as_json(
        {"organization_id": organization_id, "last_booking_number": booking_numbers, "last_event_sequence": events}
        for organization_id, (booking_numbers, events) in sorted(counts.items())
    )
    with tx.no_autoflush():
        rows = tx.all(statement, wanted=parameter)
    last_numbers = {}
    for organization_id, booking_number, sequence in rows:
        booking_numbers, events = counts[organization_id]
        last_numbers[organization_id] = (booking_number - booking_numbers, sequence - events)
    return last_numbers


class Sequences(NamedTuple):
    """The locked sequences of an organization: its last booking number and event."""

    last_booking_number: int
    last_event_sequence: int


_TRY_SEQUENCES_OF = Statement(
    select(*columns_of(Sequences._fields, tables.counters))
    .where(tables.counters.c.organization_id == bindparam("organization_id"))
    .with_for_update(key_share=True, skip_locked=True)
)


def sequences_query(organization_id: str) -> Query[Sequences | None]:
    """Return the query that locks the sequences of an organization; its result is None while another transaction has.

    For a pipeline with the reads of a transaction, on PostgreSQL: it spares the round trip of `try_lock_sequences`, and
    holds the lock while the transaction decides. `advance` reserves the numbers.
    """

    def read(rows: list[Row]) -> Sequences | None:
        return Sequences._make(rows[0]) if rows else None

    return Query(_TRY_SEQUENCES_OF, {"organization_id": organization_id}, read)


def advance(tx: Tx, organization_id: str, locked: Sequences, booking_numbers: int, events: int) -> None:
    """Collect the reservation of so many numbers after the numbers of locked sequences."""
    tx.update(
        tables.counters,
        organization_id=organization_id,
        last_booking_number=locked.last_booking_number + booking_numbers,
        last_event_sequence=locked.last_event_sequence + events,
    )


# Publishing ------------------------------------------------------------------------------------------------------

_NAMES = {kind: (kind.value, kind.resource_type.value, kind in ONCE) for kind in EventType}
"""By type: its name, the name of its resource's type, and whether a resource has it at most once."""


def append(tx: Tx, organization: Organization, event: NewEvent, *, sequence: int, at: int) -> str:
    """Write an event.

    The envelope (API v1 section 6) is rendered here, once: the feed and every attempt of every delivery send these
    bytes.

    Returns:
        The event's id.
    """
    event_id, (kind, resource_type, is_once) = tokens.new_id(), _NAMES[event.type]
    envelope = {
        "id": event_id,
        "type": kind,
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
        type=kind,
        resource_type=resource_type,
        resource_id=event.resource_id,
        occurrence=0 if is_once else sequence,
        body=orjson.dumps(envelope).decode(),
        created_at=at,
        **tx.trace_columns,
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
