"""Organizations that are copied into this cell and do not live in it yet (decision 0060).

From before its first copied row until it lives here, an organization has rows in `cell_arrivals`. Whatever finds work
by itself, such as a job, a purge or a list of all organizations, leaves it out by this one rule: the organization still
lives in another cell, whose worker does the work.
"""

from typing import Any

from sqlalchemy import ColumnElement, bindparam, exists, literal_column, not_, select

from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, cell_arrivals
from booking_core.tokens import new_id

_OWNER = cell_arrivals.c.organization_id
NO_ROWS = "[]"
_MARK = "organizations"
"""The mark is an arrival of no rows."""
_ANY: ColumnElement[int] = literal_column("1")
_ARRIVING = Statement(select(_OWNER).distinct())
_DELETE = Statement(cell_arrivals.delete().where(bindparam("o", type_=Id) == _OWNER))


def has_arrived(organization_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that an organization lives in this cell: one look-up in a table that is mostly empty."""
    return not_(exists(select(_ANY).select_from(cell_arrivals).where(organization_id == _OWNER)))


def find_arriving(tx: Tx) -> set[str]:
    """Return the organizations that do not live here yet."""
    return {str(row[0]) for row in tx.all(_ARRIVING)}


def announce(tx: Tx, organization_id: str) -> None:
    """Mark an organization as one that does not live here yet, and forget what was put down for its arrival."""
    tx.run(_DELETE, o=organization_id)
    tx.insert(cell_arrivals, organization_id=organization_id, id=new_id(), table_name=_MARK, rows=NO_ROWS)


def settle(tx: Tx, organization_id: str) -> None:
    """Let an organization live here, or forget that it was on its way."""
    tx.run(_DELETE, o=organization_id)
