"""The event feed: list, get and follow."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Unpack, overload
from uuid import UUID

from booking_core.models.events import EventType
from booking_sdk._feed_reader import FeedPosition, FeedReader
from booking_sdk._lists import list_spec, page_iterator
from booking_sdk._resource import AsyncAPIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.errors import EventsLost
from booking_sdk.event_parsing import FEED_EVENT, LENIENT_FEED_EVENT
from booking_sdk.feed import AsyncFeed
from booking_sdk.models import AnyBookingEvent, AnyCustomerEvent, AnyEvent, AnyGiftCardEvent, DepartureUpdated
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncEventPage, AsyncPaginator, async_fetch_page
from booking_sdk.params import (
    BookingEventType,
    CustomerEventType,
    DepartureEventType,
    FollowEvents,
    GiftCardEventType,
    IterateEvents,
    ListEvents,
)
from booking_sdk.request import comma_separated, get, path_segment, utc_timestamp

# A type checker sees the union of event classes; at run time each event is parsed into the class of its type.
_EVENT: type[AnyEvent] = FEED_EVENT


def _start_position(after: str | None, since: datetime | None) -> FeedPosition:
    start = None if since is None else utc_timestamp("since", since)
    return FeedPosition(since=start) if after is None else FeedPosition.parse(after, start)


@scrub_tracebacks
class AsyncEvents(AsyncAPIResource):
    """The event feed: the organization's events of the last 90 days, in order.

    An event is visible to keys that can read the resource it is about.
    """

    @overload
    async def list(
        self, *, types: Collection[BookingEventType], **others: Unpack[ListEvents]
    ) -> AsyncEventPage[AnyBookingEvent]: ...
    @overload
    async def list(
        self, *, types: Collection[CustomerEventType], **others: Unpack[ListEvents]
    ) -> AsyncEventPage[AnyCustomerEvent]: ...
    @overload
    async def list(
        self, *, types: Collection[DepartureEventType], **others: Unpack[ListEvents]
    ) -> AsyncEventPage[DepartureUpdated]: ...
    @overload
    async def list(
        self, *, types: Collection[GiftCardEventType], **others: Unpack[ListEvents]
    ) -> AsyncEventPage[AnyGiftCardEvent]: ...
    @overload
    async def list(
        self, *, types: Collection[EventType | str] = ..., **others: Unpack[ListEvents]
    ) -> AsyncEventPage[AnyEvent]: ...
    async def list(
        self, *, types: Collection[EventType | str] = (), **others: Unpack[ListEvents]
    ) -> AsyncEventPage[Any]:
        """List one page of the feed.

        Args:
            types: At most 20 event types, or prefixes such as `booking.*`. Defaults to all that the key can read.
            **others: Other filters and paging, see `ListEvents`.

        Raises:
            InsufficientScopeError: The key cannot read one of the types, or cannot read events at all.
        """
        spec = list_spec(ListEvents, "events", arguments=others, type=comma_separated("types", types))
        return await async_fetch_page(self._client, spec, _EVENT, AsyncEventPage)

    @overload
    def iterate(
        self, *, types: Collection[BookingEventType], **others: Unpack[IterateEvents]
    ) -> AsyncPaginator[AnyBookingEvent]: ...
    @overload
    def iterate(
        self, *, types: Collection[CustomerEventType], **others: Unpack[IterateEvents]
    ) -> AsyncPaginator[AnyCustomerEvent]: ...
    @overload
    def iterate(
        self, *, types: Collection[DepartureEventType], **others: Unpack[IterateEvents]
    ) -> AsyncPaginator[DepartureUpdated]: ...
    @overload
    def iterate(
        self, *, types: Collection[GiftCardEventType], **others: Unpack[IterateEvents]
    ) -> AsyncPaginator[AnyGiftCardEvent]: ...
    @overload
    def iterate(
        self, *, types: Collection[EventType | str] = ..., **others: Unpack[IterateEvents]
    ) -> AsyncPaginator[AnyEvent]: ...
    def iterate(
        self, *, types: Collection[EventType | str] = (), **others: Unpack[IterateEvents]
    ) -> AsyncPaginator[Any]:
        """Iterate over all present events; `follow` also waits for future ones.

        Args:
            types: At most 20 event types, or prefixes such as `booking.*`. Defaults to all that the key can read.
            **others: Other filters and paging, see `IterateEvents`.
        """
        pages = page_iterator(IterateEvents, "events", arguments=others, type=comma_separated("types", types))
        return AsyncPaginator(self._client, pages, _EVENT)

    async def get(self, event_id: str | UUID, *, options: RequestOptions | None = None) -> AnyEvent:
        """Return one event.

        Args:
            event_id: The id of the event, which a webhook delivery contains too.
            options: Settings for this call.

        Raises:
            NotFoundError: No event has this id, or it was deleted at the end of its retention.
            InsufficientScopeError: The key cannot read the resource that the event is about.
        """
        return await self._get(_EVENT, "events", path_segment("event_id", event_id), options=options)

    @overload
    def follow(
        self, *, types: Collection[BookingEventType], **others: Unpack[FollowEvents]
    ) -> AsyncFeed[AnyBookingEvent]: ...
    @overload
    def follow(
        self, *, types: Collection[CustomerEventType], **others: Unpack[FollowEvents]
    ) -> AsyncFeed[AnyCustomerEvent]: ...
    @overload
    def follow(
        self, *, types: Collection[DepartureEventType], **others: Unpack[FollowEvents]
    ) -> AsyncFeed[DepartureUpdated]: ...
    @overload
    def follow(
        self, *, types: Collection[GiftCardEventType], **others: Unpack[FollowEvents]
    ) -> AsyncFeed[AnyGiftCardEvent]: ...
    @overload
    def follow(
        self, *, types: Collection[EventType | str] = ..., **others: Unpack[FollowEvents]
    ) -> AsyncFeed[AnyEvent]: ...
    def follow(
        self,
        *,
        after: str | None = None,
        since: datetime | None = None,
        types: Collection[EventType | str] = (),
        poll: float | None = 5.0,
        on_checkpoint: Callable[[str], None] | None = None,
        on_lost: Callable[[EventsLost], None] | None = None,
        patience: float | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncFeed[Any]:
        """Follow the feed: iterate over the events in order, and wait for new ones.

            feed = client.events.follow(after=load_checkpoint(), types=["booking.*"])
            async for event in feed:
                await handle(event, checkpoint=feed.checkpoint)

        The feed misses no event, and retries while the service is unavailable. It ends by an error or by
        `feed.close()`. To continue after a restart, store `feed.checkpoint` together with the effects of the event, or
        use `on_checkpoint`. An event that cannot be parsed is logged and yielded as an `UnknownEvent`.

        With `types` of one resource, type checkers take each event for one about it. An event that cannot be parsed, or
        whose type is newer than this SDK, is an `UnknownEvent` all the same.

        Args:
            after: A checkpoint; pass the same `types` again. Defaults to the oldest event, or to `since`.
            since: The time to start from, without a checkpoint.
            types: At most 20 event types, or prefixes such as `booking.*`. Defaults to all that the key can read.
            poll: Seconds between two requests when there is no new event. None ends the iteration there.
            on_checkpoint: Called with the checkpoint of an event that was handled, when the next one is requested.
            on_lost: Called when events were deleted before they were read. Defaults to raising the `EventsLost`.
            patience: Seconds of failure after which the error is raised; at once if no retry can fix it. None: never.
            options: Settings for each request.

        Raises:
            EventsLost: Events were deleted, after their retention, before they were read. The feed goes on after them.
            BadRequestError: The checkpoint belongs to other `types`, or to another organization.
            InsufficientScopeError: The key cannot read one of the types, or cannot read events at all.
        """
        spec = get("events", query={"type": comma_separated("types", types)}, options=options)
        reader = FeedReader(spec, _start_position(after, since), poll, patience, self._client._clock)
        return AsyncFeed(self._client, reader, LENIENT_FEED_EVENT, on_checkpoint, on_lost)
