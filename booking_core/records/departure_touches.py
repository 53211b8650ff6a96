"""Changes of departures by other packages: their seats, and their announcement as `departure.updated` (decisions/0029).

At the instant `departures.announce_at` a worker compares a departure with its last event; null: nothing has changed. A
transaction that changes a departure sets it under the lock of the row. It stays null in organizations that have neither
a subscription to the event nor `availability_events`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, and_, case, exists, literal_column, or_, select, update
from sqlalchemy.sql import dml

from booking_core.base.clock import SECOND
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, ROW_ID, Statement, as_json, has_key, rows_parameter
from booking_core.db.tables import Id, departures, organizations, webhook_subscriptions
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


def _is_later(stored: ColumnElement[Any], announce_at: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition for departures without an early look: a rush writes the index once."""
    return or_(stored.is_(None), stored > announce_at + literal_column(str(WINDOW)))


def _earlier(stored: ColumnElement[Any], announce_at: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((and_(_is_later(stored, announce_at), IS_WANTED), announce_at), else_=stored)


ANNOUNCE: Merge = ("announce_at", _earlier)
"""For updates of departures that integrators hear of: their rows give the instant of the change as `announce_at`."""


def _touch(name: str) -> dml.Update:
    row = rows_parameter(name, {"organization_id": Id, "id": Id, "announce_at": BigInteger})
    announce_at = row.c.announce_at
    is_later = _is_later(departures.c.announce_at, announce_at)
    return update(departures).where(has_key(departures, row), is_later, IS_WANTED).values(announce_at=announce_at)


_TOUCH = InsertFromSelect("touch_departure", _touch)
_LOCK = Statement(
    select(departures.c.id)
    .where(
        departures.c.organization_id == OWNER,
        departures.c.id == ROW_ID,
        IS_WANTED,
    )
    .with_for_update(key_share=True)
)


def touch(tx: Tx, organization_id: str, departure_ids: Iterable[str], *, at: int) -> None:
    """Have departures announced whose rows this transaction has locked, and does not update itself."""
    rows = [
        {"organization_id": organization_id, "id": departure_id, "announce_at": at} for departure_id in departure_ids
    ]
    tx.insert_from_select(_TOUCH, rows)


def lock(tx: Tx, organization_id: str, departure_id: str) -> None:
    """Lock a departure if `touch` will change it."""
    tx.first(_LOCK, organization_id=organization_id, id=departure_id)


# Seats -----------------------------------------------------------------------------------------------------------


_total = rows_parameter("wanted", {"organization_id": Id, "id": Id, "seats_total": Integer, "at": BigInteger})
_seats_taken = departures.c.seats_taken
_RESIZE = Statement(
    update(departures)
    .where(has_key(departures, _total))
    .values(
        seats_total=_total.c.seats_total,
        seats_ceiling=case((_seats_taken > _total.c.seats_total, _seats_taken), else_=_total.c.seats_total),
        updated_at=_total.c.at,
    )
)
"""Sets totals and ceilings in the database, which has the current number of sold seats (`tables.departures`)."""


def resize(tx: Tx, organization_id: str, totals: Mapping[str, int], *, at: int) -> None:
    """Set the total of seats by departure, in the order of ids, as every transaction locks."""
    rows = [
        {"organization_id": organization_id, "id": departure_id, "seats_total": totals[departure_id], "at": at}
        for departure_id in sorted(totals)
    ]
    if rows:
        tx.run(_RESIZE, wanted=as_json(rows))
