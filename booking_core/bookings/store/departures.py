"""Departures that are booked: locked or read, with the other data that a booking of them depends on."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, FromClause, Integer, Table, Text, bindparam, literal_column, select

from booking_core.bookings.rules import LockedDeparture
from booking_core.catalogue.departures import select_seats_held
from booking_core.db import tables
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import (
    LIMIT,
    NOW,
    OWNER,
    ROW_ID,
    Statement,
    as_ids,
    as_json,
    as_rows,
    columns_of,
    has_key,
    in_rows,
    is_of,
    rows_parameter,
)
from booking_core.db.tables import Id, customers, departures, experiences, holds, idempotency
from booking_core.records.idempotency import LOCKED_KEYS

_DEPARTURE_ID = bindparam("departure_id", type_=Id)


def _lock_departures(keys: FromClause, *, skip_locked: bool = False) -> Any:
    locked = (
        select(departures)
        .where(has_key(departures, keys))
        .order_by(departures.c.organization_id, departures.c.id)
        .with_for_update(key_share=True, of=departures, skip_locked=skip_locked)
        .cte("locked")
    )
    return select(*columns_of(LockedDeparture._fields, locked, experiences)).join_from(locked, experiences)


_KEY: Mapping[str, Any] = {"organization_id": Id, "id": Id}


_LOCK_DEPARTURES = Statement(_lock_departures(rows_parameter("wanted", _KEY)))
_LOCK_WITH_KEY_HELD = Statement(_lock_departures(LOCKED_KEYS))
_TRY_WITH_KEY_HELD = Statement(_lock_departures(LOCKED_KEYS, skip_locked=True))


@lru_cache
def _existing(table: Table) -> Statement:
    keys = rows_parameter("wanted", _KEY)
    return Statement(select(table.c.organization_id, table.c.id).join_from(keys, table, has_key(table, keys)))


def lock_departures(tx: Tx, departure_keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], LockedDeparture]:
    """Lock departures by (organization id, id) in sorted order until the transaction ends, and return them by key."""
    return _by_key(tx.all(_LOCK_DEPARTURES, wanted=as_rows(_KEY, sorted(set(departure_keys)))))


def departures_query(
    departure_keys: Iterable[tuple[tuple[str, str], str]], *, blocking: bool
) -> Query[dict[tuple[str, str], LockedDeparture]]:
    """Return the query that locks departures by ((organization id, id), name of the idempotency lock).

    Args:
        blocking: wait for departures that another transaction has locked. They are left out otherwise.
    """
    keys = as_rows((*_KEY, "lock"), ((*key, lock) for key, lock in departure_keys))
    return Query(_LOCK_WITH_KEY_HELD if blocking else _TRY_WITH_KEY_HELD, {"wanted": keys}, _by_key)


def existing(tx: Tx, table: Table, keys: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the rows of a table that exist among these keys (organization id, id), without a lock."""
    rows = tx.all(_existing(table), wanted=as_rows(_KEY, keys))
    return frozenset((str(organization_id), str(row_id)) for organization_id, row_id in rows)


def _by_key(rows: Iterable[Row]) -> dict[tuple[str, str], LockedDeparture]:
    return {(row.organization_id, row.id): row for row in map(LockedDeparture._make, rows)}


class BatchContext(NamedTuple):
    """The other data that a request of a batch depends on, read while its departure is locked."""

    position: int
    at: int
    fingerprint: str | None
    status: int | None
    body_sealed: str | None
    seats_held: int
    customer_id: str | None


def _batch_contexts() -> Any:
    kinds: Mapping[str, Any] = {"i": Integer, "organization_id": Id, "key": Text, "departure_id": Id, "email_key": Text}
    row = rows_parameter("wanted", {**kinds, "ahead": BigInteger}).c
    now = NOW + row.ahead  # the clock of a sandbox may be ahead of the others of the batch
    seats_held = select_seats_held(row.organization_id, row.departure_id, now)
    others = {"at": now, "seats_held": seats_held.correlate(row.i.table).scalar_subquery()}
    names = BatchContext._fields
    return (
        select(*columns_of(names, idempotency, position=row.i, customer_id=customers.c.id, **others))
        .select_from(row.i.table)
        .join(tables.idempotency, is_of(idempotency.c, row, key="key"), isouter=True)
        .join(tables.customers, is_of(customers.c, row, email_key="email_key"), isouter=True)
    )


_BATCH_CONTEXTS = Statement(_batch_contexts())


def contexts_query(keys: Iterable[Mapping[str, object]]) -> Query[dict[int, BatchContext]]:
    """Return the query for the contexts by position: clock, stored answer of the key, held seats and known customer.

    It is one statement, because round trips limit the speed of a batch. It comes after the locks, because only a later
    snapshot has the changes of their previous holders.
    """
    return Query(_BATCH_CONTEXTS, {"wanted": as_json(keys)}, _by_position)


def _by_position(rows: Iterable[Row]) -> dict[int, BatchContext]:
    return {row.position: row for row in map(BatchContext._make, rows)}


class BookingContext(NamedTuple):
    """The other data that a single booking depends on, read while its departure is locked."""

    at: int
    seats_held: int
    customer_id: str | None


_OF_OTHER_HOLDS = holds.c.id.is_distinct_from(bindparam("hold_id"))


_seats_held = select_seats_held(OWNER, _DEPARTURE_ID, NOW).where(_OF_OTHER_HOLDS)
_customer = select(customers.c.id).where(
    customers.c.organization_id == OWNER, customers.c.email_key == bindparam("email_key")
)
_CONTEXT = Statement(select(NOW, _seats_held.scalar_subquery(), _customer.scalar_subquery()))


def get_context(
    tx: Tx, organization_id: str, departure_id: str, *, email_key: str | None = None, hold_id: str | None = None
) -> BookingContext:
    """Return the clock, the seats of live holds other than `hold_id`, and the customer with this address."""
    (row,) = tx.all(
        _CONTEXT, organization_id=organization_id, departure_id=departure_id, email_key=email_key, hold_id=hold_id
    )
    return BookingContext._make(row)


_AT = bindparam("at", type_=BigInteger)
_HELD_BY_OTHERS = (
    select_seats_held(departures.c.organization_id, departures.c.id, _AT)
    .where(_OF_OTHER_HOLDS)
    .correlate(departures)
    .scalar_subquery()
)
_READ = (
    select(*columns_of(LockedDeparture._fields, departures, experiences), _HELD_BY_OTHERS)
    .join_from(departures, experiences)
    .where(departures.c.organization_id == OWNER)
)
_READ_ONE = Statement(_READ.where(departures.c.id == ROW_ID))
_READ_OFFERED = Statement(
    _READ.where(
        departures.c.experience_id == bindparam("experience_id"),
        departures.c.starts_at > _AT,
        departures.c.starts_at < bindparam("before"),
        departures.c.status == literal_column("'open'"),
    )
    .order_by(departures.c.starts_at)
    .limit(LIMIT)
)


def read_departure(
    tx: Tx, organization_id: str, departure_id: str, *, at: int, hold_id: str | None = None
) -> tuple[LockedDeparture, int] | None:
    """Return a departure, and the seats that live holds other than `hold_id` keep at an instant, without a lock."""
    row = tx.first(_READ_ONE, organization_id=organization_id, id=departure_id, at=at, hold_id=hold_id)
    return (LockedDeparture._make(row[:-1]), int(row[-1])) if row else None


def find_offered(
    tx: Tx, organization_id: str, experience_id: str, *, at: int, before: int, limit: int
) -> list[tuple[LockedDeparture, int]]:
    """Return the open departures of an experience that start between two instants, each with its held seats at the
    first."""
    window = {"at": at, "before": before, "limit": limit, "hold_id": None}
    rows = tx.all(_READ_OFFERED, organization_id=organization_id, experience_id=experience_id, **window)
    return [(LockedDeparture._make(row[:-1]), int(row[-1])) for row in rows]


class DepartureDetails(NamedTuple):
    """The experience and the sold seats of a departure, and the reason while its bookings are being cancelled."""

    departure_id: str
    experience_id: str
    title: str
    slug: str
    seats_taken: int
    cancelling: str | None


_IDS = {"departure_id": departures.c.id, "experience_id": experiences.c.id}
_DEPARTURE_DETAILS = Statement(
    select(*columns_of(DepartureDetails._fields, departures, experiences, **_IDS))
    .join_from(departures, experiences)
    .where(departures.c.organization_id == OWNER, in_rows(departures.c.id, "wanted", "id"))
)


def departure_details(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> dict[str, DepartureDetails]:
    """Return the details of departures by their ids."""
    ids = as_ids(departure_ids)
    details = map(DepartureDetails._make, tx.all(_DEPARTURE_DETAILS, organization_id=organization_id, wanted=ids))
    return {detail.departure_id: detail for detail in details}


_CANCELLING_REASON = Statement(
    select(departures.c.cancelling).where(
        departures.c.organization_id == OWNER,
        departures.c.id == _DEPARTURE_ID,
        departures.c.cancelling.is_not(None),
    )
)


def cancelling_reason(tx: Tx, organization_id: str, departure_id: str) -> str | None:
    """Return the reason while the bookings of a cancelled departure are being cancelled, else None."""
    row = tx.first(_CANCELLING_REASON, organization_id=organization_id, departure_id=departure_id)
    return str(row[0]) if row else None
