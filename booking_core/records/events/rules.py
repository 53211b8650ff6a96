"""Rules of events: former values; of the feed: readable types, filters and presentation. No storage, no clock.

An event carries the whole resource, so that reading it needs the resource's read scope (API v1 section 4). Scopes are
checked before the other parameters (decision R1).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from booking_core.base.errors import InsufficientScope, Malformed
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
"""The event types of each token of the `type` parameter: one type, or all types of a prefix such as `booking.*`."""


ONCE = frozenset(
    {
        EventType.BOOKING_CREATED,
        EventType.BOOKING_CONFIRMED,
        EventType.BOOKING_CANCELLED,
        EventType.CUSTOMER_CREATED,
        EventType.GIFT_CARD_ISSUED,
    }
)
"""The types that a resource has at most once. Their occurrence is 0, so that a unique index refuses another."""

_NO_CHANGES = frozenset({"updated_at", "manage_url"})
"""Fields that are never in `changes`: every change has the first, and no event holds the second."""


def former_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a resource that differ, each with its whole value before the change.

    A field that the resource did not have before has null.
    """
    names = (name for name in after if name not in _NO_CHANGES)
    return {name: before.get(name) for name in names if before.get(name) != after[name]}


class EventRow(NamedTuple):
    """The columns of an event in the feed."""

    sequence: int
    body: str
    resource_type: str
    resource_id: str | None


def check_readable(resource_type: str, scopes: Collection[str]) -> None:
    """Refuse an event about a resource without its read scope."""
    scope = READ_SCOPE[ResourceType(resource_type)]
    if scope not in scopes:
        raise InsufficientScope(scope)


def readable(scopes: Collection[str]) -> frozenset[EventType]:
    """Return the event types that the scopes allow to read.

    Raises:
        InsufficientScope: the scopes allow no type.
    """
    types = frozenset(kind for kind in EventType if READ_SCOPE[kind.resource_type] in scopes)
    if not types:
        raise InsufficientScope(READ_SCOPE[ResourceType.BOOKING])
    return types


def choose(scopes: Collection[str], tokens: Sequence[str], resource_type: ResourceType | None) -> frozenset[EventType]:
    """Return the types to read: the named types, or without names all readable types (decision L6).

    Raises:
        InsufficientScope: the scope of a named type is missing, or no type can be read.
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
    """Return the stored envelope with its resource, as JSON, without parsing the envelope."""
    resource_id = "null" if row.resource_id is None else f'"{row.resource_id}"'
    return orjson.Fragment(f'{row.body[:-1]},"resource_type":"{row.resource_type}","resource_id":{resource_id}}}')
