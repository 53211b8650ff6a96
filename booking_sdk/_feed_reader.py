"""Decides which page a follower of the event feed requests next, and which event it yields. It does no I/O."""

import base64
import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from booking_core.models.limits import PAGE_LIMIT_MAX
from booking_sdk._clock import ClientClock
from booking_sdk.errors import APIError, APIStatusError, EventsLost
from booking_sdk.models import AnyEvent
from booking_sdk.request import RequestSpec

_log = logging.getLogger("booking_sdk")

_CHECKPOINT_PREFIX = "at_"
_BACKOFF_S = 1.0
_BACKOFF_MAX_S = 60.0
_RETRY_AFTER_MAX_S = 3600.0
"""A longer Retry-After is cut to this."""

_RETENTION_MIN_S = 86_400.0
"""The shortest retention of events that a service can have."""


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """The position of a follower: before a page of the feed, and after one event of that page.

    A cursor is a position between pages and belongs to one `created_since`. A checkpoint therefore holds cursor,
    sequence and `since`, and can be taken after any event.
    """

    cursor: str | None = None
    sequence: int = 0
    since: str | None = None
    read_at: float = 0.0
    """The last time that the feed was read to its end, in unix seconds."""

    @classmethod
    def parse(cls, checkpoint: str, since: str | None = None) -> Self:
        """Return the position of a checkpoint, or of a cursor of the feed in ascending order from `since`.

        Raises:
            ValueError: The text is neither a checkpoint nor a cursor.
        """
        if not isinstance(checkpoint, str) or not checkpoint:
            raise ValueError("after must be a checkpoint, or None to begin with the oldest event")
        if not checkpoint.startswith(_CHECKPOINT_PREFIX):
            return cls(cursor=checkpoint, since=since)
        try:
            packed = base64.urlsafe_b64decode(checkpoint[len(_CHECKPOINT_PREFIX) :])
            cursor, sequence, since, *more = json.loads(packed)
            return cls(cursor, int(sequence), since, float(more[0]) if more else 0.0)
        except (ValueError, TypeError):
            raise ValueError("after is not a checkpoint") from None

    def __str__(self) -> str:
        packed = json.dumps([self.cursor, self.sequence, self.since, round(self.read_at)], separators=(",", ":"))
        return _CHECKPOINT_PREFIX + base64.urlsafe_b64encode(packed.encode()).decode()


class FeedReader:
    """The state of a follower: its position, the events of the current page, and the delay before the next request."""

    def __init__(
        self, spec: RequestSpec, position: FeedPosition, poll: float | None, patience: float | None, clock: ClientClock
    ) -> None:
        """Begin at a position.

        Args:
            spec: The request for the first page, without cursor and order.
            position: The position of the last checkpoint.
            poll: Seconds between two requests at the end of the feed; None stops there.
            patience: Seconds of continuous failure before the error is raised; None for no limit.
            clock: The source of time and randomness.
        """
        if poll is not None and poll < 0:
            raise ValueError("poll must not be negative")
        self._spec = spec
        self._poll = poll
        self._patience = patience
        self._clock = clock
        self._pending: deque[AnyEvent] = deque()
        self._next_cursor = position.cursor
        self._failure_count = 0
        self._failing_since = 0.0
        self._is_at_end = False
        self._page_read_at = 0.0
        self._is_resumed = position.sequence > 0
        self.position: FeedPosition = position
        """The position after the event that was yielded last."""
        self.delay_s: float = 0.0
        """Seconds to wait before the next request."""

    def next_event(self) -> AnyEvent | None:
        """Return the next event of the current page; None when the next page is needed."""
        if not self._pending:
            return None
        event = self._pending.popleft()
        # The last event completes its page: the position moves to the start of the next page.
        cursor = self.position.cursor if self._pending else self._next_cursor
        self.position = replace(self.position, cursor=cursor, sequence=event.sequence or self.position.sequence)
        self._is_resumed = False
        if not self._pending:
            self._record_end()
        return event

    @property
    def is_over(self) -> bool:
        """Return True at the end of the feed, when the follower does not poll."""
        return self._poll is None and self._is_at_end

    def next_spec(self) -> RequestSpec:
        """Return the request for the next page."""
        query = {"order": "asc", "limit": str(PAGE_LIMIT_MAX)}
        if self.position.since is not None:
            query["created_since"] = self.position.since
        if self.position.cursor is not None:
            query["starting_after"] = self.position.cursor
        return self._spec.with_query(**query)

    def received(self, events: Sequence[AnyEvent], resume_cursor: str, has_more: bool) -> None:
        """Make a page the current page."""
        self._failure_count = 0
        # A page that was left in the middle is requested again from its start: skip the events that were yielded.
        # An event without a sequence is always yielded.
        self._pending.extend(one for one in events if one.sequence > self.position.sequence or not one.sequence)
        self._next_cursor = resume_cursor
        self._is_at_end, self._page_read_at = not has_more, self._clock.wall()
        if not self._pending:
            self.position = replace(self.position, cursor=self._next_cursor)
            self._record_end()
        self.delay_s = 0.0 if has_more else self._poll or 0.0

    def _record_end(self) -> None:
        """Record that the feed was read to its end. After a resume this is known only after the first event."""
        if self._is_at_end and not self._is_resumed:
            self.position = replace(self.position, read_at=self._page_read_at)

    # Events that the service deleted before they were read ---------------------------------------------------------

    def may_have_lost(self, events: Sequence[AnyEvent]) -> bool:
        """Return True when events may have been deleted between the last yielded event and this page.

        A filter on types, or a missing scope, leaves gaps between the numbers too. A gap therefore counts only when the
        feed was not read to its end within the shortest retention; the request of `oldest_spec` then decides.
        """
        last = self.position.sequence
        first = next((event.sequence for event in events if event.sequence > last), None)
        return bool(last) and first is not None and first > last + 1 and self._was_away

    @property
    def _was_away(self) -> bool:
        return self._clock.wall() - self.position.read_at > _RETENTION_MIN_S

    def oldest_spec(self) -> RequestSpec:
        """Return the request for the oldest event that the service still keeps, of any type."""
        without_type = tuple(pair for pair in self._spec.query if pair[0] != "type")
        return replace(self._spec, query=without_type).with_query(order="asc", limit="1")

    def lost_before(self, oldest: Sequence[AnyEvent]) -> EventsLost | None:
        """Return the loss of events that were deleted unread, and advance past it; None without a loss.

        While the last yielded event is kept, every later event is kept too. An event created before the feed was last
        read to its end has been read.

        Args:
            oldest: The response to `oldest_spec`.
        """
        last = self.position.sequence
        if not oldest or oldest[0].sequence <= last + 1:
            return None
        if oldest[0].created_at.timestamp() < self.position.read_at:
            return None
        self.position = replace(self.position, sequence=oldest[0].sequence - 1)
        return EventsLost(last, oldest[0].sequence, str(self.position))

    def failed(self, error: APIError) -> None:
        """Set the delay after a failed request; raise the error when a retry does not help or patience has run out."""
        if not error.retryable:
            raise error
        now = self._clock.monotonic()
        if self._failure_count == 0:
            self._failing_since = now
            _log.warning("the event feed does not answer and is requested again: %s", error)
        retry_after = error.retry_after if isinstance(error, APIStatusError) else None
        retry_after = None if retry_after is None else min(retry_after, _RETRY_AFTER_MAX_S)
        backoff = min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0 ** min(self._failure_count, 10))
        delay = retry_after or self._clock.random() * backoff
        self._failure_count += 1
        if self._patience is not None and now + delay - self._failing_since > self._patience:
            raise error
        self.delay_s = delay
