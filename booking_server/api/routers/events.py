"""`/api/v1/events`: the feed that webhooks are made of, to be read back or followed."""

from booking_core import events
from booking_core.db.engine import Tx
from booking_core.errors import NotFound
from booking_core.models.events import READ_SCOPE, Event, ResourceType
from booking_core.models.pages import EventPage
from booking_server.api import params
from booking_server.api.operations import Call, Operation
from booking_server.api.routers.paged import page_request


def _find(tx: Tx, call: Call) -> object:
    query = call.query
    return events.find(
        tx,
        call.caller,
        page_request(call),
        types=query["type"].split(",") if query["type"] else (),
        resource_type=query["resource_type"],
        resource_id=query["resource_id"],
        created_since=query["created_since"],
        created_until=query["created_until"],
    )


def _get(tx: Tx, call: Call) -> object:
    return events.get(tx, call.caller, call.ids["id"])


OPERATIONS = (
    Operation(
        id="list_events",
        method="GET",
        path="/api/v1/events",
        tag="Events",
        summary="List or follow events",
        description=(
            "In the order of their `sequence`, which is dense within the organization and is the order in which they "
            "happened: a follower misses none. To follow the feed, walk it with `order=asc` and pass `resume_cursor` "
            "as `starting_after`, now or next week. A key sees the events whose resource it may read; asking by name "
            "for others answers 403. Events are kept for 90 days."
        ),
        any_scope=tuple(READ_SCOPE.values()),
        act=_find,
        query=(
            *params.LIST,
            params.text(
                "type",
                "One type, at most 20 separated by commas, or a prefix: `booking.*`.",
                example="booking.created,booking.cancelled",
            ),
            params.choice("resource_type", ResourceType, "Only events about this kind of resource."),
            params.uuid("resource_id", "Only events about this resource."),
            params.instant("created_since", "At or after it."),
            params.instant("created_until", "Before it."),
        ),
        answers={200: ("A page of events.", EventPage[Event])},
    ),
    Operation(
        id="get_event",
        method="GET",
        path="/api/v1/events/{id}",
        tag="Events",
        summary="Get an event",
        description=(
            "By the id in the `Svc-Event-Id` header of a delivery. Needs the read scope of the event's resource."
        ),
        any_scope=tuple(READ_SCOPE.values()),
        act=_get,
        answers={200: ("The event.", Event)},
        refusals=(NotFound,),
    ),
)
