"""`/api/v1/availability`: departures with their live seats."""

from booking_core import departures
from booking_core.db.engine import Tx
from booking_core.errors import Unprocessable
from booking_core.models.departures import Departure
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_server.api import params
from booking_server.api.operations import Call, Operation


def _find(tx: Tx, call: Call) -> object:
    query = call.query
    return departures.find_available(
        tx, call.caller, date_from=query["from"], date_to=query["to"], experience_id=query["experience_id"]
    )


OPERATIONS = (
    Operation(
        id="list_availability",
        method="GET",
        path="/api/v1/availability",
        tag="Availability",
        summary="List departures with their seats",
        description=(
            "Every departure of the window on one page, by start: days are the organization's, both ends included, at "
            "most 92 days apart. The seats are those that the storefront shows; unpublished experiences are included."
        ),
        scope=Scope.AVAILABILITY_READ,
        act=_find,
        query=(
            params.uuid("experience_id", "Only departures of this experience."),
            params.day("from", "First day.", required=True, example="2026-12-01"),
            params.day("to", "Last day; default is 30 days after `from`.", example="2026-12-31"),
        ),
        answers={200: ("The departures; `has_more` is always false.", Page[Departure])},
        refusals=(Unprocessable,),
    ),
)
