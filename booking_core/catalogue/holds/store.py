"""The SQL of holds."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Text, and_, bindparam, func, select
from sqlalchemy.engine import Dialect

from booking_core.catalogue.departures import SEATS_HELD, hold_is_live
from booking_core.catalogue.holds.rules import Hold, HoldKey
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import Id, holds
from booking_core.db.unit_of_work import Update
from booking_core.models.limits import HOLD_S_MAX
from booking_core.records.idempotency import has_lock

TAKE_OVER = Update("take_over_hold", holds, sets=("ended_at", "booking_id"))
_COLUMNS = tuple(holds.c[name] for name in Hold._fields)
_AT = bindparam("at", type_=BigInteger)
_OWNER = bindparam("organization_id", type_=Id)
_ONE = select(*_COLUMNS).where(holds.c.organization_id == _OWNER, holds.c.id == bindparam("id", type_=Id))
_FIND = Statement(_ONE)
_LOCK = Statement(_ONE.with_for_update(key_share=True))


def find(tx: Tx, organization_id: str, hold_id: str) -> Hold | None:
    """Return a hold."""
    row = tx.first(_FIND, organization_id=organization_id, id=hold_id)
    return Hold._make(row) if row else None


def lock(tx: Tx, organization_id: str, hold_id: str) -> Hold | None:
    """Lock a hold until the transaction ends, before its departure, as everywhere."""
    row = tx.first(_LOCK, organization_id=organization_id, id=hold_id)
    return Hold._make(row) if row else None


# The holds that a batch of bookings takes over -------------------------------------------------------------------


_KEY: Mapping[str, Any] = {"organization_id": Id, "id": Id}


def _locks(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Lock the holds of the requests whose idempotency key this transaction has locked, as their departures are."""
    wanted = rows_parameter(dialect, "wanted", {**_KEY, "lock": Text}).c
    keys = select(wanted.organization_id, wanted.id).distinct()
    held = (keys.where(has_lock(wanted.lock)) if dialect.name == "postgresql" else keys).subquery("held")
    return (
        select(holds.c.organization_id, *_COLUMNS)
        .where(holds.c.organization_id == held.c.organization_id, holds.c.id == held.c.id)
        .order_by(holds.c.organization_id, holds.c.id)
        .with_for_update(key_share=True, of=holds, skip_locked=skip_locked)
    )


_LOCK_MANY = Statement(partial(_locks, skip_locked=False))
_TRY_LOCK_MANY = Statement(partial(_locks, skip_locked=True))


def locks_query(wanted: Iterable[tuple[HoldKey, str]], *, blocking: bool) -> Query[dict[HoldKey, Hold]]:
    """Return the query that locks holds by (their ids, name of the idempotency lock), in sorted order.

    Args:
        blocking: wait for holds that another transaction has locked. They are left out otherwise.
    """
    rows = as_json({"organization_id": key[0], "id": key[1], "lock": name} for key, name in wanted)
    return Query(_LOCK_MANY if blocking else _TRY_LOCK_MANY, {"wanted": rows}, _by_key)


def _by_key(found: Iterable[Row]) -> dict[HoldKey, Hold]:
    return {(str(row[0]), str(row[1])): Hold._make(row[1:]) for row in found}


def _existing(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", _KEY).c
    key = and_(holds.c.organization_id == wanted.organization_id, holds.c.id == wanted.id)
    return select(holds.c.organization_id, holds.c.id).join_from(wanted.id.table, holds, key)


_EXISTING = Statement(_existing)


def existing(tx: Tx, wanted: Iterable[HoldKey]) -> frozenset[HoldKey]:
    """Return those of the holds that exist, without a lock."""
    rows = as_json({"organization_id": key[0], "id": key[1]} for key in wanted)
    return frozenset((str(owner), str(hold_id)) for owner, hold_id in tx.all(_EXISTING, wanted=rows))


def _by_others(dialect: Dialect) -> Any:
    return select(SEATS_HELD).where(
        holds.c.organization_id == _OWNER,
        holds.c.departure_id == bindparam("departure_id", type_=Id),
        hold_is_live(_AT),
        ~in_rows(dialect, holds.c.id, "own", "id"),
    )


_BY_OTHERS = Statement(_by_others)


def seats_held_by_others(tx: Tx, organization_id: str, departure_id: str, *, own: Iterable[str], at: int) -> int:
    """Return the seats of a departure that live holds other than `own` keep at an instant."""
    rows = as_json({"id": each} for each in own)
    row = tx.first(_BY_OTHERS, organization_id=organization_id, departure_id=departure_id, own=rows, at=at)
    assert row is not None
    return int(row[0])


# The bound ---------------------------------------------------------------------------------------------------------

_COUNT_LIVE = Statement(
    select(func.count())
    .select_from(holds)
    .where(
        holds.c.organization_id == _OWNER,
        # Found by their creation, in the index by which old ones are purged: each hold of the API is younger.
        holds.c.created_at > _AT - bindparam("length", type_=BigInteger),
        hold_is_live(_AT),
    )
)


def count_live(tx: Tx, organization_id: str, at: int) -> int:
    """Count the live holds of an organization that are no older than a hold of the API can be."""
    row = tx.first(_COUNT_LIVE, organization_id=organization_id, at=at, length=HOLD_S_MAX * 1_000_000)
    assert row is not None
    return int(row[0])
