"""The feed of events: list, get and purge."""

from collections.abc import Sequence
from typing import TypedDict

import orjson

from booking_core.base import cursors
from booking_core.base.context import Caller
from booking_core.base.cursors import Binding
from booking_core.base.errors import NotFound
from booking_core.db.due import Owner
from booking_core.db.engine import Tx
from booking_core.db.paging import PageRequest
from booking_core.models.events import EventType, ResourceType
from booking_core.records.events import rules, store
from booking_core.records.events.rules import EventRow
from booking_core.records.events.store import FeedQuery


class FeedPage(TypedDict):
    """A page of the feed, ready for JSON. The events are JSON already."""

    data: list[orjson.Fragment]
    has_more: bool
    next_cursor: str | None
    resume_cursor: str | None


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
    misses no event. It is null only on an empty page without a cursor.

    Args:
        types: event types, or prefixes such as `booking.*`.
        created_since: the first instant of the period.
        created_until: the first instant after the period.

    Raises:
        InsufficientScope: the key lacks the scope of a named type, or can read no type.
        Malformed: an unknown type, too many types, or a cursor of another list.
    """
    chosen = rules.choose(caller.key.scopes, types, resource_type)
    filters = {
        "types": tuple(sorted(set(types))) or None,
        "resource_type": resource_type.value if resource_type else None,
        "resource_id": resource_id,
        "created_since": created_since,
        "created_until": created_until,
    }
    applied = tuple((name, value) for name, value in filters.items() if value is not None)
    binding = Binding(caller.organization.id, "events", page.order, applied)
    query = FeedQuery(
        page.order,
        () if len(chosen) == len(EventType) else tuple(sorted(kind.value for kind in chosen)),
        _sequence(caller, binding, page.starting_after),
        resource_id,
        created_since,
        created_until,
    )
    found = store.find(tx, caller.organization.id, query, page.limit + 1) if chosen else []
    return _feed_page(caller, binding, page, found)


def _sequence(caller: Caller, binding: Binding, cursor: str | None) -> int | None:
    return None if cursor is None else cursors.decode_sequence(caller.secret_keys, binding, cursor)


def _feed_page(caller: Caller, binding: Binding, page: PageRequest, found: Sequence[EventRow]) -> FeedPage:
    """Return the page of the rows that were found, which are one more than its limit when another page follows."""
    shown, has_more = found[: page.limit], len(found) > page.limit
    resume = cursors.encode_sequence(caller.secret_keys, binding, shown[-1].sequence) if shown else page.starting_after
    return {
        "data": [rules.show(row) for row in shown],
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
    rules.readable(caller.key.scopes)
    row = store.get(tx, caller.organization.id, event_id)
    if row is None:
        raise NotFound
    rules.check_readable(row.resource_type, caller.key.scopes)
    return rules.show(row)


def purge(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's events from before that instant, the oldest first, and return how many.

    The event of a queued delivery, and all events after it, are kept. A cursor before the oldest event continues there.
    """
    return store.purge(tx, organization_id, before, limit)


def organizations_before(tx: Tx, before: int, *, after: str, limit: int) -> list[Owner]:
    """Return organizations behind `after` by id; those count as due whose oldest event is from before that instant."""
    return store.organizations_before(tx, before, after, limit)
