"""What of the feed a key may read and what it asks for, and how an event is shown: decided without storage.

An event carries the whole resource, so that reading it needs the resource's read scope (API v1 section 4). Scopes are
judged before the rest of the query (decision R1).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import orjson

from booking_core.errors import InsufficientScope, Malformed
from booking_core.models.events import READ_SCOPE, EventType, ResourceType
from booking_core.models.limits import EVENT_TYPES_PER_FILTER

_WILDCARD = ".*"
_BY_TOKEN: dict[str, frozenset[EventType]] = {
    **{kind.value: frozenset({kind}) for kind in EventType},
    **{
        f"{resource}{_WILDCARD}": frozenset(kind for kind in EventType if kind.startswith(f"{resource}."))
        for resource in ResourceType
    },
}
"""What each token of the `type` parameter names: one type, or those that a prefix such as `booking.*` covers."""


class EventRow(NamedTuple):
    """What the feed reads of an event."""

    sequence: int
    body: str
    resource_type: str
    resource_id: str | None


def check_readable(resource_type: str, scopes: Collection[str]) -> None:
    """Refuses an event about something that the scopes do not let read."""
    scope = READ_SCOPE[ResourceType(resource_type)]
    if scope not in scopes:
        raise InsufficientScope(scope)


def readable(scopes: Collection[str]) -> frozenset[EventType]:
    """The types that the scopes let read.

    Raises:
        InsufficientScope: there is none.
    """
    types = frozenset(kind for kind in EventType if READ_SCOPE[kind.resource_type] in scopes)
    if not types:
        raise InsufficientScope(READ_SCOPE[ResourceType.BOOKING])
    return types


def choose(scopes: Collection[str], tokens: Sequence[str], resource_type: ResourceType | None) -> frozenset[EventType]:
    """The types to read: by name, or without a name all that may be read (decision L6).

    Raises:
        InsufficientScope: something was named without its scope, or nothing can be read at all.
        Malformed: an unknown type, or too many.
    """
    for named in [*_resource_types(tokens), *([resource_type] if resource_type else [])]:
        check_readable(named, scopes)
    chosen = readable(scopes)
    if tokens:
        chosen &= _types(tokens)
    if resource_type:
        chosen = frozenset(kind for kind in chosen if kind.resource_type is resource_type)
    return chosen


def _resource_types(tokens: Iterable[str]) -> list[ResourceType]:
    return [kind.resource_type for token in tokens for kind in _BY_TOKEN.get(token, ())]


def _types(tokens: Sequence[str]) -> frozenset[EventType]:
    if len(tokens) > EVENT_TYPES_PER_FILTER:
        raise Malformed.at("type", f"names more than {EVENT_TYPES_PER_FILTER} types", "too_many")
    if any(token not in _BY_TOKEN for token in tokens):
        raise Malformed.at("type", "is not an event type, nor a prefix such as booking.*", "unknown_type")
    return frozenset[EventType]().union(*(_BY_TOKEN[token] for token in tokens))


def show(row: EventRow) -> orjson.Fragment:
    """The stored envelope and what it is about, as JSON; the envelope is not parsed for it."""
    resource_id = "null" if row.resource_id is None else f'"{row.resource_id}"'
    return orjson.Fragment(f'{row.body[:-1]},"resource_type":"{row.resource_type}","resource_id":{resource_id}}}')
