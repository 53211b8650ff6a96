"""The event types (API v1 section 6), and what a prefix such as `booking.*` stands for.

They are written down once more because the enum of the wire models takes pydantic to load; a test compares the two.
"""

from collections.abc import Iterable

TYPES = (
    "booking.created",
    "booking.confirmed",
    "booking.cancelled",
    "booking.rescheduled",
    "customer.created",
    "customer.updated",
    "gift_card.issued",
    "gift_card.redeemed",
    "webhook.auto_disabled",
    "webhook.enabled",
    "webhook.secret_rotated",
    "webhook.delivery_dead",
    "ping",
)
SUBSCRIBABLE = tuple(each for each in TYPES if each != "ping")
PREFIXES = tuple(dict.fromkeys(f"{each.partition('.')[0]}.*" for each in SUBSCRIBABLE))
WORDS = (*TYPES, *PREFIXES)
"""What completion offers."""


def matching(word: str) -> tuple[str, ...]:
    """Return the known types that a type or a prefix names; nothing for one that is not known."""
    if word == "*":
        return SUBSCRIBABLE
    if word.endswith(".*"):
        return tuple(each for each in SUBSCRIBABLE if each.startswith(word[:-1]))
    return (word,) if word in TYPES else ()


def expanded(words: Iterable[str] | None) -> list[str]:
    """Return types for a service that takes no prefix: each prefix as its known types, and nothing twice."""
    return list(dict.fromkeys(each for word in words or () for each in matching(word) or (word,)))


def asked(words: Iterable[str] | None) -> tuple[str, ...]:
    """Return what to ask the event feed for, which knows prefixes itself; nothing asks for every type."""
    chosen = sorted(set(words or ()))
    return () if "*" in chosen else tuple(chosen)


def query(words: Iterable[str] | None) -> str | None:
    """Return the same as the `type` parameter of the feed."""
    return ",".join(asked(words)) or None
