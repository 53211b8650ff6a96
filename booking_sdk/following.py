"""The event feed, followed: where a follower stands, and the loop that never misses an event."""

import base64
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from booking_core.wire.limits import PAGE_LIMIT_MAX
from booking_sdk._clock import Clock
from booking_sdk.errors import APIError, APIStatusError
from booking_sdk.models import Event
from booking_sdk.paging import AsyncEventPage, EventPage
from booking_sdk.request import Spec

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient

_log = logging.getLogger("booking_sdk")

_PREFIX = "at_"
_PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Position:
    """Where a follower stands: in front of a page of the feed, behind one of its events.

    Cursors stand between pages, and one belongs to the `created_since` it was given out for; so a checkpoint holds
    all three, and can be taken anywhere.
    """

    cursor: str | None = None
    sequence: int = 0
    since: str | None = None

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
            cursor, sequence, since = json.loads(base64.urlsafe_b64decode(checkpoint[len(_PREFIX) :]))
        except (ValueError, TypeError):
            raise ValueError("after is not a checkpoint") from None
        return cls(cursor, int(sequence), since)

    def __str__(self) -> str:
        packed = json.dumps([self.cursor, self.sequence, self.since], separators=(",", ":"))
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
        self._waiting: deque[Event] = deque()
        self._next_cursor = position.cursor
        self._failures = 0
        self._failing_since = 0.0
        self._is_at_end = False
        self.position: Position = position
        """Behind the event that was given out last."""
        self.pause_s: float = 0.0
        """To be waited before the next page is asked for."""

    def next_event(self) -> Event | None:
        """The next event of the page in hand; none when a page is to be asked for."""
        if not self._waiting:
            return None
        event = self._waiting.popleft()
        # With its last event a page is done with, and the next begins behind it.
        cursor = self.position.cursor if self._waiting else self._next_cursor
        self.position = replace(self.position, cursor=cursor, sequence=event.sequence)
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

    def took(self, events: list[Event], resume_cursor: str | None, has_more: bool) -> None:
        """Takes a page in hand."""
        self._failures = 0
        # A page that was left half way is read again from its start.
        self._waiting.extend(event for event in events if event.sequence > self.position.sequence)
        self._next_cursor = resume_cursor or self.position.cursor
        if not self._waiting:
            self.position = replace(self.position, cursor=self._next_cursor)
        self._is_at_end = not has_more
        self.pause_s = 0.0 if has_more else self._poll or 0.0

    def failed(self, error: APIError) -> None:
        """Waits out an error; raises it when waiting does not help, or not any more."""
        if not error.retryable:
            raise error
        now = self._clock.monotonic()
        if self._failures == 0:
            self._failing_since = now
            _log.warning("the event feed does not answer, and is asked again: %s", error)
        asked = error.retry_after if isinstance(error, APIStatusError) else None
        pause = asked or self._clock.random() * min(_PAUSE_MAX_S, _PAUSE_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        if self._patience is not None and now + pause - self._failing_since > self._patience:
            raise error
        self.pause_s = pause


class AsyncFeed(AsyncIterator[Event]):
    """The events of the feed in their order, now and as they come; from `events.follow`."""

    def __init__(
        self,
        client: "AsyncBookingClient",
        following: Following,
        kind: Any,
        on_checkpoint: Callable[[str], None] | None,
    ) -> None:
        self._client = client
        self._following = following
        self._kind = kind
        self._on_checkpoint = on_checkpoint
        self._is_owed = False

    @property
    def checkpoint(self) -> str:
        """Where to go on, behind the event that was given out last: `follow(after=checkpoint)`.

        Stored in the transaction that handles the event, it makes every event count exactly once.
        """
        return str(self._following.position)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._is_owed and self._on_checkpoint:
            self._on_checkpoint(self.checkpoint)
        self._is_owed = False
        while (event := self._following.next_event()) is None:
            if self._following.is_over:
                raise StopAsyncIteration
            await self._turn()
        self._is_owed = True
        return event

    async def _turn(self) -> None:
        if self._following.pause_s > 0:
            await self._client._clock.async_sleep(self._following.pause_s)
        try:
            page: AsyncEventPage[Event] = await self._client._page(self._following.spec(), self._kind, AsyncEventPage)
        except APIError as error:
            self._following.failed(error)
        else:
            self._following.took(page.data, page.resume_cursor, page.has_more)


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


class Feed(Iterator[Event]):
    """The events of the feed in their order, now and as they come; from `events.follow`."""

    def __init__(
        self,
        client: "BookingClient",
        following: Following,
        kind: Any,
        on_checkpoint: Callable[[str], None] | None,
    ) -> None:
        self._client = client
        self._following = following
        self._kind = kind
        self._on_checkpoint = on_checkpoint
        self._is_owed = False

    @property
    def checkpoint(self) -> str:
        """Where to go on, behind the event that was given out last: `follow(after=checkpoint)`.

        Stored in the transaction that handles the event, it makes every event count exactly once.
        """
        return str(self._following.position)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._is_owed and self._on_checkpoint:
            self._on_checkpoint(self.checkpoint)
        self._is_owed = False
        while (event := self._following.next_event()) is None:
            if self._following.is_over:
                raise StopIteration
            self._turn()
        self._is_owed = True
        return event

    def _turn(self) -> None:
        if self._following.pause_s > 0:
            self._client._clock.sleep(self._following.pause_s)
        try:
            page: EventPage[Event] = self._client._page(self._following.spec(), self._kind, EventPage)
        except APIError as error:
            self._following.failed(error)
        else:
            self._following.took(page.data, page.resume_cursor, page.has_more)
