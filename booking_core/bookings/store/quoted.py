"""A departure as a quote reads it: without a lock, with the seats that others hold."""

from sqlalchemy import BigInteger, and_, bindparam, select

from booking_core.bookings.rules import LockedDeparture
from booking_core.catalogue.departures import select_seats_held
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, departures, experiences, holds

_HELD_BY_OTHERS = (
    select_seats_held(departures.c.organization_id, departures.c.id, bindparam("at", type_=BigInteger))
    .where(holds.c.id.is_distinct_from(bindparam("hold_id", type_=Id)))
    .correlate(departures)
    .scalar_subquery()
)
_QUOTED = Statement(
    select(
        *(departures.c[name] if name in departures.c else experiences.c[name] for name in LockedDeparture._fields),
        _HELD_BY_OTHERS,
    )
    .join_from(
        departures,
        experiences,
        and_(
            experiences.c.organization_id == departures.c.organization_id,
            experiences.c.id == departures.c.experience_id,
        ),
    )
    .where(
        departures.c.organization_id == bindparam("organization_id", type_=Id),
        departures.c.id == bindparam("id", type_=Id),
    )
)


def get_quoted(
    tx: Tx, organization_id: str, departure_id: str, *, hold_id: str | None, at: int
) -> tuple[LockedDeparture, int] | None:
    """Return a departure, and the seats that live holds other than `hold_id` keep at an instant."""
    row = tx.first(_QUOTED, organization_id=organization_id, id=departure_id, hold_id=hold_id, at=at)
    return (LockedDeparture._make(row[:-1]), int(row[-1])) if row else None
