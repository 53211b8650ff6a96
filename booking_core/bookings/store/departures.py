"""The bookings of departures: locked, shown and counted."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, and_, bindparam, func, literal_column, select
from sqlalchemy.engine import Dialect

from booking_core.bookings.rules import LockedDeparture
from booking_core.bookings.store.rows import (
    CONFIRMED,
    LIMIT,
    LIVE,
    LOCKED,
    PENDING,
    BookingDetails,
    ShownBooking,
    parse_shown,
    shown,
)
from booking_core.catalogue.departures import select_seats_held
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import Id, bookings, departures, experiences

_OF_DEPARTURE = and_(
    bookings.c.organization_id == bindparam("organization_id", type_=Id),
    bookings.c.departure_id == bindparam("departure_id", type_=Id),
    LIVE,
)
_LOCK_LIVE = Statement(
    select(*LOCKED).where(_OF_DEPARTURE).order_by(bookings.c.id).limit(LIMIT).with_for_update(key_share=True)
)
_COUNT_LIVE = Statement(select(func.count()).select_from(bookings).where(_OF_DEPARTURE))


def lock_live(tx: Tx, organization_id: str, departure_id: str, limit: int) -> list[BookingDetails]:
    """Lock the pending and confirmed bookings of a departure, in the order of their ids."""
    found = tx.all(_LOCK_LIVE, organization_id=organization_id, departure_id=departure_id, limit=limit)
    return [BookingDetails._make(row) for row in found]


_SHOWN_LIVE = Statement(shown(select(bookings).where(_OF_DEPARTURE).subquery("page")))


def find_live(tx: Tx, organization_id: str, departure_id: str) -> list[ShownBooking]:
    """Return the pending and confirmed bookings of a departure."""
    return list(map(parse_shown, tx.all(_SHOWN_LIVE, organization_id=organization_id, departure_id=departure_id)))


class StatusCount(NamedTuple):
    """The number of bookings of a departure with a status, and their seats."""

    departure_id: str
    status: str
    bookings: int
    seats: int


def _count_by_status(dialect: Dialect) -> Any:
    of = bookings.c.departure_id
    return (
        select(of, bookings.c.status, func.count(), func.sum(bookings.c.seats))
        .where(
            bookings.c.organization_id == bindparam("organization_id", type_=Id), in_rows(dialect, of, "wanted", "id")
        )
        .group_by(of, bookings.c.status)
    )


_COUNT_BY_STATUS = Statement(_count_by_status)


def count_by_status(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> list[StatusCount]:
    """Count the bookings of departures by status."""
    wanted = as_json({"id": each} for each in departure_ids)
    return [StatusCount._make(row) for row in tx.all(_COUNT_BY_STATUS, organization_id=organization_id, wanted=wanted)]


class DepartureDetails(NamedTuple):
    """The experience and the sold seats of a departure, and the reason while its bookings are being cancelled."""

    departure_id: str
    experience_id: str
    title: str
    slug: str
    seats_taken: int
    cancelling: str | None


def _departure_details(dialect: Dialect) -> Any:
    same = and_(
        experiences.c.organization_id == departures.c.organization_id, experiences.c.id == departures.c.experience_id
    )
    return (
        select(
            departures.c.id,
            experiences.c.id,
            experiences.c.title,
            experiences.c.slug,
            departures.c.seats_taken,
            departures.c.cancelling,
        )
        .join_from(departures, experiences, same)
        .where(
            departures.c.organization_id == bindparam("organization_id", type_=Id),
            in_rows(dialect, departures.c.id, "wanted", "id"),
        )
    )


_DEPARTURE_DETAILS = Statement(_departure_details)


def departure_details(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> dict[str, DepartureDetails]:
    """Return the details of departures by their ids."""
    wanted = as_json({"id": each} for each in departure_ids)
    found = map(DepartureDetails._make, tx.all(_DEPARTURE_DETAILS, organization_id=organization_id, wanted=wanted))
    return {each.departure_id: each for each in found}


def count_live(tx: Tx, organization_id: str, departure_id: str) -> int:
    """Count the pending and confirmed bookings of a departure. The count is stable while the departure is locked."""
    row = tx.first(_COUNT_LIVE, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return int(row[0])


class ParticipantCount(NamedTuple):
    """The confirmed participants of a departure, and the pending bookings that may add to them."""

    seats_confirmed: int
    bookings_pending: int


CONFIRMED_SEATS = func.coalesce(func.sum(bookings.c.seats).filter(CONFIRMED), 0)
_COUNT_PARTICIPANTS = Statement(select(CONFIRMED_SEATS, func.count().filter(PENDING)).where(_OF_DEPARTURE))


def count_participants(tx: Tx, organization_id: str, departure_id: str) -> ParticipantCount:
    """Count the seats of confirmed bookings, and the pending bookings, of a departure.

    No booking can become pending while the departure is locked.
    """
    row = tx.first(_COUNT_PARTICIPANTS, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return ParticipantCount(int(row[0]), int(row[1]))


_CANCELLING_REASON = Statement(
    select(departures.c.cancelling).where(
        departures.c.organization_id == bindparam("organization_id", type_=Id),
        departures.c.id == bindparam("departure_id", type_=Id),
        departures.c.cancelling.is_not(None),
    )
)


def cancelling_reason(tx: Tx, organization_id: str, departure_id: str) -> str | None:
    """Return the reason while the bookings of a cancelled departure are being cancelled, else None."""
    row = tx.first(_CANCELLING_REASON, organization_id=organization_id, departure_id=departure_id)
    return str(row[0]) if row else None


# Departures that a booking can be moved to -----------------------------------------------------------------------

_AFTER = bindparam("after", type_=BigInteger)
_TARGETS = (
    select(
        *(departures.c[n] if n in departures.c else experiences.c[n] for n in LockedDeparture._fields),
        func.coalesce(
            select_seats_held(departures.c.organization_id, departures.c.id, _AFTER)
            .correlate(departures)
            .scalar_subquery(),
            literal_column("0"),
        ),
    )
    .join_from(
        departures,
        experiences,
        and_(
            experiences.c.organization_id == departures.c.organization_id,
            experiences.c.id == departures.c.experience_id,
        ),
    )
    .where(departures.c.organization_id == bindparam("organization_id", type_=Id))
)
_TARGET = Statement(_TARGETS.where(departures.c.id == bindparam("id", type_=Id)))
_OFFERED = Statement(
    _TARGETS.where(
        departures.c.experience_id == bindparam("experience_id", type_=Id),
        departures.c.starts_at > _AFTER,
        departures.c.starts_at < bindparam("before", type_=BigInteger),
        departures.c.status == literal_column("'open'"),
    )
    .order_by(departures.c.starts_at)
    .limit(LIMIT)
)


def find_offered(
    tx: Tx, organization_id: str, experience_id: str, *, after: int, before: int, limit: int
) -> list[tuple[LockedDeparture, int]]:
    """Return the open departures of an experience that start between two instants, each with its held seats."""
    window = {"after": after, "before": before, "limit": limit}
    found = tx.all(_OFFERED, organization_id=organization_id, experience_id=experience_id, **window)
    return [(LockedDeparture._make(row[:-1]), row[-1]) for row in found]


def find_target(tx: Tx, organization_id: str, departure_id: str, *, at: int) -> tuple[LockedDeparture, int] | None:
    """Return a departure and its held seats at an instant, without a lock."""
    row = tx.first(_TARGET, organization_id=organization_id, id=departure_id, after=at)
    return None if row is None else (LockedDeparture._make(row[:-1]), row[-1])


_SEATS = Statement(
    select(bookings.c.seats).where(
        bookings.c.organization_id == bindparam("organization_id", type_=Id), bookings.c.id == bindparam("id", type_=Id)
    )
)


def get_seats(tx: Tx, organization_id: str, booking_id: str) -> int:
    """Return the number of seats of a booking; 0 for one that does not exist."""
    row = tx.first(_SEATS, organization_id=organization_id, id=booking_id)
    return int(row[0]) if row else 0
