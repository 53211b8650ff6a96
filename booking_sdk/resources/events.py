"""The event feed: list, get, follow."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from booking_core.models.events import EventType, ResourceType
from booking_sdk._discreet import discreet_methods
from booking_sdk._parse import as_type
from booking_sdk.errors import EventsLost
from booking_sdk.following import AsyncFeed, Feed, Following, Position
from booking_sdk.models import AnyEvent
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncEventPage, AsyncPaginator, EventPage, Paginator, Walk
from booking_sdk.receive import NOTICED_EVENT, READABLE_EVENT
from booking_sdk.request import Spec, get, instant, joined, segment

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient

ResourceFilter = ResourceType | Literal["booking", "customer", "gift_card", "webhook"]

# To a checker these are of the union; at run time each event is read as the class of its type.
_EVENT: type[AnyEvent] = NOTICED_EVENT


def _filters(
    types: Collection[EventType | str],
    resource_type: ResourceFilter | None,
    resource_id: str | UUID | None,
    created_since: datetime | None,
    created_until: datetime | None,
) -> dict[str, Any]:
    return {
        "type": joined("types", types),
        "resource_type": resource_type,
        "resource_id": resource_id,
        "created_since": None if created_since is None else instant("created_since", created_since),
        "created_until": None if created_until is None else instant("created_until", created_until),
    }


def _following(
    spec: Spec, after: str | None, since: datetime | None, poll: float | None, patience: float | None, clock: Any
) -> Following:
    begin = None if since is None else instant("since", since)
    position = Position(since=begin) if after is None else Position.parse(after, begin)
    return Following(spec, position, poll, patience, clock)


@discreet_methods
class AsyncEvents:
    """What happened in the organization, in the order it happened, for 90 days."""

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(
        self,
        *,
        types: Collection[EventType | str] = (),
        resource_type: ResourceFilter | None = None,
        resource_id: str | UUID | None = None,
        created_since: datetime | None = None,
        created_until: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncEventPage[AnyEvent]:
        """One page of the feed.

        Args:
            types: at most 20 of them, or prefixes such as `booking.*`; else all that the key may read.
            created_since: at or after it.
            created_until: before it.

        Raises:
            InsufficientScopeError: something is named that the key may not read, or it may read nothing.
        """
        query = {
            **_filters(types, resource_type, resource_id, created_since, created_until),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        return await self._client._page(get("events", query=query, options=options), _EVENT, AsyncEventPage)

    def iterate(
        self,
        *,
        types: Collection[EventType | str] = (),
        resource_type: ResourceFilter | None = None,
        resource_id: str | UUID | None = None,
        created_since: datetime | None = None,
        created_until: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[AnyEvent]:
        """Every event that there is now, page after page; `follow` also gives those to come."""
        filters = _filters(types, resource_type, resource_id, created_since, created_until)
        query = {**filters, "order": order, "starting_after": starting_after}
        walk = Walk([get("events", query=query, options=options)], page_size, max_items)
        return AsyncPaginator(self._client, walk, _EVENT)

    async def get(self, event_id: str | UUID, *, options: RequestOptions | None = None) -> AnyEvent:
        """One event, by the id that a delivery names.

        Raises:
            NotFoundError: there is none with this id, or not any more.
            InsufficientScopeError: the key may not read what the event is about.
        """
        spec = get("events", segment("event_id", event_id), options=options)
        return await self._client._run(spec, as_type(_EVENT))

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
    ) -> AsyncFeed:
        """Every event from a point on, in order, and then each as it comes; it ends by an error, or by `feed.close()`.

        It misses none, and waits out a service that is away. To go on after a restart, keep `feed.checkpoint` with
        what the event changed, or let `on_checkpoint` tell. An event that cannot be read is logged, and comes as an
        `UnknownEvent`.

        Args:
            after: a checkpoint, with the `types` that it was made with; else the feed begins with the oldest event
                kept, or at `since`.
            types: as in `list`.
            poll: seconds between two questions when there is nothing new; None: ends where the feed ends now.
            on_checkpoint: called with a checkpoint when the next event is asked for: the one before is dealt with.
            on_lost: called when the service has deleted events, at the end of their retention, that this follower may
                not have seen; it then goes on behind them. None: the `EventsLost` is raised.
            patience: seconds for which the service may fail without a break before its error is raised; None: for
                ever. Errors that waiting does not help are raised at once.

        Raises:
            EventsLost: events were deleted before they were read; asked for the next event, the feed goes on.
            BadRequestError: `after` belongs to other `types`, or to another organization.
            InsufficientScopeError: a type is named that the key may not read, or it may read nothing.
        """
        spec = get("events", query={"type": joined("types", types)}, options=options)
        following = _following(spec, after, since, poll, patience, self._client._clock)
        return AsyncFeed(self._client, following, READABLE_EVENT, on_checkpoint, on_lost)


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class Events:
    """What happened in the organization, in the order it happened, for 90 days."""

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(
        self,
        *,
        types: Collection[EventType | str] = (),
        resource_type: ResourceFilter | None = None,
        resource_id: str | UUID | None = None,
        created_since: datetime | None = None,
        created_until: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> EventPage[AnyEvent]:
        """One page of the feed.

        Args:
            types: at most 20 of them, or prefixes such as `booking.*`; else all that the key may read.
            created_since: at or after it.
            created_until: before it.

        Raises:
            InsufficientScopeError: something is named that the key may not read, or it may read nothing.
        """
        query = {
            **_filters(types, resource_type, resource_id, created_since, created_until),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        return self._client._page(get("events", query=query, options=options), _EVENT, EventPage)

    def iterate(
        self,
        *,
        types: Collection[EventType | str] = (),
        resource_type: ResourceFilter | None = None,
        resource_id: str | UUID | None = None,
        created_since: datetime | None = None,
        created_until: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[AnyEvent]:
        """Every event that there is now, page after page; `follow` also gives those to come."""
        filters = _filters(types, resource_type, resource_id, created_since, created_until)
        query = {**filters, "order": order, "starting_after": starting_after}
        walk = Walk([get("events", query=query, options=options)], page_size, max_items)
        return Paginator(self._client, walk, _EVENT)

    def get(self, event_id: str | UUID, *, options: RequestOptions | None = None) -> AnyEvent:
        """One event, by the id that a delivery names.

        Raises:
            NotFoundError: there is none with this id, or not any more.
            InsufficientScopeError: the key may not read what the event is about.
        """
        spec = get("events", segment("event_id", event_id), options=options)
        return self._client._run(spec, as_type(_EVENT))

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
    ) -> Feed:
        """Every event from a point on, in order, and then each as it comes; it ends by an error, or by `feed.close()`.

        It misses none, and waits out a service that is away. To go on after a restart, keep `feed.checkpoint` with
        what the event changed, or let `on_checkpoint` tell. An event that cannot be read is logged, and comes as an
        `UnknownEvent`.

        Args:
            after: a checkpoint, with the `types` that it was made with; else the feed begins with the oldest event
                kept, or at `since`.
            types: as in `list`.
            poll: seconds between two questions when there is nothing new; None: ends where the feed ends now.
            on_checkpoint: called with a checkpoint when the next event is asked for: the one before is dealt with.
            on_lost: called when the service has deleted events, at the end of their retention, that this follower may
                not have seen; it then goes on behind them. None: the `EventsLost` is raised.
            patience: seconds for which the service may fail without a break before its error is raised; None: for
                ever. Errors that waiting does not help are raised at once.

        Raises:
            EventsLost: events were deleted before they were read; asked for the next event, the feed goes on.
            BadRequestError: `after` belongs to other `types`, or to another organization.
            InsufficientScopeError: a type is named that the key may not read, or it may read nothing.
        """
        spec = get("events", query={"type": joined("types", types)}, options=options)
        following = _following(spec, after, since, poll, patience, self._client._clock)
        return Feed(self._client, following, READABLE_EVENT, on_checkpoint, on_lost)
