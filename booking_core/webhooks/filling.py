"""Makes deliveries of the next events of endpoints, a bounded number ahead of the attempts.

It is the first step of a claim, in its transaction. It locks cursors, and waits for none.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Integer, Select, bindparam, func, literal_column, or_, select

from booking_core.db.engine import Tx
from booking_core.db.statements import NOW, Statement, as_rows, columns_of, has_key, is_of, rows_parameter
from booking_core.db.tables import (
    Id,
    counters,
    deliveries,
    events,
    organizations,
    webhook_cursors,
    webhook_endpoints,
    webhook_subscriptions,
)
from booking_core.models.webhooks import EndpointStatus
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import Event

AHEAD = 256
"""With more first attempts that have not ended, no more events of an endpoint become deliveries."""
ENDPOINTS, WINDOW = 64, 32
"""In one turn: the endpoints, and the part of the log that is looked at for each."""
TURNS, ENOUGH = 50, 500
"""The most turns, and the number of deliveries after which no other follows: an endpoint of rare types passes long
parts of the log."""


class Follower(NamedTuple):
    """An endpoint with unserved events, in the order of the columns of FOLLOWERS."""

    organization_id: str
    endpoint_id: str
    served_sequence: int
    last_event_sequence: int
    at: int
    """The present instant of the organization."""

    def end(self, window: int) -> int:
        """Return the last sequence of the next part of the log."""
        return min(self.served_sequence + window, self.last_event_sequence)


def _followers() -> Any:
    """Select and lock the cursors of enabled endpoints with unserved events, in any order: each has its turn.

    A cursor that another worker has moved since the statement began is read as it is now.
    """
    cursor, last, endpoint, owner = webhook_cursors.c, counters.c, webhook_endpoints.c, organizations.c
    # It depends on the counters. So it is looked up only for an endpoint with unserved events.
    first_attempts: Select[Any] = select(literal_column("1")).where(
        deliveries.c.organization_id == last.organization_id,
        deliveries.c.endpoint_id == cursor.endpoint_id,
        deliveries.c.completed_at.is_(None),
        deliveries.c.attempt_count == literal_column("0"),
    )
    first_attempts = first_attempts.with_hint(deliveries, "INDEXED BY ix_deliveries_first_attempts", "sqlite")
    at = NOW + func.coalesce(owner.clock_offset, 0)
    return (
        select(*columns_of(Follower._fields, webhook_cursors, counters, at=at))
        .join(counters, last.organization_id == cursor.organization_id)
        .join(webhook_endpoints, has_key(webhook_endpoints, webhook_cursors, id="endpoint_id"))
        .join(organizations, owner.id == cursor.organization_id)
        .where(
            cursor.served_sequence < last.last_event_sequence,
            endpoint.status == EndpointStatus.ENABLED.value,
            ~first_attempts.offset(bindparam("ahead", type_=Integer)).correlate(webhook_cursors, counters).exists(),
        )
        .order_by(func.random())
        .limit(bindparam("endpoints", type_=Integer))
        .with_for_update(of=webhook_cursors, key_share=True, skip_locked=True)
    )


_PART: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "after": BigInteger, "until": BigInteger}


def _next_events() -> Any:
    """Select the events that endpoints subscribe to, of a part of the log for each."""
    part, period, event = rows_parameter("parts", _PART).c, webhook_subscriptions.c, events.c
    return (
        select(part.organization_id, part.endpoint_id, *columns_of(Event._fields, events))
        .where(
            is_of(period, part, endpoint_id="endpoint_id"),
            period.missed_at.is_(None),
            is_of(event, part),
            event.type == period.event_type,
            event.sequence > part.after,
            event.sequence <= part.until,
            event.sequence > period.from_sequence,
            or_(period.until_sequence.is_(None), event.sequence <= period.until_sequence),
            event.resource_id.is_distinct_from(part.endpoint_id),
        )
        .order_by(part.organization_id, part.endpoint_id, event.sequence)
    )


FOLLOWERS, NEXT_EVENTS = Statement(_followers()), Statement(_next_events())


def fill(tx: Tx, *, ahead: int = AHEAD, window: int = WINDOW) -> int:
    """Make deliveries of the next events of endpoints, move their cursors, and return how many.

    Args:
        ahead: with more first attempts that have not ended, an endpoint gets no more.
        window: the length of the part of the log that is looked at for each endpoint in a turn.
    """
    count = 0
    for _ in range(TURNS):
        followers = [Follower._make(row) for row in tx.all(FOLLOWERS, ahead=ahead, endpoints=ENDPOINTS)]
        if followers:
            count += _fill_window(tx, followers, window)
        if count >= ENOUGH or all(follower.end(window) == follower.last_event_sequence for follower in followers):
            break
    return count


def _fill_window(tx: Tx, followers: Sequence[Follower], window: int) -> int:
    """Make deliveries of the next part of the log of each endpoint, and return how many."""
    parts = as_rows(_PART, ((*follower[:3], follower.end(window)) for follower in followers))
    ats = {follower.organization_id: follower.at for follower in followers}
    rows = tx.all(NEXT_EVENTS, parts=parts)
    for organization_id, endpoint_id, *columns in rows:
        event = Event._make(columns)
        event = event._replace(created_at=min(event.created_at, ats[organization_id]))
        store.insert_delivery(tx, organization_id, rules.new_delivery(endpoint_id, event), event)
    for follower in followers:
        tx.update(
            webhook_cursors,
            organization_id=follower.organization_id,
            endpoint_id=follower.endpoint_id,
            served_sequence=follower.end(window),
        )
    return len(rows)
