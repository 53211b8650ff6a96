"""`/api/v1/experiences`: the catalogue."""

from booking_core import experiences
from booking_core.db.engine import Tx
from booking_core.errors import NotFound
from booking_core.models.experiences import Experience
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_server.api import params
from booking_server.api.operations import Call, Operation
from booking_server.api.routers.paged import page_request


def _find(tx: Tx, call: Call) -> object:
    query = call.query
    return experiences.find(
        tx, call.caller, page_request(call), published=query["published"], updated_since=query["updated_since"]
    )


def _get(tx: Tx, call: Call) -> object:
    return experiences.get(tx, call.caller, call.ids["id"])


OPERATIONS = (
    Operation(
        id="list_experiences",
        method="GET",
        path="/api/v1/experiences",
        tag="Experiences",
        summary="List experiences",
        description="Unpublished experiences are listed too, unless `published` says otherwise.",
        scope=Scope.EXPERIENCES_READ,
        act=_find,
        query=(
            *params.LIST,
            params.flag("published", "Only published ones, or only unpublished ones."),
            params.instant("updated_since", "Only those changed at or after it."),
        ),
        answers={200: ("A page of experiences.", Page[Experience])},
    ),
    Operation(
        id="get_experience",
        method="GET",
        path="/api/v1/experiences/{id}",
        tag="Experiences",
        summary="Get an experience",
        scope=Scope.EXPERIENCES_READ,
        act=_get,
        answers={200: ("The experience.", Experience)},
        refusals=(NotFound,),
    ),
)
