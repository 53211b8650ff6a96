"""Rules of API keys: format, validity, names, scopes and expiry."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hmac import compare_digest

from booking_core.base.clock import MINUTE, from_datetime
from booking_core.base.context import ApiKey
from booking_core.base.errors import ApiKeyExpired, ApiKeyRevoked, BookingError, Conflict, Malformed
from booking_core.models.base import single_line
from booking_core.models.limits import (
    ACTIVE_API_KEYS_PER_ORGANIZATION,
    API_KEY_LENGTH,
    API_KEY_PREFIX,
    TEST_API_KEY_PREFIX,
    TEXT_LENGTH_MAX,
)
from booking_core.models.scopes import READ_SCOPES, Scope

LATEST_END = from_datetime(datetime(9999, 1, 1, tzinfo=UTC))

_KEY = re.compile(
    rf"{API_KEY_PREFIX}[0-9A-Za-z]{{{API_KEY_LENGTH - len(API_KEY_PREFIX)}}}"
    rf"|{TEST_API_KEY_PREFIX}[0-9A-Za-z]{{{API_KEY_LENGTH - len(TEST_API_KEY_PREFIX)}}}",
    re.ASCII,
)


def is_key_text(text: str) -> bool:
    """Return True if the text has the format of a key. Other texts are never sent to the database."""
    return _KEY.fullmatch(text) is not None


def is_of_sandbox(prefix: str) -> bool:
    """Return True if a key, or the part of it that is shown, is that of a sandbox."""
    return prefix.startswith(TEST_API_KEY_PREFIX)


def same_hash(one: str, other: str) -> bool:
    """Compare two hashes in constant time (decision K1)."""
    return compare_digest(one, other)


def refusal(key: ApiKey, at: int) -> BookingError | None:
    """Return the error for a key that is not valid at this time; revoked comes before expired (decision K2)."""
    if key.revoked_at is not None:
        return ApiKeyRevoked()
    if key.expires_at is not None and key.expires_at <= at:
        return ApiKeyExpired()
    return None


def name(text: str) -> str:
    """Validate a name, and strip blanks around it."""
    try:
        text = single_line(text).strip()
    except ValueError as error:
        raise Malformed.at("name", str(error)) from None
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        raise Malformed.at("name", f"must have 1 to {TEXT_LENGTH_MAX} characters")
    return text


def scopes(named: Sequence[str]) -> frozenset[str]:
    """Validate the scopes. No scopes mean every read scope (API v1 section 5)."""
    unknown = sorted(set(named) - set(Scope))
    if unknown:
        raise Malformed.at(
            "scopes", f"{', '.join(map(repr, unknown))} is not one of {', '.join(Scope)}", "unknown_scope"
        )
    return frozenset(map(str, named or READ_SCOPES))


def future(expires_at: int | None, now: int) -> int | None:
    """Validate the expiry of a new key, which is in the future or None."""
    if expires_at is not None and expires_at <= now:
        raise Malformed.at("expires_at", "must lie ahead")
    return None if expires_at is None else _in_the_calendar(expires_at)


def end(at: int, now: int) -> int:
    """Validate a new expiry of a key. A time in the past becomes now, since the key was valid until now."""
    return _in_the_calendar(max(at, now))


def _in_the_calendar(at: int) -> int:
    """Validate that the expiry can be shown in every zone."""
    if at >= LATEST_END:
        raise Malformed.at("expires_at", "must lie before the year 9999; without an end a key never expires")
    return at


def room_for_one_more(active: int) -> None:
    """Check the limit of active keys (API v1 section 8)."""
    if active >= ACTIVE_API_KEYS_PER_ORGANIZATION:
        raise Conflict(
            "key_limit_reached",
            f"The organization holds {ACTIVE_API_KEYS_PER_ORGANIZATION} active keys, which is the limit; revoke one.",
        )


def live(key: ApiKey, now: int) -> ApiKey:
    """Return the key if it is active: a revoked or expired key is not reactivated."""
    if key.revoked_at is not None:
        raise Conflict("key_revoked", "The key was revoked; create a new one.")
    if key.expires_at is not None and key.expires_at <= now:
        raise Conflict("key_expired", "The key has expired; create a new one.")
    return key


def earlier(one: int | None, other: int) -> int:
    """Return the earlier of two expiries; None means never."""
    return other if one is None else min(one, other)


def successor_end(key: ApiKey, now: int) -> int | None:
    """Return the expiry of a successor, which has the lifetime of its predecessor."""
    return None if key.expires_at is None else min(now + (key.expires_at - key.created_at), LATEST_END - 1)


def latest_by_minute(used: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Return the latest use of each key, cut to the minute (decision K4)."""
    latest: dict[tuple[str, str], int] = {}
    for owner, key_id, at in used:
        latest[owner, key_id] = max(at - at % MINUTE, latest.get((owner, key_id), 0))
    return [(*key, at) for key, at in sorted(latest.items())]
