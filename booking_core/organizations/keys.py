"""API keys: authentication, scopes, and the lifecycle of a key (decisions K1 to K4).

Only the hash of a key is stored, never its plain text. In the functions `now` is the present instant by the database's
clock.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from hmac import compare_digest
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, bindparam, func, literal_column, or_, select

from booking_core import organizations
from booking_core.base import tokens
from booking_core.base.clock import DAY, HOUR, MINUTE, Zone, from_datetime
from booking_core.base.context import Caller, CallerKey, Installation, Organization
from booking_core.base.errors import (
    ApiKeyExpired,
    ApiKeyInvalid,
    ApiKeyRevoked,
    BookingError,
    Conflict,
    Malformed,
    NotFound,
)
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import NOW, OWNER, ROW_ID, Statement, as_json, has_key, in_rows, rows_parameter
from booking_core.db.tables import Id
from booking_core.due_work.rows import DueRows, Processed
from booking_core.models.base import is_id, single_line
from booking_core.models.limits import (
    ACTIVE_API_KEYS_PER_ORGANIZATION,
    API_KEY_PREFIX,
    TEST_API_KEY_PREFIX,
    TEXT_LENGTH_MAX,
)
from booking_core.models.reasons import Fault
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.records import outbox
from booking_core.records.outbox import OutboxKind

LATEST_END = from_datetime(datetime(9999, 1, 1, tzinfo=UTC))
WARNED_AHEAD = 7 * DAY

_KEY_BEGIN = re.compile(rf"{API_KEY_PREFIX}\w+", re.ASCII)
_KEYS = tables.api_keys
_ORGANIZATIONS = tables.organizations
_COLUMNS = tuple(_KEYS.c[field.name] for field in fields(CallerKey))
_WIDTH = len(_COLUMNS)
_REMEMBERED_MAX = 1024
"""Rows whose values are remembered: a key has the same ones for a minute, and is looked up for every request."""
_WITH_ORGANIZATION = select(*_COLUMNS, *organizations.COLUMNS).join_from(
    _KEYS, _ORGANIZATIONS, _ORGANIZATIONS.c.id == _KEYS.c.organization_id
)


def _from_row(row: Row) -> CallerKey:
    """Return the key of a row that begins with its columns."""
    return _of_columns(row[:_WIDTH])


@lru_cache(maxsize=_REMEMBERED_MAX)
def _of_columns(row: Row) -> CallerKey:
    return CallerKey(row[0], row[1], row[2], row[3], frozenset(orjson.loads(row[4])), row[5], row[6], row[7], row[8])


# Authentication --------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """A key that was looked up by its hash, and the instant of the look-up."""

    key: CallerKey
    organization: Organization
    key_hash: str
    at: int


# The only query without an organization: the key identifies it.
_BY_HASHES = Statement(
    _WITH_ORGANIZATION.add_columns(_KEYS.c.key_hash, NOW.label("at")).where(
        in_rows(_KEYS.c.key_hash, "wanted", "key_hash")
    )
)


def identify_many(tx: Tx, texts: Sequence[str], installation: Installation) -> list[Caller | BookingError]:
    """Return the caller of each key text, or its error: one result for each, in the same order, by one statement.

    A text without the format of a key is never sent to the database.
    """
    hashes = {text: tokens.hash_api_key(text) for text in texts if tokens.is_api_key(text)}
    parameter = as_json([{"key_hash": key_hash} for key_hash in hashes.values()])
    rows = tx.all(_BY_HASHES, wanted=parameter) if hashes else []
    keys_by_hash = {row[-2]: _Found(_from_row(row), organizations.from_row(row[_WIDTH:]), *row[-2:]) for row in rows}
    return [_caller(hashes.get(text), keys_by_hash, installation) for text in texts]


def _caller(key_hash: str | None, keys_by_hash: dict[str, _Found], installation: Installation) -> Caller | BookingError:
    match = keys_by_hash.get(key_hash) if key_hash else None
    # The hashes are compared in constant time (decision K1).
    if key_hash is None or match is None or not compare_digest(match.key_hash, key_hash):
        return ApiKeyInvalid()
    if match.key.prefix.startswith(TEST_API_KEY_PREFIX) != match.organization.is_sandbox:
        return ApiKeyInvalid()
    at = match.organization.instant(match.at)
    return _refusal(match.key, at) or Caller(
        installation=installation, organization=match.organization, at=at, key=match.key
    )


def _refusal(key: CallerKey, at: int) -> BookingError | None:
    """Return the error for a key that is not valid at this time; revoked comes before expired (decision K2)."""
    if key.revoked_at is not None:
        return ApiKeyRevoked()
    if key.expires_at is not None and key.expires_at <= at:
        return ApiKeyExpired()
    return None


def identify(tx: Tx, text: str, installation: Installation) -> Caller:
    """Return the caller of a key text.

    Raises:
        ApiKeyInvalid, ApiKeyRevoked, ApiKeyExpired: the key is not valid.
    """
    (result,) = identify_many(tx, [text], installation)
    if isinstance(result, BookingError):
        raise result
    return result


_use = rows_parameter("used", {"organization_id": Id, "id": Id, "at": BigInteger})
_last = _KEYS.c.last_used_at
# Two statements: Citus takes no lock inside the source of an update.
_LOCK_USED = Statement(
    select(_KEYS.c.organization_id, _KEYS.c.id, _use.c.at)
    .join_from(_KEYS, _use, has_key(_KEYS, _use))
    .where(or_(_last.is_(None), _last < _use.c.at, _last > _use.c.at + literal_column(str(HOUR))))
    .with_for_update(of=_KEYS, key_share=True, skip_locked=True)
)
"""Locks the keys to update, and skips locked ones, which another transaction is just touching or revoking."""


def touch(tx: Tx, uses: Iterable[tuple[str, str, int]]) -> None:
    """Record the last use of keys: (organization id, key id, timestamp), to the minute (decision K4).

    `last_used_at` moves forward. It moves back only from an instant of more than an hour ahead, which a wrong clock has
    written.
    """
    latest: dict[tuple[str, str], int] = {}
    for owner, key_id, at in uses:
        latest[owner, key_id] = max(at - at % MINUTE, latest.get((owner, key_id), 0))
    items = [{"organization_id": owner, "id": key_id, "at": at} for (owner, key_id), at in sorted(latest.items())]
    for owner, key_id, at in tx.all(_LOCK_USED, used=as_json(items)) if items else []:
        tx.update(_KEYS, organization_id=owner, id=key_id, last_used_at=at)


# Creating --------------------------------------------------------------------------------------------------------

# Creations, rotations and changes of one organization's keys lock the organization and take turns: there are never more
# than 20 active keys. NO KEY UPDATE lets everything else go on that only refers to the organization. SQLite has one
# writer.
_LOCK_ORGANIZATION = Statement(
    select(_ORGANIZATIONS.c.id).where(_ORGANIZATIONS.c.id == OWNER).with_for_update(key_share=True)
)
_COUNT_ACTIVE = Statement(
    select(func.count()).where(
        _KEYS.c.organization_id == OWNER,
        _KEYS.c.revoked_at.is_(None),
        or_(_KEYS.c.expires_at.is_(None), _KEYS.c.expires_at > bindparam("at")),
    )
)


def create(
    tx: Tx,
    organization: Organization,
    *,
    name: str,
    scopes: Sequence[str] = (),
    expires_at: int | None = None,
    cell: str = "",
    now: int,
) -> tuple[CallerKey, str]:
    """Create a key, and return it with its plain text, which is not stored. No scopes mean every read scope.

    Args:
        cell: the cell of the organization, which the key names; empty for the first one.

    Raises:
        Malformed: a bad name, an unknown scope, an expiry that is not in the future.
        Conflict: `key_limit_reached`.
    """
    at = organization.instant(now)
    name, granted = _checked_name(name), checked_scopes(scopes)
    if expires_at is not None and expires_at <= at:
        raise Malformed.at("expires_at", "must lie ahead", "in_the_past")
    ends_at = None if expires_at is None else _in_the_calendar(expires_at)
    return _add(tx, organization, name, granted, ends_at, at, cell)


def _checked_name(text: str) -> str:
    """Validate a name, and strip blanks around it."""
    try:
        text = single_line(text).strip()
    except Fault as error:
        raise Malformed.at("name", str(error), error.reason) from None
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        message = f"must have 1 to {TEXT_LENGTH_MAX} characters"
        raise Malformed.at("name", message, "too_long" if text else "too_short")
    return text


def checked_scopes(scopes: Sequence[str]) -> frozenset[str]:
    """Validate the scopes. No scopes mean every read scope (API v1 section 5)."""
    unknown = sorted(set(scopes) - set(Scope))
    if unknown:
        message = f"{', '.join(map(repr, unknown))} is not one of {', '.join(Scope)}"
        raise Malformed.at("scopes", message, "unknown_value")
    return frozenset(map(str, scopes or READ_SCOPES))


def _in_the_calendar(at: int) -> int:
    """Validate that the expiry can be shown in every zone."""
    if at >= LATEST_END:
        message = "must lie before the year 9999; without an end a key never expires"
        raise Malformed.at("expires_at", message, "out_of_range")
    return at


def _add(
    tx: Tx, organization: Organization, name: str, scopes: frozenset[str], expires_at: int | None, at: int, cell: str
) -> tuple[CallerKey, str]:
    """Insert a key, whose text says whether its organization is a sandbox."""
    tx.first(_LOCK_ORGANIZATION, organization_id=organization.id)
    require_room(tx.all(_COUNT_ACTIVE, organization_id=organization.id, at=at)[0][0])
    text = tokens.new_api_key(cell, is_test=organization.is_sandbox)
    key = CallerKey(
        tokens.new_id(), organization.id, name, tokens.api_key_prefix(text), scopes, at, expires_at, None, None
    )
    columns = {field.name: getattr(key, field.name) for field in fields(CallerKey)}
    columns |= {"scopes": _stored_scopes(scopes), "key_hash": tokens.hash_api_key(text)}
    tx.insert(_KEYS, **columns)
    return key, text


def _stored_scopes(scopes: frozenset[str]) -> str:
    return orjson.dumps(sorted(scopes)).decode()


def require_room(active: int) -> None:
    """Check the limit of active keys (API v1 section 8)."""
    limit = ACTIVE_API_KEYS_PER_ORGANIZATION
    if active >= limit:
        message = f"The organization holds {limit} active keys, which is the limit; revoke one."
        raise Conflict("key_limit_reached", message)


# Reading and changing --------------------------------------------------------------------------------------------

_OF_ORGANIZATION = Statement(
    select(*_COLUMNS).where(_KEYS.c.organization_id == OWNER).order_by(_KEYS.c.created_at, _KEYS.c.id)
)
_BY_ID = _WITH_ORGANIZATION.where(_KEYS.c.id == ROW_ID)
_GET, _LOCK = Statement(_BY_ID), Statement(_BY_ID.with_for_update(key_share=True))
_IDS_OF_PREFIX = Statement(select(_KEYS.c.id).where(_KEYS.c.prefix == bindparam("prefix")).limit(2))


def find(tx: Tx, organization: Organization) -> list[CallerKey]:
    """Return every key of the organization, oldest first, also revoked and expired ones."""
    return [_from_row(row) for row in tx.all(_OF_ORGANIZATION, organization_id=organization.id)]


def get(tx: Tx, key_id: str, *, lock: bool = False) -> tuple[CallerKey, Organization]:
    """Return a key and its organization. Only operator commands may use it, since it reads all organizations.

    Raises:
        NotFound: there is none.
    """
    row = tx.first(_LOCK if lock else _GET, id=key_id.lower()) if is_id(key_id) else None
    if row is None:
        raise NotFound.of("key", key_id)
    return _from_row(row), organizations.from_row(row[_WIDTH:])


def resolve_id(tx: Tx, reference: str) -> str:
    """Return the id of a key that is named by its id or by its prefix, which lists show. Of the text of a whole key
    only its prefix is used, and errors do not repeat it.

    Raises:
        NotFound: no key has the prefix.
        Conflict: several keys have it, which chance may cause.
    """
    if not _KEY_BEGIN.fullmatch(reference):
        return reference
    prefix = tokens.api_key_prefix(reference)
    rows = tx.all(_IDS_OF_PREFIX, prefix=prefix)
    if not rows:
        raise NotFound.of("key", prefix)
    if len(rows) > 1:
        raise Conflict("ambiguous_prefix", f"Several keys begin with {prefix}; name one by its id.")
    return str(rows[0][0])


def update(
    tx: Tx, key_id: str, *, name: str | None = None, scopes: Sequence[str] | None = None, now: int
) -> tuple[CallerKey, Organization]:
    """Change the name or the scopes of a key; None leaves one unchanged. The scopes hold from its next request on.

    Raises:
        Malformed: a bad name, an unknown scope.
        Conflict: the key is revoked or expired.
    """
    key, organization, _ = _lock_active(tx, key_id, now)
    changed = replace(
        key,
        name=key.name if name is None else _checked_name(name),
        scopes=key.scopes if scopes is None else checked_scopes(scopes),
    )
    columns = {"name": changed.name, "scopes": _stored_scopes(changed.scopes)}
    tx.update(_KEYS, organization_id=key.organization_id, id=key.id, **columns)
    return changed, organization


def revoke(tx: Tx, key_id: str, *, now: int) -> tuple[CallerKey, Organization]:
    """Revoke a key. A key that was revoked before keeps its revoked_at."""
    key, organization = get(tx, key_id, lock=True)
    if key.revoked_at is None:
        key = replace(key, revoked_at=organization.instant(now))
        tx.update(_KEYS, organization_id=key.organization_id, id=key.id, revoked_at=key.revoked_at)
    return key, organization


def rotate(tx: Tx, key_id: str, *, overlap: int, cell: str = "", now: int) -> tuple[CallerKey, str, Organization]:
    """Create a successor with the same name, scopes and lifetime, and return it with its plain text. The key itself
    expires after the overlap (microseconds), or at its own expiry if that is earlier (decision K3).

    With an overlap both count as active. Without one only the successor does: an organization with 20 active keys can
    rotate each of them.

    Raises:
        Conflict: `key_limit_reached`, or the key is revoked or expired.
    """
    key, organization, at = _lock_active(tx, key_id, now)
    _expire(tx, key, at + overlap if key.expires_at is None else min(key.expires_at, at + overlap))
    lifetime = None if key.expires_at is None else key.expires_at - key.created_at
    ends_at = None if lifetime is None else min(at + lifetime, LATEST_END - 1)
    successor, text = _add(tx, organization, key.name, key.scopes, ends_at, at, cell)
    return successor, text, organization


def expire(tx: Tx, key_id: str, *, at: int, now: int) -> tuple[CallerKey, Organization]:
    """Set the expiry of a key, earlier or later than before. A time in the past means now: the key was valid until now.

    Raises:
        Malformed: the expiry is beyond the calendar.
        Conflict: the key is revoked or expired already; it is not brought back.
    """
    key, organization, now = _lock_active(tx, key_id, now)
    ends_at = _in_the_calendar(max(at, now))
    _expire(tx, key, ends_at)
    return replace(key, expires_at=ends_at), organization


def _lock_active(tx: Tx, key_id: str, now: int) -> tuple[CallerKey, Organization, int]:
    """Lock an active key, and return it with its organization and the organization's present instant."""
    key, organization = get(tx, key_id, lock=True)
    at = organization.instant(now)
    refused = _refusal(key, at)
    if isinstance(refused, ApiKeyRevoked):
        raise Conflict("key_revoked", "The key was revoked; create a new one.")
    if refused is not None:
        raise Conflict("key_expired", "The key has expired; create a new one.")
    return key, organization, at


def _expire(tx: Tx, key: CallerKey, at: int) -> None:
    tx.update(_KEYS, organization_id=key.organization_id, id=key.id, expires_at=at)


def status(key: CallerKey, at: int) -> str:
    """Return active, revoked or expired, at this time."""
    if _refusal(key, at) is None:
        return "active"
    return "expired" if key.revoked_at is None else "revoked"


def present(key: CallerKey, zone: Zone) -> dict[str, Any]:
    """Return the API's ApiKey, ready for JSON."""
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": sorted(key.scopes),
        "created_at": zone.iso(key.created_at),
        "expires_at": zone.iso_or_none(key.expires_at),
        "last_used_at": zone.iso_or_none(key.last_used_at),
    }


# Warnings --------------------------------------------------------------------------------------------------------

_UNWARNED = (_KEYS.c.expires_at.is_not(None), _KEYS.c.revoked_at.is_(None), _KEYS.c.warned_at.is_(None))


_UNEXPIRED = (_KEYS.c.expires_at > select(NOW).scalar_subquery(),)
EXPIRING = DueRows(_KEYS, _KEYS.c.expires_at, _KEYS.c.id, _UNWARNED, ahead=WARNED_AHEAD, bounds=_UNEXPIRED)
_LOCK_EXPIRING = EXPIRING.locking(
    select(_KEYS.c.id, _KEYS.c.name, _KEYS.c.prefix, _KEYS.c.expires_at, NOW)
    .join_from(_KEYS, _ORGANIZATIONS, _ORGANIZATIONS.c.id == _KEYS.c.organization_id)
    .where(_ORGANIZATIONS.c.notify_staff)
)


def warn_expiring(tx: Tx, organization_id: str, key_ids: Sequence[str]) -> Processed[None]:
    """Enqueue a mail to staff for each of the keys that expires within a week, if the organization enabled such mails.

    Each key gets one mail, also if its expiry is changed later or the mail fails.
    """
    rows = EXPIRING.lock(tx, _LOCK_EXPIRING, organization_id, key_ids)
    for key_id, name, prefix, expires_at, at in rows:
        payload = {"name": name, "prefix": prefix, "expires_at": expires_at}
        outbox.enqueue(tx, organization_id, OutboxKind.STAFF_KEY_EXPIRING_MAIL, key_id, at=at, payload=payload)
        tx.update(_KEYS, organization_id=organization_id, id=key_id, warned_at=at)
    return Processed([row[0] for row in rows])
