"""The SQL of departures."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Select, and_, bindparam, func, literal_column, select

from booking_core.base.clock import DAY
from booking_core.catalogue.departures.rules import DepartureRow
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import OWNER, ROW_ID, Statement, columns_of, is_of
from booking_core.db.tables import Id, departures, experiences, holds
from booking_core.db.unit_of_work import Update
from booking_core.records.departure_touches import ANNOUNCE

# Seats that holds keep: availability and bookings both sum them here, and always agree.

SEATS_HELD = func.coalesce(func.sum(holds.c.seats), 0)
"""The seats of the selected holds, 0 without a hold."""


def hold_is_live(at: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition for holds that keep their seats at an instant: neither ended nor expired."""
    return and_(holds.c.ended_at.is_(None), holds.c.expires_at > at)


def select_seats_held(
    organization_id: ColumnElement[Any], departure_id: ColumnElement[Any], at: ColumnElement[int]
) -> Select[Any]:
    """Select the seats that live holds keep on one departure."""
    return select(SEATS_HELD).where(
        holds.c.organization_id == organization_id, holds.c.departure_id == departure_id, hold_is_live(at)
    )


# Departures ---------------------------------------------------------------------------------------------------------

SET_STATUS = Update("set_departure_status", departures, sets=("status", "updated_at"), merges=(ANNOUNCE,))

_AT = bindparam("at", type_=BigInteger)


def _window(table: FromClause, *, of_experience: bool) -> ColumnElement[bool]:
    """Return the condition for departures that start in the window, of all experiences or of one."""
    begun = table.c.starts_at >= bindparam("start", type_=BigInteger)
    over = table.c.starts_at < bindparam("end", type_=BigInteger)
    is_own = table.c.organization_id == OWNER
    if not of_experience:
        return and_(is_own, begun, over)
    return and_(is_own, table.c.experience_id == bindparam("experience_id", type_=Id), begun, over)


def _select_rows(seats_held: ColumnElement[int]) -> Select[tuple[object, ...]]:
    columns = columns_of(DepartureRow._fields, departures, experiences, seats_held=seats_held)
    return select(*columns).join_from(departures, experiences)


def _available(*, of_experience: bool) -> Select[tuple[object, ...]]:
    """Select the rows that `rules.presenter` shows.

    Live holds are summed in one subquery, for the departures of the window only. A correlated subquery would cost a
    look-up for each departure; a sum over all holds of the organization would grow with its history.
    """
    near = departures.alias("near")
    seats_held = (
        select(holds.c.departure_id, SEATS_HELD.label("seats"))
        .join_from(near, holds, is_of(holds.c, near.c, departure_id="id"))
        .where(_window(near, of_experience=of_experience), hold_is_live(_AT))
        .group_by(holds.c.departure_id)
        .subquery("held")
    )
    return (
        _select_rows(func.coalesce(seats_held.c.seats, 0))
        .join(seats_held, seats_held.c.departure_id == departures.c.id, isouter=True)
        .where(_window(departures, of_experience=of_experience))
        .order_by(departures.c.starts_at, departures.c.id)
    )


_AVAILABLE = Statement(_available(of_experience=False))
_AVAILABLE_OF_ONE = Statement(_available(of_experience=True))


def available(tx: Tx, organization_id: str, *, start: int, end: int, experience_id: str | None, at: int) -> list[Row]:
    """Return the departures that start within [start, end), by start and id, with the seats that are held at `at`."""
    window = {"organization_id": organization_id, "start": start, "end": end, "at": at}
    if experience_id is None:
        return tx.all(_AVAILABLE, **window)
    return tx.all(_AVAILABLE_OF_ONE, **window, experience_id=experience_id)


def _times(*, of_experience: bool) -> Select[Any]:
    """Select the first and the last start of each experience and time of the day, in UTC."""
    time = departures.c.starts_at % literal_column(str(DAY))
    return (
        select(departures.c.experience_id, func.min(departures.c.starts_at), func.max(departures.c.starts_at))
        .where(_window(departures, of_experience=of_experience))
        .group_by(departures.c.experience_id, time)
    )


_TIMES = Statement(_times(of_experience=False))
_TIMES_OF_ONE = Statement(_times(of_experience=True))


def times(tx: Tx, organization_id: str, *, start: int, end: int, experience_id: str | None) -> list[Row]:
    """Return each experience with its first and its last start within [start, end) at each time of the day, in UTC."""
    window = {"organization_id": organization_id, "start": start, "end": end}
    if experience_id is None:
        return tx.all(_TIMES, **window)
    return tx.all(_TIMES_OF_ONE, **window, experience_id=experience_id)


_IS_DEPARTURE = and_(departures.c.organization_id == OWNER, departures.c.id == ROW_ID)
_SEATS_HELD = (
    select_seats_held(departures.c.organization_id, departures.c.id, _AT).correlate(departures).scalar_subquery()
)
_LOCK = Statement(select(departures.c.id).where(_IS_DEPARTURE).with_for_update(key_share=True))


def select_rows() -> Select[tuple[object, ...]]:
    """Select `DepartureRow`s of departures, with the seats that are held at `at`."""
    return _select_rows(_SEATS_HELD)


_GET = Statement(select_rows().where(_IS_DEPARTURE))


def get(tx: Tx, organization_id: str, departure_id: str, at: int) -> DepartureRow | None:
    """Return the departure, with the seats that are held at `at`."""
    return tx.first_as(DepartureRow._make, _GET, organization_id=organization_id, id=departure_id, at=at)


def lock(tx: Tx, organization_id: str, departure_id: str, at: int) -> DepartureRow | None:
    """Lock the departure until the transaction ends, and return it.

    It is read by a second statement: only a snapshot taken after the lock has the changes of the previous holder.
    """
    if tx.first(_LOCK, organization_id=organization_id, id=departure_id) is None:
        return None
    return get(tx, organization_id, departure_id, at)
