"""SQL of organizations."""

from dataclasses import fields
from functools import lru_cache

from sqlalchemy import Boolean, bindparam, or_, select

from booking_core.base.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.db.unit_of_work import Update

_TABLE = tables.organizations

COLUMNS = tuple(_TABLE.c[field.name] for field in fields(Organization))
"""The columns of an organization, with which a row for `from_row` begins."""

_SWITCHES = tuple(index for index, column in enumerate(COLUMNS) if isinstance(column.type, Boolean))
"""SQLite returns these as 0 or 1."""

_REMEMBERED_MAX = 1024

_SELECT = select(*COLUMNS)
_BY_SLUG = Statement(_SELECT.where(_TABLE.c.slug == bindparam("slug")))
_BY_ID = Statement(_SELECT.where(_TABLE.c.id == bindparam("id", type_=tables.Id)))
_ALL = Statement(_SELECT.order_by(_TABLE.c.slug))
_IS_TAKEN = Statement(
    select(_TABLE.c.id).where(or_(_TABLE.c.slug == bindparam("slug"), _TABLE.c.id == bindparam("id", type_=tables.Id)))
)


def from_row(row: Row) -> Organization:
    """Return the organization of a row that begins with COLUMNS."""
    return _of_columns(row[: len(COLUMNS)])


# The row of an organization comes with the key of every request, and seldom differs from the last time.
@lru_cache(maxsize=_REMEMBERED_MAX)
def _of_columns(columns: Row) -> Organization:
    values = list(columns)
    for index in _SWITCHES:
        values[index] = bool(values[index])
    return Organization(*values)


def by_slug(tx: Tx, slug: str) -> Organization | None:
    """Return the organization of a slug, if it lives in this cell."""
    row = tx.first(_BY_SLUG, slug=slug)
    return from_row(row) if row else None


def by_id(tx: Tx, organization_id: str) -> Organization | None:
    """Return the organization of an id, or None."""
    row = tx.first(_BY_ID, id=organization_id)
    return from_row(row) if row else None


def every(tx: Tx) -> list[Organization]:
    """Return every organization that lives in this cell, ordered by slug."""
    return [from_row(row) for row in tx.all(_ALL)]


def is_taken(tx: Tx, *, slug: str, organization_id: str) -> bool:
    """Return whether an organization has this slug or id, also one that does not live in this cell yet."""
    return tx.first(_IS_TAKEN, slug=slug, id=organization_id) is not None


def insert(tx: Tx, **columns: object) -> None:
    """Insert the organization and its counters. Other settings take the schema's default."""
    tx.insert(_TABLE, **columns)
    tx.insert(tables.counters, organization_id=columns["id"])


def update(tx: Tx, organization_id: str, columns: dict[str, object]) -> None:
    """Write only the given columns, so that two settings that are changed concurrently are both kept."""
    change = Update("settings", _TABLE, sets=tuple(sorted(columns)), keys=("id",))
    tx.update(change, id=organization_id, **columns)
