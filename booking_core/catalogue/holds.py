"""Holds: seats of a departure that are kept for a checkout for some minutes, until it is booked, released or expired.

This module has their rules and their rows. Seats are held in `storefront`, and taken over by `bookings`, since both ask
the capacity rule.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, bindparam, func, select

from booking_core.base.clock import Zone
from booking_core.base.errors import Conflict, NotFound
from booking_core.catalogue.departures import SEATS_HELD, hold_is_live
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import OWNER, ROW_ID, Statement, as_ids, as_rows, columns_of, has_key, in_rows
from booking_core.db.tables import Id, holds
from booking_core.models.errors import ErrorDetail
from booking_core.models.holds import HoldStatus
from booking_core.models.limits import HOLD_S_MAX
from booking_core.models.money import totals_json
from booking_core.models.reasons import ErrorReason
from booking_core.records.idempotency import LOCKED_KEYS

HoldKey = tuple[str, str]
"""The ids of organization and hold."""

_FIELD = "hold_id"


class HoldRow(NamedTuple):
    """The columns of a hold, in the order of every query."""

    id: str
    departure_id: str
    seats: int
    created_at: int
    expires_at: int
    ended_at: int | None
    booking_id: str | None
    guests: str | None
    """The priced lines of its party, as JSON; None: it was made for seats."""


def is_live(hold: HoldRow, at: int) -> bool:
    """Return whether the hold keeps its seats at an instant."""
    return hold.ended_at is None and hold.expires_at > at


def status(hold: HoldRow, at: int) -> HoldStatus:
    """Return the status at an instant."""
    if hold.booking_id is not None:
        return HoldStatus.BOOKED
    if hold.ended_at is not None:
        return HoldStatus.RELEASED
    return HoldStatus.LIVE if hold.expires_at > at else HoldStatus.EXPIRED


def require_usable(hold: HoldRow | None, departure_id: str, at: int) -> HoldRow:
    """Return the hold if a booking of the departure can take it over at an instant.

    Raises:
        NotFound: the organization has no such hold.
        Conflict: `hold_of_another_departure`, `hold_booked`, `hold_released` or `hold_expired`.
    """
    if hold is None:
        message = "There is no such hold."
        detail = ErrorDetail(field=_FIELD, reason="unknown_hold", message=message)
        raise NotFound(message, noun="hold", details=[detail])
    if hold.departure_id != departure_id:
        raise Conflict("hold_of_another_departure", "The hold is of another departure.", _FIELD)
    require_live(hold, at, _FIELD)
    return hold


def require_live(hold: HoldRow, at: int, field: str | None = None) -> None:
    """Refuse a hold that has ended at an instant.

    Args:
        field: of the request, which names the hold.

    Raises:
        Conflict: `hold_booked`, `hold_released` or `hold_expired`.
    """
    refusals: dict[HoldStatus, tuple[ErrorReason, str]] = {
        HoldStatus.BOOKED: ("hold_booked", "A booking has taken over the hold."),
        HoldStatus.RELEASED: ("hold_released", "The hold was released."),
        HoldStatus.EXPIRED: ("hold_expired", "The hold has expired."),
    }
    refusal = refusals.get(status(hold, at))
    if refusal:
        raise Conflict(*refusal, field)


def present(hold: HoldRow, zone: Zone, at: int) -> dict[str, Any]:
    """Present a hold as in the API, at an instant."""
    return {
        "id": hold.id,
        "departure_id": hold.departure_id,
        "seats": hold.seats,
        "status": str(status(hold, at)),
        "created_at": zone.iso(hold.created_at),
        "expires_at": zone.iso(hold.expires_at),
        "booking_id": hold.booking_id,
        **_present_party(hold.guests),
    }


def _present_party(guests: str | None) -> dict[str, Any]:
    """Present the party of a hold, with the totals of a quote."""
    if guests is None:
        return {"guests": None, "totals": None}
    lines = orjson.loads(guests)
    subtotal_minor = sum(line["count"] * line["unit_price"]["amount_minor"] for line in lines)
    return {"guests": lines, "totals": totals_json(subtotal_minor, lines[0]["unit_price"]["currency"])}


# Rows ---------------------------------------------------------------------------------------------------------------

_COLUMNS = columns_of(HoldRow._fields, holds)
_AT = bindparam("at", type_=BigInteger)
_ONE = select(*_COLUMNS).where(holds.c.organization_id == OWNER, holds.c.id == ROW_ID)
_FIND = Statement(_ONE)
_LOCK = Statement(_ONE.with_for_update(key_share=True))


def find(tx: Tx, organization_id: str, hold_id: str) -> HoldRow | None:
    """Return a hold."""
    return tx.first_as(HoldRow._make, _FIND, organization_id=organization_id, id=hold_id)


def lock(tx: Tx, organization_id: str, hold_id: str) -> HoldRow | None:
    """Lock a hold until the transaction ends, before its departure, as everywhere."""
    return tx.first_as(HoldRow._make, _LOCK, organization_id=organization_id, id=hold_id)


def change(tx: Tx, organization_id: str, hold: HoldRow, **changed: Any) -> HoldRow:
    """Write columns of a locked hold, and return the hold."""
    tx.update(holds, organization_id=organization_id, id=hold.id, **changed)
    return hold._replace(**changed)


def take_over(tx: Tx, organization_id: str, hold_id: str, booking_id: str, *, at: int) -> None:
    """End a locked hold, whose seats the booking has from now on."""
    tx.update(holds, organization_id=organization_id, id=hold_id, booking_id=booking_id, ended_at=at)


# The holds that a batch of bookings takes over -------------------------------------------------------------------


_OF_LOCKED_KEYS = (
    select(holds.c.organization_id, *_COLUMNS)
    .where(has_key(holds, LOCKED_KEYS))
    .order_by(holds.c.organization_id, holds.c.id)
)
"""The holds of the requests whose idempotency key this transaction has locked, as their departures are."""
_LOCK_MANY = Statement(_OF_LOCKED_KEYS.with_for_update(key_share=True, of=holds))
_TRY_LOCK_MANY = Statement(_OF_LOCKED_KEYS.with_for_update(key_share=True, of=holds, skip_locked=True))


def locks_query(keys: Iterable[tuple[HoldKey, str]], *, blocking: bool) -> Query[dict[HoldKey, HoldRow]]:
    """Return the query that locks holds by (their ids, name of the idempotency lock), in sorted order.

    Args:
        blocking: wait for holds that another transaction has locked. They are left out otherwise.
    """
    rows = as_rows(("organization_id", "id", "lock"), ((*key, name) for key, name in keys))
    return Query(_LOCK_MANY if blocking else _TRY_LOCK_MANY, {"wanted": rows}, _by_key)


def _by_key(rows: Iterable[Row]) -> dict[HoldKey, HoldRow]:
    return {(str(row[0]), str(row[1])): HoldRow._make(row[1:]) for row in rows}


_BY_OTHERS = Statement(
    select(SEATS_HELD).where(
        holds.c.organization_id == OWNER,
        holds.c.departure_id == bindparam("departure_id", type_=Id),
        hold_is_live(_AT),
        ~in_rows(holds.c.id, "own", "id"),
    )
)


def seats_held_by_others(tx: Tx, organization_id: str, departure_id: str, *, own_ids: Iterable[str], at: int) -> int:
    """Return the seats of a departure that live holds other than `own_ids` keep at an instant."""
    (row,) = tx.all(_BY_OTHERS, organization_id=organization_id, departure_id=departure_id, own=as_ids(own_ids), at=at)
    return int(row[0])


# The bound ---------------------------------------------------------------------------------------------------------

_COUNT_LIVE = Statement(
    select(func.count())
    .select_from(holds)
    .where(
        holds.c.organization_id == OWNER,
        # Found by their creation, in the index for the purge of old holds: each hold of the API is younger.
        holds.c.created_at > _AT - bindparam("length", type_=BigInteger),
        hold_is_live(_AT),
    )
)


def count_live(tx: Tx, organization_id: str, at: int) -> int:
    """Count the live holds of an organization that are no older than a hold of the API can be."""
    (row,) = tx.all(_COUNT_LIVE, organization_id=organization_id, at=at, length=HOLD_S_MAX * 1_000_000)
    return int(row[0])
