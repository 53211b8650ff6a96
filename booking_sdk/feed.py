"""The event feed as an endless iterator.

`booking_sdk._feed_reader` decides which pages are requested.

The sync class, in `booking_sdk._sync.feed`, is generated from this one by `make sync-client`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from booking_core.models.suggestions import Suggesting
from booking_sdk._base_client import AsyncAPIClient
from booking_sdk._concurrency import Stop
from booking_sdk._feed_reader import FeedReader
from booking_sdk.errors import APIError, EventsLost
from booking_sdk.models import AnyEvent
from booking_sdk.pagination import AsyncEventPage, async_fetch_page
from booking_sdk.request import RequestSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    EventT = TypeVar("EventT", covariant=True, default=AnyEvent)
else:
    from typing import TypeVar

    EventT = TypeVar("EventT", covariant=True)


class AsyncFeed(Suggesting, AsyncIterator[EventT]):
    """An iterator over the events of the feed in their order, present and future; `events.follow` returns it.

        feed = client.events.follow(after=checkpoint)
        async for event in feed:
            await handle(event, checkpoint=feed.checkpoint)

    `close()` ends it, also from another task, another thread or a signal handler.
    """

    def __init__(
        self,
        client: AsyncAPIClient,
        reader: FeedReader,
        event_type: Any,
        on_checkpoint: Callable[[str], None] | None,
        on_lost: Callable[[EventsLost], None] | None,
    ) -> None:
        self._client = client
        self._reader = reader
        self._event_type = event_type
        self._on_checkpoint = on_checkpoint
        self._on_lost = on_lost
        self._is_checkpoint_due = False
        self._stop = Stop()

    @property
    def checkpoint(self) -> str:
        """The position after the event that was yielded last: `follow(after=checkpoint)` continues there.

        Store it in the transaction that handles the event, and every event is handled exactly once.
        """
        return str(self._reader.position)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.checkpoint!r}>"

    def __aiter__(self) -> Self:
        return self

    def close(self) -> None:
        """End the feed. A pending wait for the next event ends the iteration; the checkpoint stays valid."""
        self._stop.set()

    async def __anext__(self) -> EventT:
        if self._is_checkpoint_due and self._on_checkpoint:
            self._on_checkpoint(self.checkpoint)
        self._is_checkpoint_due = False
        while not self._stop.is_set:
            event = self._reader.next_event()
            if event is not None:
                self._is_checkpoint_due = True
                return cast("EventT", event)  # of the requested types
            if self._reader.is_over:
                break
            with self._stop.interrupting():
                await self._read_page()
        raise StopAsyncIteration

    async def _read_page(self) -> None:
        if self._reader.delay_s > 0:
            await self._stop.sleep(self._client._clock, self._reader.delay_s)
        if self._stop.is_set:
            return
        try:
            page = await self._fetch(self._reader.next_spec())
            lost = await self._lost_before(page.data)
        except APIError as error:
            self._reader.failed(error)
            return
        if lost is not None:
            if self._on_lost is None:
                raise lost
            self._on_lost(lost)
        self._reader.received(page.data, page.resume_cursor, page.has_more)

    async def _fetch(self, spec: RequestSpec) -> AsyncEventPage[AnyEvent]:
        page: AsyncEventPage[AnyEvent] = await async_fetch_page(self._client, spec, self._event_type, AsyncEventPage)
        return page

    async def _lost_before(self, events: Sequence[AnyEvent]) -> EventsLost | None:
        if not self._reader.may_have_lost(events):
            return None
        return self._reader.lost_before((await self._fetch(self._reader.oldest_spec())).data)
