"""Bookings: list, get, create, cancel."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict
from uuid import UUID

from booking_core.models.bookings import (
    AddOnInput,
    BookingStatus,
    GuestInput,
    GuestLineInput,
    PaymentMode,
    RefundMode,
)
from booking_sdk._discreet import discreet_methods
from booking_sdk._parse import as_type
from booking_sdk.models import Booking
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncPage, AsyncPaginator, Page, Paginator, Walk, from_cursor
from booking_sdk.request import Spec, day, get, given, instant, keyed, plain, plain_lines, segment, windows

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient

StatusFilter = BookingStatus | Literal["pending", "confirmed", "cancelled"]
PaymentChoice = PaymentMode | Literal["pay_on_site", "invoice", "external_paid"]
RefundChoice = RefundMode | Literal["auto", "none"]


class GuestLineParam(TypedDict):
    """How many of a tier."""

    tier_id: str
    count: int


class AddOnParam(TypedDict):
    """How many of an add-on."""

    id: str
    count: int


class GuestParam(TypedDict):
    """Who the booking is for."""

    name: str
    email: str
    phone: NotRequired[str | None]


def _filters(
    status: StatusFilter | None,
    experience_id: str | UUID | None,
    departure_from: date | None,
    departure_to: date | None,
    updated_since: datetime | None,
) -> dict[str, Any]:
    return {
        "status": status,
        "experience_id": experience_id,
        "departure_from": day("departure_from", departure_from),
        "departure_to": day("departure_to", departure_to),
        "updated_since": None if updated_since is None else instant("updated_since", updated_since),
    }


def _windows(departure_from: date | None, departure_to: date | None) -> list[tuple[date | None, date | None]]:
    first, last = day("departure_from", departure_from), day("departure_to", departure_to)
    if first is None or last is None:
        return [(first, last)]
    if last < first:
        raise ValueError("departure_to lies before departure_from")
    return [*windows(first, last)]


def _create(key: str | None, options: RequestOptions | None, **fields: Any) -> Spec:
    """The request, without what is the default: the same intention is the same body, however it is written."""
    body = given(**fields)
    for switch in ("send_confirmation_email", "notify_staff"):
        if body[switch] is True:
            del body[switch]
    return keyed("bookings", body=body, key=key, options=options)


@discreet_methods
class AsyncBookings:
    """Seats sold to guests."""

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(
        self,
        *,
        status: StatusFilter | None = None,
        experience_id: str | UUID | None = None,
        departure_from: date | None = None,
        departure_to: date | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[Booking]:
        """One page of bookings, by creation.

        Args:
            departure_from: departing on this day of the organization or later.
            departure_to: departing on this day or earlier, at most 92 days after the first.
            updated_since: only those changed at or after it.

        Raises:
            UnprocessableEntityError: the window of departures is too wide, or ends before it begins.
        """
        query = {
            **_filters(status, experience_id, departure_from, departure_to, updated_since),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        return await self._client._page(get("bookings", query=query, options=options), Booking, AsyncPage)

    def iterate(
        self,
        *,
        status: StatusFilter | None = None,
        experience_id: str | UUID | None = None,
        departure_from: date | None = None,
        departure_to: date | None = None,
        updated_since: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[Booking]:
        """Every booking, page after page, by creation.

        A window of departures of more than 92 days is asked for in several, one behind the other: the bookings then
        come window by window in the given order, and by creation within each.

        Raises:
            ValueError: the window of departures ends before it begins.
        """
        days = _windows(departure_from, departure_to)[:: 1 if order == "asc" else -1]
        queries = [
            {**_filters(status, experience_id, first, last, updated_since), "order": order} for first, last in days
        ]
        specs = [get("bookings", query=query, options=options) for query in queries]
        return AsyncPaginator(self._client, Walk(from_cursor(specs, starting_after), page_size, max_items), Booking)

    async def get(self, booking_id: str | UUID, *, options: RequestOptions | None = None) -> Booking:
        """One booking.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("bookings", segment("booking_id", booking_id), options=options)
        return await self._client._run(spec, as_type(Booking))

    async def create(
        self,
        *,
        experience_date_id: str | UUID,
        guests: Sequence[GuestLineInput | GuestLineParam],
        customer: GuestInput | GuestParam,
        payment: PaymentChoice,
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        note: str | None = None,
        send_confirmation_email: bool = True,
        notify_staff: bool = True,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Books seats of one departure, confirmed at once. Prices are the service's own.

        Asked again with the same key it books nothing more, and gives the first answer.

        Args:
            experience_date_id: the departure's id, from availability.
            guests: how many of which tier.
            idempotency_key: yours, see `idempotency_key()`; else one is made for this call, to be found on the result
                and on every error.

        Raises:
            InsufficientCapacityError: not enough seats; `seats_available` says how many there are.
            ConflictError: the departure is closed, cancelled or has left; `details` says which.
            NotFoundError: there is no such departure.
            UnprocessableEntityError: a tier or add-on that the experience does not have.
            APIConnectionError: no answer; with `maybe_executed`, the same call with the error's key settles it.
        """
        spec = _create(
            idempotency_key,
            options,
            experience_date_id=str(experience_date_id),
            guests=plain_lines("guests", guests),
            add_ons=None if add_ons is None else plain_lines("add_ons", add_ons),
            customer=plain(customer),
            note=note,
            payment=payment,
            send_confirmation_email=send_confirmation_email,
            notify_staff=notify_staff,
        )
        return await self._client._run(spec, as_type(Booking))

    async def cancel(
        self,
        booking_id: str | UUID,
        *,
        refund: RefundChoice = "auto",
        reason: str | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Gives the seats back. A booking that is cancelled already is answered as it is.

        Args:
            refund: by the organization's policy, or none. Only what was paid by card is ever refunded.
            reason: for the staff.

        Raises:
            NotFoundError: there is none with this id.
            APIConnectionError: no answer; with `maybe_executed`, the same call with the error's key settles it.
        """
        spec = keyed(
            "bookings",
            segment("booking_id", booking_id),
            "cancel",
            body=given(refund=None if refund == "auto" else refund, reason=reason),
            key=idempotency_key,
            options=options,
        )
        return await self._client._run(spec, as_type(Booking))


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class Bookings:
    """Seats sold to guests."""

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(
        self,
        *,
        status: StatusFilter | None = None,
        experience_id: str | UUID | None = None,
        departure_from: date | None = None,
        departure_to: date | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Booking]:
        """One page of bookings, by creation.

        Args:
            departure_from: departing on this day of the organization or later.
            departure_to: departing on this day or earlier, at most 92 days after the first.
            updated_since: only those changed at or after it.

        Raises:
            UnprocessableEntityError: the window of departures is too wide, or ends before it begins.
        """
        query = {
            **_filters(status, experience_id, departure_from, departure_to, updated_since),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        return self._client._page(get("bookings", query=query, options=options), Booking, Page)

    def iterate(
        self,
        *,
        status: StatusFilter | None = None,
        experience_id: str | UUID | None = None,
        departure_from: date | None = None,
        departure_to: date | None = None,
        updated_since: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Booking]:
        """Every booking, page after page, by creation.

        A window of departures of more than 92 days is asked for in several, one behind the other: the bookings then
        come window by window in the given order, and by creation within each.

        Raises:
            ValueError: the window of departures ends before it begins.
        """
        days = _windows(departure_from, departure_to)[:: 1 if order == "asc" else -1]
        queries = [
            {**_filters(status, experience_id, first, last, updated_since), "order": order} for first, last in days
        ]
        specs = [get("bookings", query=query, options=options) for query in queries]
        return Paginator(self._client, Walk(from_cursor(specs, starting_after), page_size, max_items), Booking)

    def get(self, booking_id: str | UUID, *, options: RequestOptions | None = None) -> Booking:
        """One booking.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("bookings", segment("booking_id", booking_id), options=options)
        return self._client._run(spec, as_type(Booking))

    def create(
        self,
        *,
        experience_date_id: str | UUID,
        guests: Sequence[GuestLineInput | GuestLineParam],
        customer: GuestInput | GuestParam,
        payment: PaymentChoice,
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        note: str | None = None,
        send_confirmation_email: bool = True,
        notify_staff: bool = True,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Books seats of one departure, confirmed at once. Prices are the service's own.

        Asked again with the same key it books nothing more, and gives the first answer.

        Args:
            experience_date_id: the departure's id, from availability.
            guests: how many of which tier.
            idempotency_key: yours, see `idempotency_key()`; else one is made for this call, to be found on the result
                and on every error.

        Raises:
            InsufficientCapacityError: not enough seats; `seats_available` says how many there are.
            ConflictError: the departure is closed, cancelled or has left; `details` says which.
            NotFoundError: there is no such departure.
            UnprocessableEntityError: a tier or add-on that the experience does not have.
            APIConnectionError: no answer; with `maybe_executed`, the same call with the error's key settles it.
        """
        spec = _create(
            idempotency_key,
            options,
            experience_date_id=str(experience_date_id),
            guests=plain_lines("guests", guests),
            add_ons=None if add_ons is None else plain_lines("add_ons", add_ons),
            customer=plain(customer),
            note=note,
            payment=payment,
            send_confirmation_email=send_confirmation_email,
            notify_staff=notify_staff,
        )
        return self._client._run(spec, as_type(Booking))

    def cancel(
        self,
        booking_id: str | UUID,
        *,
        refund: RefundChoice = "auto",
        reason: str | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Gives the seats back. A booking that is cancelled already is answered as it is.

        Args:
            refund: by the organization's policy, or none. Only what was paid by card is ever refunded.
            reason: for the staff.

        Raises:
            NotFoundError: there is none with this id.
            APIConnectionError: no answer; with `maybe_executed`, the same call with the error's key settles it.
        """
        spec = keyed(
            "bookings",
            segment("booking_id", booking_id),
            "cancel",
            body=given(refund=None if refund == "auto" else refund, reason=reason),
            key=idempotency_key,
            options=options,
        )
        return self._client._run(spec, as_type(Booking))
