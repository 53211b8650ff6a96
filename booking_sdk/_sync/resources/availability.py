# Generated from booking_sdk/resources/availability.py by `make sync-client`. Do not edit.
"""Departures and the seats that are left on them."""

from datetime import date
from uuid import UUID

from booking_core.models.departures import Departure
from booking_sdk._page_iterator import PageIterator
from booking_sdk._sync._resource import APIResource
from booking_sdk._sync.pagination import Page, Paginator, fetch_page
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.request import RequestSpec, checked_date, date_windows, get


def _spec(
    date_from: date, date_to: date | None, experience_id: str | UUID | None, options: RequestOptions | None
) -> RequestSpec:
    query = {
        "experience_id": experience_id,
        "from": checked_date("date_from", date_from),
        "to": checked_date("date_to", date_to),
    }
    return get("availability", query=query, options=options)


@scrub_tracebacks
class Availability(APIResource):
    """Departures and the seats that are left on them. Needs the scope `availability:read`."""

    def list(
        self,
        *,
        date_from: date,
        date_to: date | None = None,
        experience_id: str | UUID | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Departure]:
        """List the departures of a window of at most 92 days on one page, by start.

            page = client.availability.list(date_from=date.today())

        Args:
            date_from: The first day, in the organization's timezone.
            date_to: The last day, inclusive. Defaults to 30 days after the first.
            experience_id: Only departures of this experience.
            options: Settings for this call.

        Raises:
            UnprocessableEntityError: The window is too wide, or ends before it begins.
        """
        spec = _spec(date_from, date_to, experience_id, options)
        return fetch_page(self._client, spec, Departure, Page)

    def iterate(
        self,
        *,
        date_from: date,
        date_to: date | None = None,
        experience_id: str | UUID | None = None,
        max_items: int | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Departure]:
        """Iterate over the departures of a window of any width, by start. Each request covers at most 92 days.

        Args:
            date_from: The first day, in the organization's timezone.
            date_to: The last day, inclusive. Defaults to 30 days after the first.
            experience_id: Only departures of this experience.
            max_items: The maximum number of departures.
            options: Settings for each request.

        Raises:
            ValueError: The window ends before it begins.
        """
        checked_date("date_from", date_from)
        if checked_date("date_to", date_to) is not None and date_to is not None and date_to < date_from:
            raise ValueError("date_to is before date_from")
        days = [(date_from, None)] if date_to is None else date_windows(date_from, date_to)
        specs = [_spec(first, last, experience_id, options) for first, last in days]
        return Paginator(self._client, PageIterator(specs, None, max_items), Departure)
