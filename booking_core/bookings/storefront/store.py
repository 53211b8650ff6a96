"""The SQL of holds."""

from sqlalchemy import BigInteger, Integer, bindparam, delete, select, tuple_

from booking_core import organizations
from booking_core.base.clock import SECOND
from booking_core.base.context import Organization
from booking_core.bookings.storefront.rules import HOLD_S_MAX, HoldRow
from booking_core.db import tables
from booking_core.db.due import DueRows
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, materialized
from booking_core.db.tables import Id, holds
from booking_core.db.unit_of_work import Update

END = Update("end_hold", holds, sets=("ended_at",))

_LOCK = Statement(
    select(*(holds.c[name] for name in HoldRow._fields))
    .where(holds.c.organization_id == bindparam("organization_id", type_=Id), holds.c.id == bindparam("id", type_=Id))
    .with_for_update(key_share=True)
)
_HAS_IT = (
    select(holds.c.id)
    .where(holds.c.organization_id == tables.organizations.c.id, holds.c.id == bindparam("id", type_=Id))
    .correlate(tables.organizations)
)
_OWNER = Statement(select(*organizations.COLUMNS).where(_HAS_IT.exists()))


def lock(tx: Tx, organization_id: str, hold_id: str) -> HoldRow | None:
    """Lock the hold until the transaction ends, before its departure, as everywhere."""
    row = tx.first(_LOCK, organization_id=organization_id, id=hold_id)
    return HoldRow._make(row) if row else None


def organization_of_hold(tx: Tx, hold_id: str) -> Organization | None:
    """Return the organization of a hold."""
    row = tx.first(_OWNER, id=hold_id)
    return organizations.from_row(row) if row else None


OLD = DueRows(holds, holds.c.created_at, holds.c.id, lambda _: (), ahead=-HOLD_S_MAX * SECOND)
"""The holds, due when a hold of the longest duration would have expired: a purge looks for an earlier instant."""
_OLD = (
    select(holds.c.organization_id, holds.c.id)
    .where(
        holds.c.organization_id == bindparam("organization_id", type_=Id),
        holds.c.created_at < bindparam("created_before", type_=BigInteger),
        holds.c.expires_at < bindparam("before", type_=BigInteger),
    )
    .order_by(holds.c.created_at)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)
_KEY = tuple_(holds.c.organization_id, holds.c.id)
_PURGE = Statement(lambda dialect: delete(holds).where(_KEY.in_(materialized(dialect, _OLD))))


def purge(tx: Tx, organization_id: str, before: int, limit: int) -> int:
    created_before = before - HOLD_S_MAX * SECOND
    return tx.run(_PURGE, organization_id=organization_id, before=before, created_before=created_before, limit=limit)
