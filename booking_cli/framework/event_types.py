"""The event types (API v1 section 6), prefixes of them such as `booking.*`, and a sample event of each type."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from booking_cli.framework import openapi_parts

TYPES = tuple(openapi_parts.load()["events"])
SUBSCRIBABLE = tuple(name for name in TYPES if name != "ping")
PREFIXES = tuple(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in SUBSCRIBABLE))
WORDS = (*TYPES, *PREFIXES)
"""The candidates of completion."""
_UUID = re.compile(r"(?<=\")[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=\")")
_TIMESTAMP = re.compile(r"(?<=\")\d{4}-\d\d-\d\dT[^\"]*(?=\")")
"""In JSON, whole strings each."""


def matching(word: str) -> tuple[str, ...]:
    """Return the known types that a type or a prefix matches."""
    if word == "*":
        return SUBSCRIBABLE
    if word.endswith(".*"):
        return tuple(name for name in SUBSCRIBABLE if name.startswith(word[:-1]))
    return (word,) if word in TYPES else ()


def expanded(words: Iterable[str] | None) -> list[str]:
    """Return each type once, with prefixes replaced by their known types."""
    return list(dict.fromkeys(name for word in words or () for name in matching(word) or (word,)))


def feed_filter(words: Iterable[str] | None) -> tuple[str, ...]:
    """Return the types and prefixes to request from the event feed; nothing requests every type."""
    types = sorted(set(words or ()))
    return () if "*" in types else tuple(types)


def query(words: Iterable[str] | None) -> str | None:
    """Return the `type` parameter of the event feed."""
    return ",".join(feed_filter(words)) or None


def sample(kind: str, now: datetime, new_id: Callable[[], str]) -> dict[str, Any]:
    """Return the example of a type in the OpenAPI document, as an event of now.

    Args:
        now: an aware datetime. Every timestamp has its offset, and departures keep their time of day.
        new_id: makes an id for each id of the example; equal ones stay equal.

    Raises:
        KeyError: there is no such type.
    """
    example = openapi_parts.load()["events"][kind]
    published = datetime.fromisoformat(example["created_at"])
    ids: dict[str, str] = {}
    text = _UUID.sub(lambda match: ids.get(match[0]) or ids.setdefault(match[0], new_id()), json.dumps(example))
    event: dict[str, Any] = json.loads(_TIMESTAMP.sub(lambda match: _moved(match[0], published, now), text))
    return event


def _moved(text: str, published: datetime, now: datetime) -> str:
    """Return a timestamp of an example as if the event was published now."""
    moment = datetime.fromisoformat(text)
    days = timedelta(days=(now.date() - published.date()).days)
    if moment.tzinfo is None:  # a local time
        moved = moment + days
    elif moment > published:
        moved = moment.replace(tzinfo=now.tzinfo) + days
    else:
        moved = now - (published - moment)
    return moved.isoformat(timespec="seconds")
