"""SQL of API keys. Only the hash of a key is stored, never its plain text."""

from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import NamedTuple

import orjson
from sqlalchemy import BigInteger, ClauseElement, bindparam, func, literal_column, or_, select
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.base.clock import HOUR
from booking_core.base.context import ApiKey, Organization
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement, as_json, in_rows, now_us, rows_parameter
from booking_core.db.tables import Id
from booking_core.db.unit_of_work import Update

_KEYS = tables.api_keys
_ORGANIZATIONS = tables.organizations
_COLUMNS = tuple(_KEYS.c[field.name] for field in fields(ApiKey))
_WIDTH = len(_COLUMNS)
_REMEMBERED_MAX = 1024
"""Rows whose values are remembered: a key has the same ones for a minute, and is looked up for every request."""


class Found(NamedTuple):
    """A key that was looked up by its hash, and the instant of the look-up."""

    key_hash: str
    key: ApiKey
    organization: Organization
    at: int


@lru_cache(maxsize=256)
def _scopes(text: str) -> frozenset[str]:
    return frozenset(orjson.loads(text))


def _from_row(row: Row) -> ApiKey:
    return _of_columns(row[:_WIDTH])


@lru_cache(maxsize=_REMEMBERED_MAX)
def _of_columns(row: Row) -> ApiKey:
    return ApiKey(row[0], row[1], row[2], row[3], _scopes(row[4]), row[5], row[6], row[7], row[8])


def _by_hashes(dialect: Dialect) -> ClauseElement:
    """Return the only query without an organization: the key identifies it."""
    return (
        select(*_COLUMNS, *organizations.COLUMNS, _KEYS.c.key_hash, now_us(dialect).label("at"))
        .join_from(_KEYS, _ORGANIZATIONS, _ORGANIZATIONS.c.id == _KEYS.c.organization_id)
        .where(in_rows(dialect, _KEYS.c.key_hash, "wanted", "key_hash"))
    )


_BY_HASHES = Statement(_by_hashes)


def by_hashes(tx: Tx, hashes: Iterable[str]) -> list[Found]:
    """Return the keys of these hashes, in any order."""
    return _found(tx.all(_BY_HASHES, wanted=_wanted(hashes)))


def _wanted(hashes: Iterable[str]) -> str:
    return as_json({"key_hash": each} for each in hashes)


def _found(rows: Iterable[Row]) -> list[Found]:
    return [Found(row[-2], _from_row(row), organizations.from_row(row[_WIDTH:]), row[-1]) for row in rows]


# An operator names a key by its id alone. Locking the organization with it makes creations, rotations and changes of
# one organization's keys take turns, so that 20 active keys are 20; NO KEY UPDATE lets everything else go on that
# only refers to the organization. SQLite has one writer anyway.
_WITH_ORGANIZATION = select(*_COLUMNS, *organizations.COLUMNS).join_from(
    _KEYS, _ORGANIZATIONS, _ORGANIZATIONS.c.id == _KEYS.c.organization_id
)
_BY_ID = Statement(_WITH_ORGANIZATION.where(_KEYS.c.id == bindparam("id")))
_BY_ID_LOCKED = Statement(_WITH_ORGANIZATION.where(_KEYS.c.id == bindparam("id")).with_for_update(key_share=True))
_LOCK = Statement(
    select(_ORGANIZATIONS.c.id).where(_ORGANIZATIONS.c.id == bindparam("id")).with_for_update(key_share=True)
)
_OF_ORGANIZATION = Statement(
    select(*_COLUMNS)
    .where(_KEYS.c.organization_id == bindparam("organization_id"))
    .order_by(_KEYS.c.created_at, _KEYS.c.id)
)
_ACTIVE = Statement(
    select(func.count()).where(
        _KEYS.c.organization_id == bindparam("organization_id"),
        _KEYS.c.revoked_at.is_(None),
        or_(_KEYS.c.expires_at.is_(None), _KEYS.c.expires_at > bindparam("at", type_=BigInteger)),
    )
)
_REVOKE = Update("revoke", _KEYS, sets=("revoked_at",))
_EXPIRE = Update("expire", _KEYS, sets=("expires_at",))


def by_id(tx: Tx, key_id: str, *, lock: bool = False) -> tuple[ApiKey, Organization] | None:
    """Return the key of this id, of any organization."""
    row = tx.first(_BY_ID_LOCKED if lock else _BY_ID, id=key_id)
    return (_from_row(row), organizations.from_row(row[_WIDTH:])) if row else None


def of_organization(tx: Tx, organization_id: str) -> list[ApiKey]:
    """Return every key of the organization, oldest first."""
    return [_from_row(row) for row in tx.all(_OF_ORGANIZATION, organization_id=organization_id)]


def count_active(tx: Tx, organization_id: str, at: int) -> int:
    """Return the number of active keys, with a lock so that no other transaction adds one."""
    tx.first(_LOCK, id=organization_id)
    row = tx.first(_ACTIVE, organization_id=organization_id, at=at)
    assert row is not None
    return int(row[0])


def insert(tx: Tx, key: ApiKey, key_hash: str) -> None:
    columns = {field.name: getattr(key, field.name) for field in fields(ApiKey)}
    tx.insert(_KEYS, **columns | {"scopes": orjson.dumps(sorted(key.scopes)).decode(), "key_hash": key_hash})


def revoke(tx: Tx, key: ApiKey, at: int) -> None:
    tx.update(_REVOKE, organization_id=key.organization_id, id=key.id, revoked_at=at)


def expire(tx: Tx, key: ApiKey, at: int) -> None:
    tx.update(_EXPIRE, organization_id=key.organization_id, id=key.id, expires_at=at)


def _lock_due(dialect: Dialect) -> ClauseElement:
    """Lock the keys to update, and skip locked ones, which another transaction is just touching or revoking."""
    used = rows_parameter(dialect, "used", {"organization_id": Id, "id": Id, "at": BigInteger})
    last = _KEYS.c.last_used_at
    older = or_(last.is_(None), last < used.c.at, last > used.c.at + literal_column(str(HOUR)))
    return (
        select(_KEYS.c.organization_id, _KEYS.c.id, used.c.at)
        .join_from(_KEYS, used, (_KEYS.c.organization_id == used.c.organization_id) & (_KEYS.c.id == used.c.id))
        .where(older)
        .with_for_update(of=_KEYS, key_share=True, skip_locked=True)
    )


# Two statements: Citus takes no lock inside the source of an update.
_LOCK_DUE = Statement(_lock_due)
_TOUCH = Update("touch_key", _KEYS, sets=("last_used_at",))


def touch(tx: Tx, used: Iterable[tuple[str, str, int]]) -> None:
    """Move `last_used_at` forward to those instants, and back only where it lies more than an hour ahead, as a clock
    wrote it that was set back since. A key occurs once."""
    items = [{"organization_id": owner, "id": key_id, "at": at} for owner, key_id, at in used]
    for owner, key_id, at in tx.all(_LOCK_DUE, used=as_json(items)):
        tx.update(_TOUCH, organization_id=owner, id=key_id, last_used_at=at)
