"""`/api/v1/events`: the feed of events, to be listed or followed."""

from typing import Annotated

import pydantic
from fastapi import Depends, Query, Request

from booking_core.base.context import Caller
from booking_core.models.events import Event, ResourceType
from booking_core.models.pages import EventPage
from booking_core.records import events
from booking_server.api.dependencies import ApiRouter, FeedReader, Lane, ReadTx, runs_in
from booking_server.api.parameters import Cursor, ListQuery, PathId, QueryId, Text, Timestamp
from booking_server.fastapi_ext.requests import query_values

router = ApiRouter(prefix="/api/v1/events", tags=["Events"])


TypeFilter = Annotated[Text, pydantic.AfterValidator(events.split_types)]


def authorize_named(request: Request, caller: FeedReader) -> Caller:
    """Return the caller, whose key may read the events that the query names. Scopes come before other faults of the
    query (decision R1)."""
    values, _ = query_values(request.scope["query_string"], ("type", "resource_type"))
    events.check_named(caller, values.get("type", "").split(","), values.get("resource_type"))
    return caller


NamedReader = Annotated[Caller, Depends(authorize_named)]


class EventQuery(ListQuery):
    """The filters of the feed."""

    type: TypeFilter | None = pydantic.Field(None, examples=["booking.created,booking.cancelled"])
    """A type, at most 20 separated by commas, or a prefix: `booking.*`."""
    resource_type: ResourceType | None = None
    """Only events about this kind of resource."""
    resource_id: QueryId | None = None
    """Only events about this resource."""
    starting_after: Cursor | None = None
    """The `next_cursor` of the previous page, or a `resume_cursor` that you stored, unchanged."""
    created_since: Timestamp | None = None
    """At or after it."""
    created_until: Timestamp | None = None
    """Before it."""


@router.get(
    "",
    summary="List or follow events",
    response_model=EventPage[Event],
    response_description="A page of events.",
)
@runs_in(Lane.LISTS)
def list_events(caller: NamedReader, tx: ReadTx, query: Annotated[EventQuery, Query()]) -> object:
    """In the order of their `sequence`, which has no gaps within the organization and is the order of their commits: a
    follower misses none. To follow the feed, read it with `order=asc` and pass `resume_cursor` as `starting_after`, now
    or next week; to begin with the events from now on, send the present time as `created_since`. A key sees the events
    whose resource it may read; a filter for other types answers 403. Events are kept for 90 days."""
    since, until = query.instant("created_since", caller), query.instant("created_until", caller)
    return events.find(
        tx,
        caller,
        query.page,
        types=query.type or (),
        resource_type=query.resource_type,
        resource_id=query.resource_id,
        created_since=since,
        created_until=until,
    )


@router.get(
    "/{id}",
    summary="Get an event",
    response_model=Event,
    response_description="The event.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_event(caller: FeedReader, tx: ReadTx, event_id: PathId) -> object:
    """By the id in the `Svc-Event-Id` header of a delivery. Needs the read scope of the event's resource."""
    return events.get(tx, caller, event_id)
