"""The event types (API v1 section 6), and prefixes of them such as `booking.*`.

The types are written here too, since the enum of the models imports pydantic; a test compares both.
"""

from collections.abc import Iterable

TYPES = (
    "booking.created",
    "booking.confirmed",
    "booking.cancelled",
    "booking.rescheduled",
    "booking.updated",
    "booking.refunded",
    "departure.updated",
    "customer.created",
    "customer.updated",
    "gift_card.issued",
    "gift_card.redeemed",
    "gift_card.restored",
    "webhook.failing",
    "webhook.auto_disabled",
    "webhook.enabled",
    "webhook.secret_rotated",
    "webhook.delivery_dead",
    "ping",
)
SUBSCRIBABLE = tuple(each for each in TYPES if each != "ping")
PREFIXES = tuple(dict.fromkeys(f"{each.partition('.')[0]}.*" for each in SUBSCRIBABLE))
WORDS = (*TYPES, *PREFIXES)
"""The candidates of completion."""


def matching(word: str) -> tuple[str, ...]:
    """Return the known types that a type or a prefix matches."""
    if word == "*":
        return SUBSCRIBABLE
    if word.endswith(".*"):
        return tuple(each for each in SUBSCRIBABLE if each.startswith(word[:-1]))
    return (word,) if word in TYPES else ()


def expanded(words: Iterable[str] | None) -> list[str]:
    """Return each type once, with prefixes replaced by their known types."""
    return list(dict.fromkeys(each for word in words or () for each in matching(word) or (word,)))


def feed_filter(words: Iterable[str] | None) -> tuple[str, ...]:
    """Return the types and prefixes to request from the event feed; nothing requests every type."""
    types = sorted(set(words or ()))
    return () if "*" in types else tuple(types)


def query(words: Iterable[str] | None) -> str | None:
    """Return the `type` parameter of the event feed."""
    return ",".join(feed_filter(words)) or None
