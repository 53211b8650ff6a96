"""The feed of events: list and get.

An event carries the whole resource, so reading it needs the resource's read scope (API v1 section 4). Scopes are
checked before the other parameters (decision R1).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypedDict

import orjson

from booking_core.base import cursors
from booking_core.base.context import Caller
from booking_core.base.cursors import Binding
from booking_core.base.errors import InsufficientScope, NotFound
from booking_core.db.engine import Tx
from booking_core.db.paging import PageRequest
from booking_core.models.events import FAMILIES, READ_SCOPE, EventType, ResourceType
from booking_core.models.limits import EVENT_TYPES_PER_FILTER
from booking_core.models.reasons import Fault
from booking_core.records.events import store
from booking_core.records.events.store import EventRow

_BY_TOKEN: dict[str, frozenset[EventType]] = {kind.value: frozenset({kind}) for kind in EventType} | FAMILIES
"""The event types of each token of the `type` parameter: one type, or all types of a prefix such as `booking.*`."""


class FeedPage(TypedDict):
    """A page of the feed, ready for JSON. The events are JSON already."""

    data: list[orjson.Fragment]
    has_more: bool
    next_cursor: str | None
    resume_cursor: str


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    *,
    types: Sequence[str] = (),
    resource_type: ResourceType | None = None,
    resource_id: str | None = None,
    created_since: int | None = None,
    created_until: int | None = None,
) -> FeedPage:
    """Return a page of the feed in the order of sequences, which is the order of commits (decisions L5 to L7).

    A cursor holds a sequence. It survives the purge of its event, and then continues at the oldest event kept.
    `next_cursor` is null on the last page. `resume_cursor` continues after the last event of this page in the same
    order, or on an empty page where that page began; so a follower in ascending order passes it again and again, and
    misses no event.

    Args:
        types: event types, or prefixes such as `booking.*`, as `split_types` returns them.
        created_since: the first instant of the period.
        created_until: the first instant after the period.

    Raises:
        InsufficientScope: the key lacks the scope of a named type, or can read no type.
        Malformed: a cursor of another list.
    """
    chosen = _choose(caller, types, resource_type)
    filters = {
        "types": tuple(sorted(set(types))) or None,
        "resource_type": resource_type.value if resource_type else None,
        "resource_id": resource_id,
        "created_since": created_since,
        "created_until": created_until,
    }
    applied = tuple((name, value) for name, value in filters.items() if value is not None)
    binding = Binding(caller.organization.id, "events", page.order, applied)
    cursor = page.starting_after
    after = (
        store.BEFORE_ALL[page.order] if cursor is None else cursors.decode_sequence(caller.secret_keys, binding, cursor)
    )
    if not chosen:
        return _feed_page(caller, binding, page, [], after)
    rows = store.find(
        tx,
        caller.organization.id,
        page.order,
        page.limit + 1,
        types=() if len(chosen) == len(EventType) else tuple(sorted(kind.value for kind in chosen)),
        after=after,
        resource_id=resource_id,
        created_since=created_since,
        created_until=created_until,
    )
    return _feed_page(caller, binding, page, rows, after)


def _feed_page(caller: Caller, binding: Binding, page: PageRequest, rows: Sequence[EventRow], after: int) -> FeedPage:
    """Return the page of the rows that were found, which are one more than its limit when another page follows."""
    page_rows, has_more = rows[: page.limit], len(rows) > page.limit
    resume = cursors.encode_sequence(caller.secret_keys, binding, page_rows[-1].sequence if page_rows else after)
    return {
        "data": [_show(row) for row in page_rows],
        "has_more": has_more,
        "next_cursor": resume if has_more else None,
        "resume_cursor": resume,
    }


def get(tx: Tx, caller: Caller, event_id: str) -> orjson.Fragment:
    """Return one event, as JSON.

    Raises:
        InsufficientScope: the key may not read the event's resource, or no event at all.
        NotFound: the organization has no such event, or it was purged.
    """
    _readable(caller.key.scopes)
    row = store.get(tx, caller.organization.id, event_id)
    if row is None:
        raise NotFound
    _check_readable(row.resource_type, caller.key.scopes)
    return _show(row)


# Scopes and types -----------------------------------------------------------------------------------------------


def split_types(text: str) -> tuple[str, ...]:
    """Split the text of the `type` parameter into event types and prefixes (decision L6).

    Raises:
        Fault: an unknown type, or too many.
    """
    words = tuple(text.split(","))
    if len(words) > EVENT_TYPES_PER_FILTER:
        raise Fault("too_long", f"names more than {EVENT_TYPES_PER_FILTER} types")
    if any(word not in _BY_TOKEN for word in words):
        raise Fault("unknown_value", "is not an event type, nor a prefix such as booking.*")
    return words


def check_named(caller: Caller, types: Iterable[str], resource_type: str | None) -> None:
    """Refuse event types and a kind of resource without their read scopes. Unknown ones pass.

    Raises:
        InsufficientScope: the first scope that is missing.
    """
    for kind in (kind for word in types for kind in _BY_TOKEN.get(word, ())):
        _check_readable(kind.resource_type, caller.key.scopes)
    if resource_type is not None and resource_type in READ_SCOPE:
        _check_readable(resource_type, caller.key.scopes)


def _check_readable(resource_type: str, scopes: Collection[str]) -> None:
    """Refuse an event about a resource without its read scope."""
    scope = READ_SCOPE[ResourceType(resource_type)]
    if scope not in scopes:
        raise InsufficientScope(scope)


def _readable(scopes: Collection[str]) -> frozenset[EventType]:
    """Return the event types that the scopes allow to read.

    Raises:
        InsufficientScope: the scopes allow no type.
    """
    types = frozenset(kind for kind in EventType if READ_SCOPE[kind.resource_type] in scopes)
    if not types:
        raise InsufficientScope(READ_SCOPE[ResourceType.BOOKING])
    return types


def _choose(caller: Caller, types: Sequence[str], resource_type: ResourceType | None) -> frozenset[EventType]:
    """Return the types to read: the named types, or without names all readable types.

    Raises:
        InsufficientScope: the scope of a named type is missing, or no type can be read.
    """
    check_named(caller, types, resource_type)
    chosen = _readable(caller.key.scopes)
    if types:
        chosen &= frozenset[EventType]().union(*(_BY_TOKEN[word] for word in types))
    if resource_type:
        chosen = frozenset(kind for kind in chosen if kind.resource_type is resource_type)
    return chosen


def _show(row: EventRow) -> orjson.Fragment:
    """Return the stored envelope with its resource, as JSON, without parsing the envelope."""
    resource_id = "null" if row.resource_id is None else f'"{row.resource_id}"'
    return orjson.Fragment(f'{row.body[:-1]},"resource_type":"{row.resource_type}","resource_id":{resource_id}}}')
