"""Functions of API keys: authentication and lifecycle (decisions K1 to K4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from booking_core.base import tokens
from booking_core.base.clock import Zone
from booking_core.base.context import ApiKey, Caller, Installation, Organization
from booking_core.base.errors import ApiKeyInvalid, BookingError, NotFound
from booking_core.db.engine import Tx
from booking_core.models.base import is_id
from booking_core.organizations.keys import rules, store


def identify_many(tx: Tx, texts: Sequence[str], installation: Installation) -> list[Caller | BookingError]:
    """Return the caller of each key text, or its error: one result for each, in the same order, by one statement."""
    hashes = {text: tokens.hash_api_key(text) for text in texts if rules.is_key_text(text)}
    found = {each.key_hash: each for each in store.by_hashes(tx, hashes.values())} if hashes else {}
    return [_caller(hashes.get(text), found, installation) for text in texts]


def _caller(key_hash: str | None, found: dict[str, store.Found], installation: Installation) -> Caller | BookingError:
    match = found.get(key_hash) if key_hash else None
    if key_hash is None or match is None or not rules.same_hash(match.key_hash, key_hash):
        return ApiKeyInvalid()
    if rules.is_of_sandbox(match.key.prefix) != match.organization.is_sandbox:
        return ApiKeyInvalid()
    at = match.organization.instant(match.at)
    return rules.refusal(match.key, at) or Caller(
        installation=installation, organization=match.organization, at=at, key=match.key
    )


def identify(tx: Tx, text: str, installation: Installation) -> Caller:
    """Return the caller of a key text.

    Raises:
        ApiKeyInvalid, ApiKeyRevoked, ApiKeyExpired: the key is not valid.
    """
    (result,) = identify_many(tx, [text], installation)
    if isinstance(result, BookingError):
        raise result
    return result


def touch(tx: Tx, used: Sequence[tuple[str, str, int]]) -> None:
    """Record the last use of keys: (organization id, key id, timestamp), to the minute, never backwards."""
    if used:
        store.touch(tx, rules.latest_by_minute(used))


def create(
    tx: Tx,
    organization: Organization,
    *,
    name: str,
    scopes: Sequence[str] = (),
    expires_at: int | None = None,
    cell: str = "",
    now: int,
) -> tuple[ApiKey, str]:
    """Create a key, and return it with its plain text, which is not stored. No scopes mean every read scope.

    Args:
        cell: the cell of the organization, which the key names; empty for the first one.
        now: the present instant by the database's clock, as for the functions below.

    Raises:
        Malformed: a bad name, an unknown scope, an expiry that is not in the future.
        Conflict: `key_limit_reached`.
    """
    at = organization.instant(now)
    name, granted, ends_at = rules.name(name), rules.scopes(scopes), rules.future(expires_at, at)
    return _add(tx, organization, name, granted, ends_at, at, cell)


def _add(
    tx: Tx, organization: Organization, name: str, scopes: frozenset[str], expires_at: int | None, now: int, cell: str
) -> tuple[ApiKey, str]:
    """Insert a key, whose text says whether its organization is a sandbox."""
    rules.room_for_one_more(store.count_active(tx, organization.id, now))
    text = tokens.new_api_key(cell, is_test=organization.is_sandbox)
    prefix = tokens.api_key_prefix(text)
    key = ApiKey(tokens.new_id(), organization.id, name, prefix, scopes, now, expires_at, None, None)
    store.insert(tx, key, tokens.hash_api_key(text))
    return key, text


def find(tx: Tx, organization: Organization) -> list[ApiKey]:
    """Return every key of the organization, oldest first, also revoked and expired ones."""
    return store.of_organization(tx, organization.id)


def get(tx: Tx, key_id: str, *, lock: bool = False) -> tuple[ApiKey, Organization]:
    """Return a key and its organization. Only operator commands may use it, since it reads all organizations.

    Raises:
        NotFound: there is none.
    """
    found = store.by_id(tx, key_id.lower(), lock=lock) if is_id(key_id) else None
    if found is None:
        raise NotFound(f"There is no key {key_id!r}.")
    return found


def revoke(tx: Tx, key_id: str, *, now: int) -> tuple[ApiKey, Organization]:
    """Revoke a key. A key that was revoked before keeps its revoked_at."""
    key, organization = get(tx, key_id, lock=True)
    if key.revoked_at is None:
        at = organization.instant(now)
        store.revoke(tx, key, at)
        key = replace(key, revoked_at=at)
    return key, organization


def rotate(tx: Tx, key_id: str, *, overlap: int, cell: str = "", now: int) -> tuple[ApiKey, str, Organization]:
    """Create a successor with the same name, scopes and lifetime, and return it with its plain text. The key itself
    expires after the overlap (microseconds), or at its own expiry if that is earlier (decision K3).

    With an overlap both count as active. Without one only the successor does, so that an organization with 20 active
    keys can rotate each of them.

    Raises:
        Conflict: `key_limit_reached`, or the key is revoked or expired.
    """
    key, organization = get(tx, key_id, lock=True)
    at = organization.instant(now)
    rules.live(key, at)
    store.expire(tx, key, rules.earlier(key.expires_at, at + overlap))
    successor, text = _add(tx, organization, key.name, key.scopes, rules.successor_end(key, at), at, cell)
    return successor, text, organization


def expire(tx: Tx, key_id: str, *, at: int, now: int) -> tuple[ApiKey, Organization]:
    """Set the expiry of a key, earlier or later than before. A time in the past means now.

    Raises:
        Malformed: the expiry is beyond the calendar.
        Conflict: the key is revoked or expired already; it is not brought back.
    """
    key, organization = get(tx, key_id, lock=True)
    now = organization.instant(now)
    rules.live(key, now)
    ends_at = rules.end(at, now)
    store.expire(tx, key, ends_at)
    return replace(key, expires_at=ends_at), organization


def status(key: ApiKey, at: int) -> str:
    """Return active, revoked or expired, at this time."""
    if rules.refusal(key, at) is None:
        return "active"
    return "expired" if key.revoked_at is None else "revoked"


def present(key: ApiKey, zone: Zone) -> dict[str, Any]:
    """Return the API's ApiKey, ready for JSON."""
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": sorted(key.scopes),
        "created_at": zone.iso(key.created_at),
        "expires_at": None if key.expires_at is None else zone.iso(key.expires_at),
        "last_used_at": None if key.last_used_at is None else zone.iso(key.last_used_at),
    }
