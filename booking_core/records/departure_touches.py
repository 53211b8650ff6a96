"""Departures that are to be announced as `departure.updated` (decisions/0056).

A row says that a departure may have changed. Rows are only inserted and deleted, never changed: who writes one waits
for no other transaction, and a worker deletes only rows that it has read before the departure. Nothing is written for
organizations that nobody listens to.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, and_, exists, insert, select
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.db.engine import Tx
from booking_core.db.statements import rows_parameter
from booking_core.db.tables import Id, departure_followers, departure_touches
from booking_core.db.unit_of_work import InsertFromSelect

WINDOW = 5 * SECOND
"""A departure has at most one event in this time."""

_followers, _touches = departure_followers.c, departure_touches.c


def _follow(dialect: Dialect, name: str) -> dml.Insert:
    of = rows_parameter(dialect, name, {"organization_id": Id, "followed_sequence": BigInteger}).c
    known = exists().where(_followers.organization_id == of.organization_id)
    values = {"organization_id": of.organization_id, "followed_sequence": of.followed_sequence}
    return insert(departure_followers).from_select(list(values), select(*values.values()).where(~known))


def _touch(dialect: Dialect, name: str) -> dml.Insert:
    kinds: dict[str, Any] = {"organization_id": Id, "departure_id": Id, "id": Id, "due_at": BigInteger}
    of = rows_parameter(dialect, name, kinds | {"at": BigInteger, "until": BigInteger}).c
    is_followed = exists().where(_followers.organization_id == of.organization_id)
    is_waiting = exists().where(
        and_(
            _touches.organization_id == of.organization_id,
            _touches.departure_id == of.departure_id,
            _touches.due_at > of.at,
            _touches.due_at <= of.until,
        )
    )
    values = {key: of[key] for key in kinds}
    return insert(departure_touches).from_select(list(values), select(*values.values()).where(is_followed, ~is_waiting))


_FOLLOW = InsertFromSelect("departure_follower", _follow)
_TOUCH = InsertFromSelect("departure_touch", _touch)


def follow(tx: Tx, organization_id: str, last: int) -> None:
    """Have a worker follow the organization's log from behind that sequence. The caller has locked the sequences."""
    tx.insert_from_select(_FOLLOW, organization_id=organization_id, followed_sequence=last)


def touch(tx: Tx, organization_id: str, departure_ids: Iterable[str], *, at: int) -> None:
    """Have departures announced that this transaction changes, if a worker follows their organization."""
    for departure_id in departure_ids:
        _write(tx, organization_id, departure_id, due_at=at, at=at, until=at)


def touch_committed(tx: Tx, organization_id: str, departure_ids: Iterable[str], *, at: int) -> None:
    """Have departures announced whose change is committed already: a row that is due soon serves for it."""
    for departure_id in departure_ids:
        _write(tx, organization_id, departure_id, due_at=at, at=at, until=at + WINDOW)


def touch_later(tx: Tx, organization_id: str, departure_id: str, *, due_at: int, at: int) -> None:
    """Have a departure looked at again at an instant to come, unless it will be before."""
    _write(tx, organization_id, departure_id, due_at=due_at, at=at, until=due_at)


def _write(tx: Tx, organization_id: str, departure_id: str, *, due_at: int, at: int, until: int) -> None:
    named = {"organization_id": organization_id, "departure_id": departure_id, "id": tokens.new_id()}
    tx.insert_from_select(_TOUCH, **named, due_at=due_at, at=at, until=until)
