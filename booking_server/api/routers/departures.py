"""`/api/v1/availability` and `/api/v1/departures`: departures with their live seats, one of them, and its manifest."""

from typing import Annotated

import pydantic
from fastapi import Query

from booking_core import bookings
from booking_core.base.errors import Conflict, Unprocessable
from booking_core.catalogue import departures
from booking_core.models.departures import Departure
from booking_core.models.manifests import Manifest
from booking_core.models.pages import Page
from booking_server.api import parameters
from booking_server.api.dependencies import ApiRouter, AvailabilityReader, BookingsReader, Lane, ReadTx, runs_in
from booking_server.api.errors import WINDOW_TOO_WIDE, refusals
from booking_server.api.parameters import Day, PathId, QueryId

availability = ApiRouter(prefix="/api/v1/availability", tags=["Availability"])


class AvailabilityQuery(parameters.QueryParameters):
    """The window of days, and the experience."""

    experience_id: QueryId | None = None
    """Only departures of this experience."""
    date_from: Day = pydantic.Field(alias="from")
    """First day."""
    date_to: Day | None = pydantic.Field(None, alias="to", examples=["2026-12-31"])
    """Last day; default is 30 days after `from`."""


@availability.get(
    "",
    summary="List departures with their seats",
    response_model=Page[Departure],
    response_description="The departures; `has_more` is always false.",
    responses=refusals(Unprocessable.at("to", WINDOW_TOO_WIDE, "window_too_wide")),
)
@runs_in(Lane.LISTS, has_etag=True)
def list_availability(caller: AvailabilityReader, tx: ReadTx, query: Annotated[AvailabilityQuery, Query()]) -> object:
    """Every departure of the window on one page, by start: days are the organization's, both ends included, at most
    92 days apart. The storefront shows the same seats. Unpublished experiences are included."""
    return departures.render_available(
        tx, caller, date_from=query.date_from, date_to=query.date_to, experience_id=query.experience_id
    )


router = ApiRouter(prefix="/api/v1/departures", tags=["Departures"])


class DepartureQuery(parameters.QueryParameters):
    """The day, and the experience."""

    day: Day = pydantic.Field(alias="date")
    """The day in the organization's time zone."""
    experience_id: QueryId | None = None
    """Only departures of this experience."""


@router.get(
    "",
    summary="List the departures of a day",
    response_model=Page[Departure],
    response_description="The departures; `has_more` is always false.",
)
@runs_in(Lane.LISTS, has_etag=True)
def list_departures(caller: AvailabilityReader, tx: ReadTx, query: Annotated[DepartureQuery, Query()]) -> object:
    """Lists all departures that start on the day on one page, by start, with their seats now; cancelled ones too."""
    return departures.render_available(
        tx, caller, date_from=query.day, date_to=query.day, experience_id=query.experience_id
    )


@router.get(
    "/{id}",
    summary="Get a departure",
    response_model=Departure,
    response_description="The departure.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_departure(caller: AvailabilityReader, tx: ReadTx, departure_id: PathId) -> object:
    """Returns the departure as availability shows it, with its current seats."""
    return departures.get(tx, caller, departure_id)


@router.get(
    "/{id}/manifest",
    summary="Get the manifest of a departure",
    response_model=Manifest,
    response_description="The manifest.",
    responses=refusals(Conflict("manifest_too_large", "The departure has more than 1000 bookings.")),
)
@runs_in(Lane.LISTS)
def get_departure_manifest(caller: BookingsReader, tx: ReadTx, departure_id: PathId) -> object:
    """Returns the pending and confirmed bookings of the departure on one page, by the guest's name, each with the
    contact, tiers, add-ons, note and the amount still to pay. A departure with more than 1,000 bookings is a `conflict`
    with the reason `manifest_too_large`: `GET /bookings?departure_id=` lists them."""
    return bookings.render_manifest(tx, caller, departure_id)
