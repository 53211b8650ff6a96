"""Functions and SQL of organizations. They are for the operator; permissions are not checked here."""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Boolean, Table, bindparam, or_, select

from booking_core.base import tokens
from booking_core.base.context import Actor, Installation, Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import ROW_ID, Statement
from booking_core.models.base import is_id
from booking_core.organizations import rules

_TABLE = tables.organizations

COLUMNS = tuple(_TABLE.c[field.name] for field in fields(Organization))
"""The columns of an organization. A row for `from_row` begins with them."""

_SWITCHES = tuple(index for index, column in enumerate(COLUMNS) if isinstance(column.type, Boolean))
"""SQLite returns these as 0 or 1."""

_REMEMBERED_MAX = 1024

_SELECT = select(*COLUMNS)
_IS_SLUG = _TABLE.c.slug == bindparam("slug")
_IS_ID = _TABLE.c.id == ROW_ID
_BY_SLUG = Statement(_SELECT.where(_IS_SLUG))
_BY_ID = Statement(_SELECT.where(_IS_ID))
_ALL = Statement(_SELECT.order_by(_TABLE.c.slug))
_IS_TAKEN = Statement(select(_TABLE.c.id).where(or_(_IS_SLUG, _IS_ID)))


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


def create(
    tx: Tx, *, slug: str, name: str, timezone: str, currency: str, now: int, is_sandbox: bool = False
) -> Organization:
    """Create an organization with its counters and the default settings of the schema.

    Args:
        is_sandbox: it is a sandbox, and stays one: no function changes that.

    Raises:
        Malformed: with each invalid field.
        Conflict: `slug_taken`.
    """
    new = rules.parsed(rules.NEW, {"slug": slug, "name": name, "timezone": timezone, "currency": currency})
    organization_id, default_currency = tokens.new_id(), new.pop("currency")
    if tx.first(_IS_TAKEN, slug=new["slug"], id=organization_id) is not None:
        raise Conflict("slug_taken", f"There is an organization {new['slug']} already.", "slug")
    tx.insert(
        _TABLE,
        id=organization_id,
        **new,
        default_currency=default_currency,
        created_at=now,
        updated_at=now,
        clock_offset=0 if is_sandbox else None,
    )
    tx.insert(tables.counters, organization_id=organization_id)
    return get(tx, slug=new["slug"])


def get(tx: Tx, *, slug: str) -> Organization:
    """Return the organization of a slug.

    Raises:
        NotFound: there is none in this cell.
    """
    row = tx.first(_BY_SLUG, slug=slug)
    if row is None:
        raise NotFound.of("organization", slug)
    return from_row(row)


def by_id(tx: Tx, organization_id: str) -> Organization:
    """Return the organization of an id.

    Raises:
        NotFound: there is none in this cell.
    """
    row = tx.first(_BY_ID, id=organization_id)
    if row is None:
        raise NotFound.of("organization", organization_id)
    return from_row(row)


@lru_cache
def _owners_of_row(table: Table) -> Statement:
    has_row = (
        select(table.c.id)
        .where(table.c.organization_id == _TABLE.c.id, table.c.id == bindparam("id"))
        .correlate(_TABLE)
    )
    return Statement(_SELECT.where(has_row.exists()).order_by(_TABLE.c.slug))


def owners(tx: Tx, table: Table, row_id: str) -> list[Organization]:
    """Return the organizations that have a row of the table with that id; none for a text that is no id.

    Costs one look-up for each organization, because no index begins with the id of a row.
    """
    rows = tx.all(_owners_of_row(table), id=row_id.lower()) if is_id(row_id) else ()
    return [from_row(row) for row in rows]


def owner(tx: Tx, table: Table, row_id: str, noun: str) -> Organization:
    """Return the organization that a row belongs to, for operator commands that take only its id.

    Args:
        noun: names a row of the table in the refusal.

    Raises:
        NotFound: there is no such row.
    """
    organizations = owners(tx, table, row_id)
    if not organizations:
        raise NotFound.of(noun, row_id)
    return organizations[0]


def find(tx: Tx) -> list[Organization]:
    """Return every organization of this cell, ordered by slug."""
    return [from_row(row) for row in tx.all(_ALL)]


def set_settings(tx: Tx, organization: Organization, changes: Mapping[str, str], *, now: int) -> Organization:
    """Change settings, by the keys of `booking orgs set` with values as text, and return the organization.

    Only the given columns are written, so two settings that are changed at once are both kept.

    Raises:
        Malformed: with each key that is unknown or has an invalid value; then no setting is changed.
    """
    values = rules.parsed(rules.SETTINGS, changes)
    if values:
        tx.update(_TABLE, id=organization.id, **values, updated_at=now)
    return get(tx, slug=organization.slug)


# Clocks ----------------------------------------------------------------------------------------------------------


def now(tx: Tx, organization: Organization) -> int:
    """Return the present instant of the organization, and let the statements that follow take it for the present.

    It is the database's clock. The clock of a sandbox may be ahead of it (decisions/0016).
    """
    tx.instant = None
    at = tx.now()
    follow(tx, organization, at)
    return organization.instant(at)


def follow(tx: Tx, organization: Organization, real: int) -> None:
    """Let the statements that follow take the organization's instant for the present, where its clock is ahead.

    Args:
        real: the present instant by the database's clock.
    """
    tx.instant = organization.instant(real) if organization.clock_offset else None


def actor_of(tx: Tx, installation: Installation, organization_id: str) -> Actor:
    """Return the service itself as the actor of an organization, at the organization's present instant.

    Raises:
        NotFound: there is none in this cell.
    """
    organization = by_id(tx, organization_id)
    return Actor(installation=installation, organization=organization, at=now(tx, organization))


# Presentation ----------------------------------------------------------------------------------------------------


def present(organization: Organization) -> dict[str, Any]:
    """Return the API's Organization, ready for JSON."""
    return {name: getattr(organization, name) for name in ("id", "slug", "name", "timezone", "default_currency")}


def present_settings(organization: Organization) -> dict[str, Any]:
    """Return every setting by its `booking orgs set` key, ready for JSON."""
    return {key: getattr(organization, key) for key in rules.SETTINGS}
