"""Departures and their seats."""

from datetime import date
from typing import TYPE_CHECKING
from uuid import UUID

from booking_core.models.departures import Departure
from booking_sdk._discreet import discreet_methods
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncPage, AsyncPaginator, Page, Paginator, Walk
from booking_sdk.request import Spec, day, get, windows

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient


def _spec(
    date_from: date, date_to: date | None, experience_id: str | UUID | None, options: RequestOptions | None
) -> Spec:
    query = {"experience_id": experience_id, "from": day("date_from", date_from), "to": day("date_to", date_to)}
    return get("availability", query=query, options=options)


@discreet_methods
class AsyncAvailability:
    """What can be booked, with the seats that are left."""

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(
        self,
        *,
        date_from: date,
        date_to: date | None = None,
        experience_id: str | UUID | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[Departure]:
        """Every departure of a window of at most 92 days, by start, on one page.

        Args:
            date_from: first day, in the organization's timezone.
            date_to: last day, included; 30 days after the first unless given.
            experience_id: only departures of this one.

        Raises:
            UnprocessableEntityError: the window is too wide, or ends before it begins.
        """
        return await self._client._page(_spec(date_from, date_to, experience_id, options), Departure, AsyncPage)

    def iterate(
        self,
        *,
        date_from: date,
        date_to: date | None = None,
        experience_id: str | UUID | None = None,
        max_items: int | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[Departure]:
        """Every departure of a window of any width, by start, asked for in windows of at most 92 days.

        Raises:
            ValueError: the window ends before it begins.
        """
        day("date_from", date_from)
        if day("date_to", date_to) is not None and date_to is not None and date_to < date_from:
            raise ValueError("date_to lies before date_from")
        days = [(date_from, None)] if date_to is None else windows(date_from, date_to)
        specs = [_spec(first, last, experience_id, options) for first, last in days]
        return AsyncPaginator(self._client, Walk(specs, None, max_items), Departure)


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class Availability:
    """What can be booked, with the seats that are left."""

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(
        self,
        *,
        date_from: date,
        date_to: date | None = None,
        experience_id: str | UUID | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Departure]:
        """Every departure of a window of at most 92 days, by start, on one page.

        Args:
            date_from: first day, in the organization's timezone.
            date_to: last day, included; 30 days after the first unless given.
            experience_id: only departures of this one.

        Raises:
            UnprocessableEntityError: the window is too wide, or ends before it begins.
        """
        return self._client._page(_spec(date_from, date_to, experience_id, options), Departure, Page)

    def iterate(
        self,
        *,
        date_from: date,
        date_to: date | None = None,
        experience_id: str | UUID | None = None,
        max_items: int | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Departure]:
        """Every departure of a window of any width, by start, asked for in windows of at most 92 days.

        Raises:
            ValueError: the window ends before it begins.
        """
        day("date_from", date_from)
        if day("date_to", date_to) is not None and date_to is not None and date_to < date_from:
            raise ValueError("date_to lies before date_from")
        days = [(date_from, None)] if date_to is None else windows(date_from, date_to)
        specs = [_spec(first, last, experience_id, options) for first, last in days]
        return Paginator(self._client, Walk(specs, None, max_items), Departure)
