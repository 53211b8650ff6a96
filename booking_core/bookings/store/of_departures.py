"""The bookings of a departure: locked, listed and counted."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, bindparam, func, literal_column, select

from booking_core.bookings.store.rows import (
    LOCKED,
    BookingDetails,
    BookingWithPayment,
    parse_with_payment,
    select_with_payment,
)
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, OWNER, Statement, as_ids, in_rows
from booking_core.db.tables import Id, bookings

_DEPARTURE_ID = bindparam("departure_id", type_=Id)
# Literal, as in the partial index: PostgreSQL does not match the index with a parameter.
PENDING = bookings.c.status == literal_column("'pending'")
_CONFIRMED = bookings.c.status == literal_column("'confirmed'")
LIVE = bookings.c.status.in_([literal_column("'pending'"), literal_column("'confirmed'")])


_OF_DEPARTURE = and_(
    bookings.c.organization_id == OWNER,
    bookings.c.departure_id == _DEPARTURE_ID,
    LIVE,
)
_LOCK_LIVE = Statement(
    select(*LOCKED).where(_OF_DEPARTURE).order_by(bookings.c.id).limit(LIMIT).with_for_update(key_share=True)
)
_COUNT_LIVE = Statement(select(func.count()).select_from(bookings).where(_OF_DEPARTURE))


def lock_live(tx: Tx, organization_id: str, departure_id: str, limit: int) -> list[BookingDetails]:
    """Lock the pending and confirmed bookings of a departure, in the order of their ids."""
    rows = tx.all(_LOCK_LIVE, organization_id=organization_id, departure_id=departure_id, limit=limit)
    return [BookingDetails._make(row) for row in rows]


_LIVE_WITH_PAYMENT = Statement(select_with_payment(select(bookings).where(_OF_DEPARTURE).subquery("page")))


def find_live(tx: Tx, organization_id: str, departure_id: str) -> list[BookingWithPayment]:
    """Return the pending and confirmed bookings of a departure."""
    return list(
        map(parse_with_payment, tx.all(_LIVE_WITH_PAYMENT, organization_id=organization_id, departure_id=departure_id))
    )


class StatusCount(NamedTuple):
    """The number of bookings of a departure with a status, and their seats."""

    departure_id: str
    status: str
    bookings: int
    seats: int


_COUNT_BY_STATUS = Statement(
    select(bookings.c.departure_id, bookings.c.status, func.count(), func.sum(bookings.c.seats))
    .where(bookings.c.organization_id == OWNER, in_rows(bookings.c.departure_id, "wanted", "id"))
    .group_by(bookings.c.departure_id, bookings.c.status)
)


def count_by_status(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> list[StatusCount]:
    """Count the bookings of departures by status."""
    ids = as_ids(departure_ids)
    return [StatusCount._make(row) for row in tx.all(_COUNT_BY_STATUS, organization_id=organization_id, wanted=ids)]


def count_live(tx: Tx, organization_id: str, departure_id: str) -> int:
    """Count the pending and confirmed bookings of a departure. The count is stable while the departure is locked."""
    (row,) = tx.all(_COUNT_LIVE, organization_id=organization_id, departure_id=departure_id)
    return int(row[0])


CONFIRMED_SEATS = func.coalesce(func.sum(bookings.c.seats).filter(_CONFIRMED), 0)
_COUNT_PARTICIPANTS = Statement(select(CONFIRMED_SEATS, func.count().filter(PENDING)).where(_OF_DEPARTURE))


def count_participants(tx: Tx, organization_id: str, departure_id: str) -> tuple[int, int]:
    """Return the seats of the confirmed bookings of a departure, and the number of its pending bookings.

    No booking can become pending while the departure is locked.
    """
    (row,) = tx.all(_COUNT_PARTICIPANTS, organization_id=organization_id, departure_id=departure_id)
    return int(row[0]), int(row[1])
