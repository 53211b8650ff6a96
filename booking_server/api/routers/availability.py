"""`/api/v1/availability`: departures with their live seats."""

from typing import Annotated

import pydantic
from fastapi import Query, Security

from booking_core.base.context import Caller
from booking_core.base.errors import Unprocessable
from booking_core.catalogue import departures
from booking_core.models.departures import Departure
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_server.api import parameters
from booking_server.api.dependencies import ApiRouter, ReadTx, authorize
from booking_server.api.openapi.refusals import WINDOW_TOO_WIDE, refusals
from booking_server.api.parameters import Day, QueryId
from booking_server.fastapi_ext.etags import NOT_MODIFIED, tagged

router = ApiRouter(prefix="/api/v1/availability", tags=["Availability"])

AvailabilityReader = Annotated[Caller, Security(authorize, scopes=[Scope.AVAILABILITY_READ])]


class AvailabilityQuery(parameters.Query):
    """The window of days, and the experience."""

    experience_id: QueryId | None = None
    """Only departures of this experience."""
    date_from: Day = pydantic.Field(alias="from")
    """First day."""
    date_to: Day | None = pydantic.Field(None, alias="to", examples=["2026-12-31"])
    """Last day; default is 30 days after `from`."""


@router.get(
    "",
    summary="List departures with their seats",
    response_model=Page[Departure],
    response_description="The departures; `has_more` is always false.",
    responses=NOT_MODIFIED | refusals(Unprocessable.at("to", WINDOW_TOO_WIDE, "window_too_wide")),
)
@tagged
def list_availability(caller: AvailabilityReader, tx: ReadTx, query: Annotated[AvailabilityQuery, Query()]) -> object:
    """Every departure of the window on one page, by start: days are the organization's, both ends included, at most
    92 days apart. The seats are those that the storefront shows; unpublished experiences are included."""
    return departures.find_available(
        tx, caller, date_from=query.date_from, date_to=query.date_to, experience_id=query.experience_id
    )
