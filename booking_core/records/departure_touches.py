"""Changes of departures by other packages: their seats, and their announcement as `departure.updated` (decisions/0029).

At the instant `departures.announce_at` a worker compares a departure with its last event; null: nothing has changed. A
transaction that changes a departure sets it under the lock of the row. It stays null in organizations that have neither
a subscription to the event nor `availability_events`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    and_,
    bindparam,
    case,
    exists,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.base.clock import SECOND
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, rows_parameter
from booking_core.db.tables import Id, departures, holds, organizations, webhook_subscriptions
from booking_core.db.unit_of_work import InsertFromSelect, Merge

WINDOW = 5 * SECOND
"""A departure has at most one event in this time."""

_subscriptions = webhook_subscriptions.c
_IS_SUBSCRIBED = exists().where(
    _subscriptions.organization_id == departures.c.organization_id,
    _subscriptions.event_type == literal_column("'departure.updated'"),  # as in the partial index
    _subscriptions.until_sequence.is_(None),
)
_IS_FOLLOWED = exists().where(organizations.c.id == departures.c.organization_id, organizations.c.availability_events)
IS_WANTED = or_(_IS_SUBSCRIBED, _IS_FOLLOWED)
"""The condition for departures whose organization has an endpoint that subscribes to the event, or followers of the
feed."""


def _is_later(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition for departures without an early look: a rush writes the index once."""
    return or_(stored.is_(None), stored > given + literal_column(str(WINDOW)))


def _earlier(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((and_(_is_later(stored, given), IS_WANTED), given), else_=stored)


ANNOUNCE: Merge = ("announce_at", _earlier)
"""For updates of departures that integrators hear of: their rows give the instant of the change as `announce_at`."""


def _touch(dialect: Dialect, name: str) -> dml.Update:
    given = rows_parameter(dialect, name, {"organization_id": Id, "id": Id, "announce_at": BigInteger}).c
    is_it = and_(departures.c.organization_id == given.organization_id, departures.c.id == given.id)
    is_later = _is_later(departures.c.announce_at, given.announce_at)
    return update(departures).where(is_it, is_later, IS_WANTED).values(announce_at=given.announce_at)


_TOUCH = InsertFromSelect("touch_departure", _touch)
_OF_HOLD = select(holds.c.departure_id).where(
    holds.c.organization_id == bindparam("organization_id", type_=Id), holds.c.id == bindparam("hold_id", type_=Id)
)
_LOCK_OF_HOLD = Statement(
    select(departures.c.id)
    .where(
        departures.c.organization_id == bindparam("organization_id", type_=Id),
        departures.c.id == _OF_HOLD.scalar_subquery(),
        IS_WANTED,
    )
    .with_for_update(key_share=True)
)


def touch(tx: Tx, organization_id: str, departure_ids: Iterable[str], *, at: int) -> None:
    """Have departures announced whose rows this transaction has locked, and does not update itself."""
    rows = [{"organization_id": organization_id, "id": each, "announce_at": at} for each in departure_ids]
    tx.insert_all_from_select(_TOUCH, rows)


def lock_of_hold(tx: Tx, organization_id: str, hold_id: str) -> None:
    """Lock the departure of a hold that is to be released, if `touch` will change it: before the hold itself."""
    tx.first(_LOCK_OF_HOLD, organization_id=organization_id, hold_id=hold_id)


# Seats -----------------------------------------------------------------------------------------------------------


def _resize(dialect: Dialect) -> dml.Update:
    """Set totals and ceilings in the database, which has the current number of sold seats (`tables.departures`)."""
    wanted = rows_parameter(
        dialect, "wanted", {"organization_id": Id, "id": Id, "seats_total": Integer, "at": BigInteger}
    ).c
    taken = departures.c.seats_taken
    return (
        update(departures)
        .where(departures.c.organization_id == wanted.organization_id, departures.c.id == wanted.id)
        .values(
            seats_total=wanted.seats_total,
            seats_ceiling=case((taken > wanted.seats_total, taken), else_=wanted.seats_total),
            updated_at=wanted.at,
        )
    )


_RESIZE = Statement(_resize)


def resize(tx: Tx, organization_id: str, totals: Mapping[str, int], *, at: int) -> None:
    """Set the total of seats by departure, in the order of ids, as every transaction locks."""
    wanted = [
        {"organization_id": organization_id, "id": each, "seats_total": totals[each], "at": at}
        for each in sorted(totals)
    ]
    if wanted:
        tx.run(_RESIZE, wanted=as_json(wanted))
