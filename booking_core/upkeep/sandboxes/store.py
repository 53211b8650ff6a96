"""The SQL of sandboxes."""

from typing import NamedTuple

from sqlalchemy import BigInteger, bindparam, func, literal_column, select

from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, now_us
from booking_core.db.tables import Id, organizations, retention_clock
from booking_core.db.unit_of_work import Update
from booking_core.models.limits import SANDBOX_DUE_MAX

_SQL = sql_files.load(__name__)
_COUNT = _SQL.statement("count")
_DUE = {
    "payments": _SQL.statement("due_payments"),
    "refunds": _SQL.statement("due_refunds"),
    "mails": _SQL.statement("due_mails"),
    "deliveries": _SQL.statement("due_deliveries"),
}
_LOCK = Statement(
    select(organizations.c.clock_offset)
    .where(organizations.c.id == bindparam("id", type_=Id), organizations.c.clock_offset.is_not(None))
    .with_for_update(key_share=True)
)
_ADVANCE = Update("advance_clock", organizations, sets=("clock_offset",), keys=("id",))


_TOTAL = select(func.coalesce(func.sum(organizations.c.clock_offset), literal_column("0"), type_=BigInteger)).where(
    organizations.c.clock_offset.is_not(None)
)
_CLOCKS = Statement(
    lambda dialect: select(now_us(dialect), select(retention_clock.c.at).scalar_subquery(), _TOTAL.scalar_subquery())
)


class Clocks(NamedTuple):
    """The clocks of an installation, read at one moment."""

    now: int
    """The database's."""
    retention: int | None
    """The retention clock; None before the first purge."""
    total_offset: int
    """The offsets of all sandboxes together, which grows with every advance."""


def read_clocks(tx: Tx) -> Clocks:
    """Return the clocks of the installation."""
    row = tx.first(_CLOCKS)
    assert row is not None
    return Clocks(int(row[0]), None if row[1] is None else int(row[1]), int(row[2]))


def lock_offset(tx: Tx, organization_id: str) -> int | None:
    """Lock the clock of a sandbox and return its offset; None for a live organization."""
    row = tx.first(_LOCK, id=organization_id)
    return None if row is None else int(row[0])


def set_offset(tx: Tx, organization_id: str, offset: int) -> None:
    """Write the offset of a clock that is locked."""
    tx.update(_ADVANCE, id=organization_id, clock_offset=offset)


def count_due(tx: Tx, organization_id: str, at: int) -> dict[str, int]:
    """Count the payments, refunds, mails and deliveries that are due or in flight, each up to the limit."""
    parameters = {"organization_id": organization_id, "at": at, "limit": SANDBOX_DUE_MAX}
    return {name: int(tx.all(statement, **parameters)[0][0]) for name, statement in _DUE.items()}


def count(tx: Tx) -> int:
    """Return the number of sandboxes."""
    return int(tx.all(_COUNT)[0][0])
