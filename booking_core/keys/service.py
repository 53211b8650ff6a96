"""The verbs of API keys: who is calling, and the life of a key from its creation to its end (decisions K1 to K4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from booking_core import tokens
from booking_core.clock import Zone
from booking_core.context import ApiKey, Caller, Installation, Organization
from booking_core.db.engine import Tx
from booking_core.errors import ApiKeyInvalid, BookingError, NotFound
from booking_core.keys import rules, store


def identify_many(tx: Tx, texts: Sequence[str], installation: Installation) -> list[Caller | BookingError]:
    """The caller of each key text, or why it is none: one result for each, in the order given, from one statement."""
    hashes = {text: tokens.hash_api_key(text) for text in texts if rules.is_key_text(text)}
    found = {each.key_hash: each for each in store.by_hashes(tx, hashes.values())} if hashes else {}
    return [_caller(hashes.get(text), found, installation) for text in texts]


def _caller(key_hash: str | None, found: dict[str, store.Found], installation: Installation) -> Caller | BookingError:
    match = found.get(key_hash) if key_hash else None
    if key_hash is None or match is None or not rules.same_hash(match.key_hash, key_hash):
        return ApiKeyInvalid()
    return rules.refusal(match.key, match.at) or Caller(
        installation=installation, organization=match.organization, at=match.at, key=match.key
    )


def identify(tx: Tx, text: str, installation: Installation) -> Caller:
    """The caller of one key text.

    Raises:
        ApiKeyInvalid, ApiKeyRevoked, ApiKeyExpired: it opens nothing.
    """
    (result,) = identify_many(tx, [text], installation)
    if isinstance(result, BookingError):
        raise result
    return result


def touch(tx: Tx, used: Sequence[tuple[str, str, int]]) -> None:
    """Records when keys were last used: (organization id, key id, instant), to the minute, never backwards."""
    if used:
        store.touch(tx, rules.latest_by_minute(used))


def create(
    tx: Tx,
    organization: Organization,
    *,
    name: str,
    scopes: Sequence[str] = (),
    expires_at: int | None = None,
    now: int,
) -> tuple[ApiKey, str]:
    """A new key and its plain text, which is nowhere else; with every read scope when none is named.

    Raises:
        Malformed: a bad name, an unknown scope, an end that does not lie ahead.
        Conflict: `key_limit_reached`.
    """
    name, granted, ends_at = rules.name(name), rules.scopes(scopes), rules.future(expires_at, now)
    return _add(tx, organization.id, name, granted, ends_at, now)


def _add(
    tx: Tx, organization_id: str, name: str, scopes: frozenset[str], expires_at: int | None, now: int
) -> tuple[ApiKey, str]:
    rules.room_for_one_more(store.count_active(tx, organization_id, now))
    text = tokens.new_api_key()
    prefix = tokens.api_key_prefix(text)
    key = ApiKey(tokens.new_id(), organization_id, name, prefix, scopes, now, expires_at, None, None)
    store.insert(tx, key, tokens.hash_api_key(text))
    return key, text


def find(tx: Tx, organization: Organization) -> list[ApiKey]:
    """Every key of the organization, the oldest first, revoked and expired ones too."""
    return store.of_organization(tx, organization.id)


def get(tx: Tx, key_id: str, *, lock: bool = False) -> tuple[ApiKey, Organization]:
    """The key of that id and whose it is. For the operator, who may see every organization's.

    Raises:
        NotFound: there is none.
    """
    found = store.by_id(tx, key_id.lower(), lock=lock) if rules.is_id(key_id) else None
    if found is None:
        raise NotFound(f"There is no key {key_id!r}.")
    return found


def revoke(tx: Tx, key_id: str, *, now: int) -> tuple[ApiKey, Organization]:
    """The key, revoked from now on; one that was revoked before keeps its instant."""
    key, organization = get(tx, key_id, lock=True)
    if key.revoked_at is None:
        store.revoke(tx, key, now)
        key = replace(key, revoked_at=now)
    return key, organization


def rotate(tx: Tx, key_id: str, *, overlap: int, now: int) -> tuple[ApiKey, str, Organization]:
    """A successor with the same name, scopes and length of life, and its plain text. The key itself ends after the
    overlap (microseconds), or when it would have anyway (decision K3).

    With an overlap both are active and both count; without one the key makes room for its successor, so that even an
    organization with 20 active keys can rotate each of them.

    Raises:
        Conflict: `key_limit_reached`, or the key is revoked or expired.
    """
    key, organization = get(tx, key_id, lock=True)
    rules.live(key, now)
    store.expire(tx, key, rules.earlier(key.expires_at, now + overlap))
    successor, text = _add(tx, organization.id, key.name, key.scopes, rules.successor_end(key, now), now)
    return successor, text, organization


def expire(tx: Tx, key_id: str, *, at: int, now: int) -> tuple[ApiKey, Organization]:
    """The key with its end set, sooner or later than before; an instant that is past ends it now.

    Raises:
        Malformed: the end lies beyond the calendar.
        Conflict: the key is revoked or expired already; it is not brought back.
    """
    key, organization = get(tx, key_id, lock=True)
    rules.live(key, now)
    ends_at = rules.end(at, now)
    store.expire(tx, key, ends_at)
    return replace(key, expires_at=ends_at), organization


def status(key: ApiKey, at: int) -> str:
    """active, revoked or expired, at that instant."""
    if rules.refusal(key, at) is None:
        return "active"
    return "expired" if key.revoked_at is None else "revoked"


def present(key: ApiKey, zone: Zone) -> dict[str, Any]:
    """The wire ApiKey, ready for JSON."""
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": sorted(key.scopes),
        "created_at": zone.iso(key.created_at),
        "expires_at": None if key.expires_at is None else zone.iso(key.expires_at),
        "last_used_at": None if key.last_used_at is None else zone.iso(key.last_used_at),
    }
