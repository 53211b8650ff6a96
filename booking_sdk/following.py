"""The event feed, followed: where a follower stands, and the loop that never misses an event."""

import base64
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from booking_core.models.limits import PAGE_LIMIT_MAX
from booking_sdk._clock import Clock
from booking_sdk._stop import StopInLoop as AsyncStop
from booking_sdk._stop import StopInThread as Stop
from booking_sdk.errors import APIError, APIStatusError, EventsLost
from booking_sdk.models import AnyEvent
from booking_sdk.paging import AsyncEventPage, EventPage
from booking_sdk.request import Spec

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient

_log = logging.getLogger("booking_sdk")

_PREFIX = "at_"
_PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0
_ASKED_MAX_S = 3600.0
"""However long a service asks to be left alone, it is asked again after this."""

_SURELY_KEPT_S = 86_400.0
"""No service deletes events that are younger."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a follower stands: in front of a page of the feed, behind one of its events.

    Cursors stand between pages, and one belongs to the `created_since` it was given out for; so a checkpoint holds
    all three, and can be taken anywhere.
    """

    cursor: str | None = None
    sequence: int = 0
    since: str | None = None
    read_at: float = 0.0
    """Unix seconds: up to then all was read, however old the event that was given out last."""

    @classmethod
    def parse(cls, checkpoint: str, since: str | None = None) -> Self:
        """The position that a checkpoint names; a cursor of the feed in ascending order, from `since`, is one too.

        Raises:
            ValueError: it is neither.
        """
        if not isinstance(checkpoint, str) or not checkpoint:
            raise ValueError("after must be a checkpoint, or None to begin with the oldest event")
        if not checkpoint.startswith(_PREFIX):
            return cls(cursor=checkpoint, since=since)
        try:
            cursor, sequence, since, *more = json.loads(base64.urlsafe_b64decode(checkpoint[len(_PREFIX) :]))
            return cls(cursor, int(sequence), since, float(more[0]) if more else 0.0)
        except (ValueError, TypeError):
            raise ValueError("after is not a checkpoint") from None

    def __str__(self) -> str:
        packed = json.dumps([self.cursor, self.sequence, self.since, round(self.read_at)], separators=(",", ":"))
        return _PREFIX + base64.urlsafe_b64encode(packed.encode()).decode()


class Following:
    """What a follower decides: the next request, the next event, and how long to wait when there is none."""

    def __init__(
        self, spec: Spec, position: Position, poll: float | None, patience: float | None, clock: Clock
    ) -> None:
        if poll is not None and poll < 0:
            raise ValueError("poll must not be negative")
        self._spec = spec
        self._poll = poll
        self._patience = patience
        self._clock = clock
        self._waiting: deque[AnyEvent] = deque()
        self._next_cursor = position.cursor
        self._failures = 0
        self._failing_since = 0.0
        self._is_at_end = False
        self._page_read_at = 0.0
        self._is_resumed = position.sequence > 0
        self.position: Position = position
        """Behind the event that was given out last."""
        self.pause_s: float = 0.0
        """To be waited before the next page is asked for."""

    def next_event(self) -> AnyEvent | None:
        """The next event of the page in hand; none when a page is to be asked for."""
        if not self._waiting:
            return None
        event = self._waiting.popleft()
        # With its last event a page is done with, and the next begins behind it.
        cursor = self.position.cursor if self._waiting else self._next_cursor
        self.position = replace(self.position, cursor=cursor, sequence=event.sequence or self.position.sequence)
        self._is_resumed = False
        if not self._waiting:
            self._note_end()
        return event

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more, and nobody wants to wait for it."""
        return self._poll is None and self._is_at_end

    def spec(self) -> Spec:
        """The request for the next page."""
        query = {"order": "asc", "limit": str(PAGE_LIMIT_MAX)}
        if self.position.since is not None:
            query["created_since"] = self.position.since
        if self.position.cursor is not None:
            query["starting_after"] = self.position.cursor
        return self._spec.with_query(**query)

    def took(self, events: Sequence[AnyEvent], resume_cursor: str | None, has_more: bool) -> None:
        """Takes a page in hand."""
        self._failures = 0
        # A page that was left half way is read again from its start. An event without a number is given as it comes.
        self._waiting.extend(one for one in events if one.sequence > self.position.sequence or not one.sequence)
        self._next_cursor = resume_cursor or self.position.cursor
        self._is_at_end, self._page_read_at = not has_more, self._clock.wall()
        if not self._waiting:
            self.position = replace(self.position, cursor=self._next_cursor)
            self._note_end()
        self.pause_s = 0.0 if has_more else self._poll or 0.0

    def _note_end(self) -> None:
        """Note that all was read, where that is known: after a pause, only once an event was seen."""
        if self._is_at_end and not self._is_resumed:
            self.position = replace(self.position, read_at=self._page_read_at)

    # What was deleted before it was read ---------------------------------------------------------------------------

    def is_doubtful(self, events: Sequence[AnyEvent]) -> bool:
        """Return whether events may have been deleted between the one that was given out last and this page.

        Numbers are left out wherever types are filtered, or the key may not read something. So a gap counts only when
        the feed was not read to its end within the last day, and `oldest_spec` finds out.
        """
        last = self.position.sequence
        first = next((event.sequence for event in events if event.sequence > last), None)
        return bool(last) and first is not None and first > last + 1 and self._was_away

    @property
    def _was_away(self) -> bool:
        return self._clock.wall() - self.position.read_at > _SURELY_KEPT_S

    def oldest_spec(self) -> Spec:
        """Return the request for the oldest event that is kept, of any type."""
        without = tuple(pair for pair in self._spec.query if pair[0] != "type")
        return replace(self._spec, query=without).with_query(order="asc", limit="1")

    def lost(self, oldest: Sequence[AnyEvent]) -> EventsLost | None:
        """Return the loss of the events that were deleted unread, given the oldest that is kept; None without one.

        While the last one that was given out is kept, so is every later one. What was created before the feed was last
        read to its end was read.
        """
        last = self.position.sequence
        if not oldest or oldest[0].sequence <= last + 1:
            return None
        if oldest[0].created_at.timestamp() < self.position.read_at:
            return None
        self.position = replace(self.position, sequence=oldest[0].sequence - 1)
        return EventsLost(last, oldest[0].sequence, str(self.position))

    def failed(self, error: APIError) -> None:
        """Waits out an error; raises it when waiting does not help, or not any more."""
        if not error.retryable:
            raise error
        now = self._clock.monotonic()
        if self._failures == 0:
            self._failing_since = now
            _log.warning("the event feed does not answer, and is asked again: %s", error)
        asked = error.retry_after if isinstance(error, APIStatusError) else None
        asked = None if asked is None else min(asked, _ASKED_MAX_S)
        pause = asked or self._clock.random() * min(_PAUSE_MAX_S, _PAUSE_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        if self._patience is not None and now + pause - self._failing_since > self._patience:
            raise error
        self.pause_s = pause


class AsyncFeed(AsyncIterator[AnyEvent]):
    """The events of the feed in their order, now and as they come; from `events.follow`.

    `close()` ends it, also from another task, from another thread or from a signal handler.
    """

    def __init__(
        self,
        client: "AsyncBookingClient",
        following: Following,
        kind: Any,
        on_checkpoint: Callable[[str], None] | None,
        on_lost: Callable[[EventsLost], None] | None,
    ) -> None:
        self._client = client
        self._following = following
        self._kind = kind
        self._on_checkpoint = on_checkpoint
        self._on_lost = on_lost
        self._is_owed = False
        self._stop = AsyncStop()

    @property
    def checkpoint(self) -> str:
        """Where to go on, behind the event that was given out last: `follow(after=checkpoint)`.

        Stored in the transaction that handles the event, it makes every event count exactly once.
        """
        return str(self._following.position)

    def __aiter__(self) -> Self:
        return self

    def close(self) -> None:
        """Ends the feed: whoever waits for its next event finds it at its end. Its checkpoint stays good."""
        self._stop.set()

    async def __anext__(self) -> AnyEvent:
        if self._is_owed and self._on_checkpoint:
            self._on_checkpoint(self.checkpoint)
        self._is_owed = False
        while not self._stop.is_set:
            event = self._following.next_event()
            if event is not None:
                self._is_owed = True
                return event
            if self._following.is_over:
                break
            with self._stop.interrupting():
                await self._turn()
        raise StopAsyncIteration

    async def _turn(self) -> None:
        if self._following.pause_s > 0:
            await self._stop.sleep(self._client._clock, self._following.pause_s)
        if self._stop.is_set:
            return
        try:
            page = await self._page(self._following.spec())
            lost = await self._lost_before(page.data)
        except APIError as error:
            self._following.failed(error)
            return
        if lost is not None:
            if self._on_lost is None:
                raise lost
            self._on_lost(lost)
        self._following.took(page.data, page.resume_cursor, page.has_more)

    async def _page(self, spec: Spec) -> AsyncEventPage[AnyEvent]:
        page: AsyncEventPage[AnyEvent] = await self._client._page(spec, self._kind, AsyncEventPage)
        return page

    async def _lost_before(self, events: Sequence[AnyEvent]) -> EventsLost | None:
        if not self._following.is_doubtful(events):
            return None
        return self._following.lost((await self._page(self._following.oldest_spec())).data)


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


class Feed(Iterator[AnyEvent]):
    """The events of the feed in their order, now and as they come; from `events.follow`.

    `close()` ends it, also from another task, from another thread or from a signal handler.
    """

    def __init__(
        self,
        client: "BookingClient",
        following: Following,
        kind: Any,
        on_checkpoint: Callable[[str], None] | None,
        on_lost: Callable[[EventsLost], None] | None,
    ) -> None:
        self._client = client
        self._following = following
        self._kind = kind
        self._on_checkpoint = on_checkpoint
        self._on_lost = on_lost
        self._is_owed = False
        self._stop = Stop()

    @property
    def checkpoint(self) -> str:
        """Where to go on, behind the event that was given out last: `follow(after=checkpoint)`.

        Stored in the transaction that handles the event, it makes every event count exactly once.
        """
        return str(self._following.position)

    def __iter__(self) -> Self:
        return self

    def close(self) -> None:
        """Ends the feed: whoever waits for its next event finds it at its end. Its checkpoint stays good."""
        self._stop.set()

    def __next__(self) -> AnyEvent:
        if self._is_owed and self._on_checkpoint:
            self._on_checkpoint(self.checkpoint)
        self._is_owed = False
        while not self._stop.is_set:
            event = self._following.next_event()
            if event is not None:
                self._is_owed = True
                return event
            if self._following.is_over:
                break
            with self._stop.interrupting():
                self._turn()
        raise StopIteration

    def _turn(self) -> None:
        if self._following.pause_s > 0:
            self._stop.sleep(self._client._clock, self._following.pause_s)
        if self._stop.is_set:
            return
        try:
            page = self._page(self._following.spec())
            lost = self._lost_before(page.data)
        except APIError as error:
            self._following.failed(error)
            return
        if lost is not None:
            if self._on_lost is None:
                raise lost
            self._on_lost(lost)
        self._following.took(page.data, page.resume_cursor, page.has_more)

    def _page(self, spec: Spec) -> EventPage[AnyEvent]:
        page: EventPage[AnyEvent] = self._client._page(spec, self._kind, EventPage)
        return page

    def _lost_before(self, events: Sequence[AnyEvent]) -> EventsLost | None:
        if not self._following.is_doubtful(events):
            return None
        return self._following.lost((self._page(self._following.oldest_spec())).data)
