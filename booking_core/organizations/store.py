"""Where organizations are remembered."""

from dataclasses import fields

from sqlalchemy import Boolean, bindparam, select

from booking_core.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.db.unit_of_work import Update

_TABLE = tables.organizations

COLUMNS = tuple(_TABLE.c[field.name] for field in fields(Organization))
"""What a row must begin with to become an organization: for a select of one's own, or joined behind another table."""

_SWITCHES = tuple(index for index, column in enumerate(COLUMNS) if isinstance(column.type, Boolean))
"""SQLite gives these as 0 or 1."""

_SELECT = select(*COLUMNS)
_BY_SLUG = Statement(_SELECT.where(_TABLE.c.slug == bindparam("slug")))
_ALL = Statement(_SELECT.order_by(_TABLE.c.slug))


def from_row(row: Row) -> Organization:
    """The organization of a row that begins with COLUMNS."""
    values = list(row[: len(COLUMNS)])
    for index in _SWITCHES:
        values[index] = bool(values[index])
    return Organization(*values)


def by_slug(tx: Tx, slug: str) -> Organization | None:
    """The organization of that slug, if there is one."""
    row = tx.first(_BY_SLUG, slug=slug)
    return from_row(row) if row else None


def every(tx: Tx) -> list[Organization]:
    """All of them, by slug."""
    return [from_row(row) for row in tx.all(_ALL)]


def insert(tx: Tx, **columns: object) -> None:
    """The organization and its counters. A setting that is not named takes the schema's default."""
    tx.insert(_TABLE, **columns)
    tx.insert(tables.counters, organization_id=columns["id"])


def update(tx: Tx, organization_id: str, columns: dict[str, object]) -> None:
    """Only the columns named, so that two settings changed at once are both kept."""
    change = Update("settings", _TABLE, sets=tuple(sorted(columns)), keys=("id",))
    tx.update(change, id=organization_id, **columns)
