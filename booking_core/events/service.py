"""The verbs of the feed."""

from collections.abc import Sequence
from typing import TypedDict

import orjson

from booking_core import cursors
from booking_core.context import Caller
from booking_core.cursors import Binding
from booking_core.db.engine import Tx
from booking_core.db.paging import PageRequest
from booking_core.errors import NotFound
from booking_core.events import rules, store
from booking_core.events.store import FeedQuery
from booking_core.models.events import EventType, ResourceType


class FeedPage(TypedDict):
    """One page of the feed, ready for JSON. The events are JSON already."""

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
    """A page of the feed in the order of its sequence, which is the order of commits (decisions L5 to L7).

    A cursor holds a sequence: it survives the purge of what it stood at, and then continues at the oldest event kept.
    `next_cursor` ends with the last page. `resume_cursor` continues behind the last event of this page in the same
    order, or on an empty page where that page began; so a follower in ascending order passes it again and again, and
    misses nothing. It is null only on an empty page that began at the beginning.

    Args:
        types: what `type` named: types, or prefixes such as `booking.*`.
        created_since: the first instant that counts.
        created_until: the first instant that counts no more.

    Raises:
        InsufficientScope: something was named whose scope the key lacks, or it can read nothing at all.
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
    after = None
    if page.starting_after is not None:
        after = cursors.decode_sequence(caller.secret_keys, binding, page.starting_after)
    query = FeedQuery(
        page.order,
        () if len(chosen) == len(EventType) else tuple(sorted(kind.value for kind in chosen)),
        after,
        resource_id,
        created_since,
        created_until,
    )
    found = store.find(tx, caller.organization.id, query, page.limit + 1) if chosen else []
    shown, has_more = found[: page.limit], len(found) > page.limit
    resume = cursors.encode_sequence(caller.secret_keys, binding, shown[-1].sequence) if shown else page.starting_after
    return {
        "data": [rules.show(row) for row in shown],
        "has_more": has_more,
        "next_cursor": resume if has_more else None,
        "resume_cursor": resume,
    }


def get(tx: Tx, caller: Caller, event_id: str) -> orjson.Fragment:
    """One event, as JSON.

    Raises:
        InsufficientScope: the key may not read what the event is about, or no event at all.
        NotFound: the organization has no such event, or no longer.
    """
    rules.readable(caller.key.scopes)
    row = store.get(tx, caller.organization.id, event_id)
    if row is None:
        raise NotFound
    rules.check_readable(row.resource_type, caller.key.scopes)
    return rules.show(row)


def purge(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Forgets an organization's events from before that instant, the oldest first, and gives how many.

    One that a delivery still waits for is kept, and what came after it. A cursor into what is gone continues at the
    oldest kept.
    """
    return store.purge(tx, organization_id, before, limit)


def organizations_before(tx: Tx, before: int) -> list[str]:
    """The ids of the organizations whose oldest event is from before that instant."""
    return store.organizations_before(tx, before)
