"""Statements that lock the departure of a new booking and read the data that it depends on."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, FromClause, Integer, Text, and_, bindparam, select
from sqlalchemy.engine import Dialect

from booking_core.bookings.rules import LockedDeparture
from booking_core.catalogue.departures import select_seats_held
from booking_core.db import tables
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_parameter
from booking_core.db.tables import Id, customers, departures, experiences, holds, idempotency
from booking_core.records.idempotency import has_lock


def _lock_departures(dialect: Dialect, wanted: FromClause, *, skip_locked: bool = False) -> Any:
    locked = (
        select(departures)
        .where(departures.c.organization_id == wanted.c.organization_id, departures.c.id == wanted.c.id)
        .order_by(departures.c.organization_id, departures.c.id)
        .with_for_update(key_share=True, of=departures, skip_locked=skip_locked)
        .cte("locked")
    )
    columns = (locked.c[name] if name in departures.c else experiences.c[name] for name in LockedDeparture._fields)
    return select(*columns).join_from(
        locked,
        experiences,
        and_(experiences.c.organization_id == locked.c.organization_id, experiences.c.id == locked.c.experience_id),
    )


_DEPARTURE_KEY: Mapping[str, Any] = {"organization_id": Id, "id": Id}


def _with_key_held(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Lock the departures of the requests whose idempotency key this transaction has locked.

    A request whose key is in use is refused at once, and does not wait for the departure that the other request locks.
    """
    wanted = rows_parameter(dialect, "wanted", {**_DEPARTURE_KEY, "lock": Text}).c
    keys = select(wanted.organization_id, wanted.id).distinct()
    held = keys.where(has_lock(wanted.lock)) if dialect.name == "postgresql" else keys
    return _lock_departures(dialect, held.subquery("held"), skip_locked=skip_locked)


_LOCK_DEPARTURES = Statement(
    lambda dialect: _lock_departures(dialect, rows_parameter(dialect, "wanted", _DEPARTURE_KEY))
)
_LOCK_WITH_KEY_HELD = Statement(partial(_with_key_held, skip_locked=False))
_TRY_WITH_KEY_HELD = Statement(partial(_with_key_held, skip_locked=True))


def _existing(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", _DEPARTURE_KEY).c
    key = and_(departures.c.organization_id == wanted.organization_id, departures.c.id == wanted.id)
    return select(departures.c.organization_id, departures.c.id).join_from(wanted.id.table, departures, key)


_EXISTING = Statement(_existing)


def lock_departures(tx: Tx, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], LockedDeparture]:
    """Lock departures by (organization id, id) in sorted order until the transaction ends, and return them by key."""
    keys = as_json(
        {"organization_id": organization_id, "id": row_id} for organization_id, row_id in sorted(set(wanted))
    )
    return _by_key(tx.all(_LOCK_DEPARTURES, wanted=keys))


def departures_query(
    wanted: Iterable[tuple[tuple[str, str], str]], *, blocking: bool
) -> Query[dict[tuple[str, str], LockedDeparture]]:
    """Return the query that locks departures by ((organization id, id), name of the idempotency lock).

    Args:
        blocking: wait for departures that another transaction has locked. They are left out otherwise.
    """
    keys = ({"organization_id": key[0], "id": key[1], "lock": lock} for key, lock in wanted)
    return Query(_LOCK_WITH_KEY_HELD if blocking else _TRY_WITH_KEY_HELD, {"wanted": as_json(keys)}, _by_key)


def existing_departures(tx: Tx, wanted: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return those of the departures, by (organization id, id), that exist, without a lock."""
    keys = as_json({"organization_id": organization_id, "id": row_id} for organization_id, row_id in wanted)
    return frozenset((str(organization_id), str(row_id)) for organization_id, row_id in tx.all(_EXISTING, wanted=keys))


def _by_key(found: Iterable[Row]) -> dict[tuple[str, str], LockedDeparture]:
    return {(row.organization_id, row.id): row for row in map(LockedDeparture._make, found)}


class BatchContext(NamedTuple):
    """The other data that a request of a batch depends on, read while its departure is locked."""

    position: int
    at: int
    fingerprint: str | None
    status: int | None
    body_sealed: str | None
    seats_held: int
    customer_id: str | None


def _batch_contexts(dialect: Dialect) -> Any:
    kinds: Mapping[str, Any] = {"i": Integer, "organization_id": Id, "key": Text, "departure_id": Id, "email_key": Text}
    wanted = rows_parameter(dialect, "wanted", {**kinds, "ahead": BigInteger}).c
    now = now_us(dialect) + wanted.ahead  # the clock of a sandbox may be ahead of the others of the batch
    held = select_seats_held(wanted.organization_id, wanted.departure_id, now)
    stored = and_(idempotency.c.organization_id == wanted.organization_id, idempotency.c.key == wanted.key)
    known = and_(customers.c.organization_id == wanted.organization_id, customers.c.email_key == wanted.email_key)
    return (
        select(
            wanted.i,
            now,
            idempotency.c.fingerprint,
            idempotency.c.status,
            idempotency.c.body_sealed,
            held.correlate(wanted.i.table).scalar_subquery(),
            customers.c.id,
        )
        .select_from(wanted.i.table)
        .join(tables.idempotency, stored, isouter=True)
        .join(tables.customers, known, isouter=True)
    )


_BATCH_CONTEXTS = Statement(_batch_contexts)


def contexts_query(wanted: Iterable[Mapping[str, object]]) -> Query[dict[int, BatchContext]]:
    """Return the query for the contexts by position: clock, stored answer of the key, held seats and known customer.

    It is one statement, because round trips limit the speed of a batch. It comes after the locks, because only a later
    snapshot has the changes of their previous holders.
    """
    return Query(_BATCH_CONTEXTS, {"wanted": as_json(wanted)}, _by_position)


def _by_position(found: Iterable[Row]) -> dict[int, BatchContext]:
    return {row.position: row for row in map(BatchContext._make, found)}


class BookingContext(NamedTuple):
    """The other data that a single booking depends on, read while its departure is locked."""

    at: int
    seats_held: int
    customer_id: str | None


def _context(dialect: Dialect) -> Any:
    organization_id = bindparam("organization_id", type_=Id)
    departure_id = bindparam("departure_id", type_=Id)
    other_holds = holds.c.id.is_distinct_from(bindparam("hold_id", type_=Id))
    held = select_seats_held(organization_id, departure_id, now_us(dialect)).where(other_holds)
    known = select(customers.c.id).where(
        customers.c.organization_id == organization_id, customers.c.email_key == bindparam("email_key", type_=Text)
    )
    return select(now_us(dialect), held.scalar_subquery(), known.scalar_subquery())


_CONTEXT = Statement(_context)


def get_context(
    tx: Tx, organization_id: str, departure_id: str, *, email_key: str | None = None, hold_id: str | None = None
) -> BookingContext:
    """Return the clock, the seats of live holds other than `hold_id`, and the customer with this address."""
    row = tx.first(
        _CONTEXT, organization_id=organization_id, departure_id=departure_id, email_key=email_key, hold_id=hold_id
    )
    assert row is not None
    return BookingContext._make(row)
