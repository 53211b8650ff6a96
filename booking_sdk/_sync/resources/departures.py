# Generated from booking_sdk/resources/departures.py by `make sync-client`. Do not edit.
"""Departures: list the departures of a day, get one, and read its manifest."""

from datetime import date
from uuid import UUID

from booking_core.models.departures import Departure
from booking_core.models.manifests import Manifest
from booking_sdk._sync._resource import APIResource
from booking_sdk._sync.pagination import Page, fetch_page
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.request import checked_date, get, path_segment


@scrub_tracebacks
class Departures(APIResource):
    """The departures of a day, and single ones. Needs the scope `availability:read`."""

    def list(
        self, *, day: date, experience_id: str | UUID | None = None, options: RequestOptions | None = None
    ) -> Page[Departure]:
        """List the departures of a day on one page, by start.

            page = client.departures.list(day=date.today())

        Args:
            day: The day, in the organization's timezone.
            experience_id: Only departures of this experience.
            options: Settings for this call.
        """
        query = {"date": checked_date("day", day), "experience_id": experience_id}
        spec = get("departures", query=query, options=options)
        return fetch_page(self._client, spec, Departure, Page)

    def get(self, departure_id: str | UUID, *, options: RequestOptions | None = None) -> Departure:
        """Return one departure with its current seats.

        Args:
            departure_id: The id of the departure, from `availability` or a booking.
            options: Settings for this call.

        Raises:
            NotFoundError: No departure has this id.
        """
        return self._get(Departure, "departures", path_segment("departure_id", departure_id), options=options)

    def manifest(self, departure_id: str | UUID, *, options: RequestOptions | None = None) -> Manifest:
        """Return the manifest of a departure: its pending and confirmed bookings by the guest's name, and their sums.

        Needs the scope `bookings:read`.

        Args:
            departure_id: The id of the departure.
            options: Settings for this call.

        Raises:
            NotFoundError: No departure has this id.
            ConflictError: The departure has more than 1,000 bookings; `bookings.iterate(departure_id=...)` reads them.
        """
        return self._get(
            Manifest, "departures", path_segment("departure_id", departure_id), "manifest", options=options
        )
