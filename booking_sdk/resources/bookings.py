"""Bookings: list, get, create, cancel, move, change the party, check in."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Unpack
from uuid import UUID

from booking_core.models.bookings import AddOnInput, Booking, BookingChange, BookingQuote, GuestInput, GuestLineInput
from booking_sdk._lists import page_iterator
from booking_sdk._resource import AsyncAPIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator
from booking_sdk.params import (
    AddOnParam,
    GuestLineParam,
    GuestParam,
    IterateBookings,
    ListBookings,
    PaymentParam,
    RefundParam,
)
from booking_sdk.request import (
    basket_fields,
    body_fields,
    body_lines,
    checked_date,
    date_windows,
    one_departure_id,
    path_segment,
    read_with_post,
    without_none,
)


def _departure_windows(departure_from: date | None, departure_to: date | None) -> list[tuple[date | None, date | None]]:
    first, last = checked_date("departure_from", departure_from), checked_date("departure_to", departure_to)
    if first is None or last is None:
        return [(first, last)]
    if last < first:
        raise ValueError("departure_to is before departure_from")
    return [*date_windows(first, last)]


def _create_body(**fields: Any) -> dict[str, Any]:
    """Return the body without fields that have their default value: equal calls send equal bodies."""
    body = without_none(**fields)
    for switch in ("send_confirmation_email", "notify_staff"):
        if body[switch] is True:
            del body[switch]
    if body["external_reference_unique"] is False:
        del body["external_reference_unique"]
    return body


def _party_body(
    guests: Sequence[GuestLineInput | GuestLineParam],
    add_ons: Sequence[AddOnInput | AddOnParam] | None,
    refund: RefundParam,
) -> dict[str, Any]:
    return without_none(
        guests=body_lines("guests", guests),
        add_ons=None if add_ons is None else body_lines("add_ons", add_ons),
        refund=None if refund == "auto" else refund,
    )


@scrub_tracebacks
class AsyncBookings(AsyncAPIResource):
    """Bookings: seats of one departure, sold to a guest. Reading needs `bookings:read`, changing `bookings:write`."""

    async def list(self, **arguments: Unpack[ListBookings]) -> AsyncPage[Booking]:
        """List one page of bookings, by creation time.

            page = await client.bookings.list(status="confirmed", limit=10)

        Args:
            **arguments: Filters and paging, see `ListBookings`.

        Raises:
            UnprocessableEntityError: The window of departures is too wide, or ends before it begins.
        """
        return await self._list(Booking, ListBookings, "bookings", arguments=arguments)

    def iterate(self, **arguments: Unpack[IterateBookings]) -> AsyncPaginator[Booking]:
        """Iterate over all bookings, by creation time.

            async for booking in client.bookings.iterate(updated_since=last_sync):
                print(booking.booking_number, booking.status)

        A window of departures of more than 92 days is requested as several windows. The bookings then come window by
        window in the given order, and by creation time within each window.

        Args:
            **arguments: Filters and paging, see `IterateBookings`.

        Raises:
            ValueError: The window of departures ends before it begins.
        """
        days = _departure_windows(arguments.get("departure_from"), arguments.get("departure_to"))
        windows = [{"departure_from": first, "departure_to": last} for first, last in days]
        if arguments.get("order") != "asc":
            windows.reverse()
        pages = page_iterator(IterateBookings, "bookings", arguments=arguments, windows=windows)
        return AsyncPaginator(self._client, pages, Booking)

    async def get(self, booking_id: str | UUID, *, options: RequestOptions | None = None) -> Booking:
        """Return one booking.

        Args:
            booking_id: The id of the booking.
            options: Settings for this call.

        Raises:
            NotFoundError: No booking has this id.
        """
        return await self._get(Booking, "bookings", path_segment("booking_id", booking_id), options=options)

    async def create(
        self,
        *,
        departure_id: str | UUID | None = None,
        experience_date_id: str | UUID | None = None,
        guests: Sequence[GuestLineInput | GuestLineParam],
        customer: GuestInput | GuestParam,
        payment: PaymentParam,
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        note: str | None = None,
        send_confirmation_email: bool = True,
        notify_staff: bool = True,
        locale: str | None = None,
        hold_id: str | UUID | None = None,
        external_reference: str | None = None,
        external_reference_unique: bool = False,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Book seats of one departure. The booking is confirmed at once; the service sets the prices.

            booking = await client.bookings.create(
                departure_id=departure.id,
                guests=[{"tier_id": "adult", "count": 2}],
                customer={"name": "Ada Lovelace", "email": "ada@example.com"},
                payment="external_paid",
                idempotency_key=idempotency_key("order", order.id),
            )

        Repeated with the same key, the call books nothing more and returns the first result, even if the booking was
        cancelled since; `meta(booking).idempotent_replayed` is true then, and `get` returns its present state.

        Args:
            departure_id: The id of the departure, from `availability`.
            experience_date_id: Another name of `departure_id`; a call has one of the two.
            guests: The number of guests per price tier.
            customer: The contact details of the guest.
            payment: `pay_on_site`, `invoice` or `external_paid`.
            add_ons: The number of each add-on.
            note: A note for the staff.
            send_confirmation_email: False to send no e-mail to the guest.
            notify_staff: False to send no e-mail to the staff.
            locale: The guest's language for mails and the guest's page, such as `de` or `fr-CH`.
            hold_id: A hold of this departure, from `holds.create`, whose seats the booking takes over.
            external_reference: The name of the booking in your system, to find it by.
            external_reference_unique: True to refuse the booking if another one has this reference.
            metadata: Up to 50 texts of yours by name. They come back with the booking and in its events.
            idempotency_key: Your key, see `idempotency_key()`. Generated when omitted; `meta(booking)` and every error
                contain it.
            options: Settings for this call.

        Raises:
            InsufficientCapacityError: Not enough seats; `seats_available` is the number that is left.
            ConflictError: The departure is closed, cancelled or has left, the hold has ended, or the reference is
                taken; `details` names the reason.
            NotFoundError: No departure, or no hold, has this id.
            UnprocessableEntityError: The experience does not have this tier or add-on.
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        body = _create_body(
            **basket_fields(one_departure_id(departure_id, experience_date_id), guests, add_ons, hold_id),
            customer=body_fields(customer),
            note=note,
            payment=payment,
            send_confirmation_email=send_confirmation_email,
            notify_staff=notify_staff,
            locale=locale,
            external_reference=external_reference,
            external_reference_unique=external_reference_unique,
            metadata=None if metadata is None else dict(metadata),
        )
        return await self._post(Booking, "bookings", body=body, key=idempotency_key, options=options)

    async def quote(
        self,
        *,
        departure_id: str | UUID | None = None,
        experience_date_id: str | UUID | None = None,
        guests: Sequence[GuestLineInput | GuestLineParam],
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        hold_id: str | UUID | None = None,
        external_reference: str | None = None,
        external_reference_unique: bool = False,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> BookingQuote:
        """Return the price of a booking and each reason why it would be refused. Nothing is booked or held.

            quote = await client.bookings.quote(departure_id=departure.id, guests=guests)
            if quote.allowed:
                print(quote.totals.total, quote.seats)

        Needs the scope `bookings:write`, like the booking itself.

        Args:
            departure_id: The id of the departure, from `availability`.
            experience_date_id: Another name of `departure_id`; a call has one of the two.
            guests: The number of guests per price tier.
            add_ons: The number of each add-on.
            hold_id: A hold of the departure, whose seats count as available.
            external_reference: The name of the booking in your system.
            external_reference_unique: True to count a booking that has this reference as a reason.
            idempotency_key: The key of the order. If it already has a booking, the quote is allowed and names it.
            options: Settings for this call.

        Raises:
            NotFoundError: No departure has this id.
        """
        body = without_none(
            **basket_fields(one_departure_id(departure_id, experience_date_id), guests, add_ons, hold_id),
            external_reference=external_reference,
            external_reference_unique=external_reference_unique or None,
        )
        spec = read_with_post("bookings", "quote", body=body, key=idempotency_key, options=options)
        return await self._send(BookingQuote, spec)

    async def cancel(
        self,
        booking_id: str | UUID,
        *,
        refund: RefundParam = "auto",
        reason: str | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Cancel a booking and release its seats. A booking that is already cancelled is returned unchanged.

        Args:
            booking_id: The id of the booking.
            refund: `auto` to refund by the organization's policy, or `none`. Only card payments are refunded.
            reason: The reason, for the staff.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            NotFoundError: No booking has this id.
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        return await self._post(
            Booking,
            "bookings",
            path_segment("booking_id", booking_id),
            "cancel",
            body=without_none(refund=None if refund == "auto" else refund, reason=reason),
            key=idempotency_key,
            options=options,
        )

    async def reschedule(
        self,
        booking_id: str | UUID,
        *,
        departure_id: str | UUID,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> BookingChange:
        """Move a booking to another departure. Its price stays as sold.

            change = await client.bookings.reschedule(booking.id, departure_id=departure.id)
            print(change.booking.departure.starts_at)

        Args:
            booking_id: The id of the booking.
            departure_id: The id of the other departure, from `availability`.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            InsufficientCapacityError: Not enough seats; `seats_available` is the number that is left.
            ConflictError: The booking is cancelled, or the departure is closed, cancelled or has left; `details` names
                the reason.
            NotFoundError: No booking or no departure has this id.
            UnprocessableEntityError: The departure is sold in another currency.
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        return await self._post(
            BookingChange,
            "bookings",
            path_segment("booking_id", booking_id),
            "reschedule",
            body={"departure_id": str(departure_id)},
            key=idempotency_key,
            options=options,
        )

    async def preview_reschedule(
        self, booking_id: str | UUID, *, departure_id: str | UUID, options: RequestOptions | None = None
    ) -> BookingChange:
        """Return what `reschedule` would return now, with each reason to refuse it. Nothing is changed.

        Args:
            booking_id: The id of the booking.
            departure_id: The id of the other departure, from `availability`.
            options: Settings for this call.

        Raises:
            NotFoundError: No booking or no departure has this id.
        """
        path = ("bookings", path_segment("booking_id", booking_id), "reschedule", "preview")
        spec = read_with_post(*path, body={"departure_id": str(departure_id)}, options=options)
        return await self._send(BookingChange, spec)

    async def change_party(
        self,
        booking_id: str | UUID,
        *,
        guests: Sequence[GuestLineInput | GuestLineParam],
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        refund: RefundParam = "auto",
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> BookingChange:
        """Change the party of a booking. Guests who stay keep their price, and guests who join pay today's price.

            change = await client.bookings.change_party(booking.id, guests=[{"tier_id": "adult", "count": 3}])
            print(change.money.settlement, change.money.balance_due)

        Args:
            booking_id: The id of the booking.
            guests: The number of all guests per price tier, including the guests who stay.
            add_ons: The number of each add-on; without it they stay as they are.
            refund: `auto` to refund guests who leave by the terms of a cancellation, or `none`.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            InsufficientCapacityError: Not enough seats; `seats_available` is the number that is left.
            ConflictError: The booking is cancelled, pending, checked in or paid by card and would cost more, or the
                departure has left, or is closed for more guests; `details` names the reason.
            NotFoundError: No booking has this id.
            UnprocessableEntityError: The experience does not have this tier or add-on.
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        path = ("bookings", path_segment("booking_id", booking_id), "party")
        body = _party_body(guests, add_ons, refund)
        return await self._post(BookingChange, *path, body=body, key=idempotency_key, options=options)

    async def preview_party(
        self,
        booking_id: str | UUID,
        *,
        guests: Sequence[GuestLineInput | GuestLineParam],
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        refund: RefundParam = "auto",
        options: RequestOptions | None = None,
    ) -> BookingChange:
        """Return what `change_party` would return now, with each reason to refuse it. Nothing is changed.

        Args:
            booking_id: The id of the booking.
            guests: The number of all guests per price tier.
            add_ons: The number of each add-on; without it they stay as they are.
            refund: `auto` to refund guests who leave by the terms of a cancellation, or `none`.
            options: Settings for this call.

        Raises:
            NotFoundError: No booking has this id.
        """
        path = ("bookings", path_segment("booking_id", booking_id), "party", "preview")
        spec = read_with_post(*path, body=_party_body(guests, add_ons, refund), options=options)
        return await self._send(BookingChange, spec)

    async def change_guest(
        self,
        booking_id: str | UUID,
        *,
        name: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        note: str | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Change the guest of a booking. Omitted fields stay as they are, and so does the customer's record.

            booking = await client.bookings.change_guest(booking.id, email="ada.king@example.com")
            print(booking.manage_url)  # another link: the one of before opens nothing

        Args:
            booking_id: The id of the booking.
            name: The guest's name.
            email: The guest's address. The confirmation is sent again, to this address.
            phone: The guest's phone number; an empty text removes it.
            note: The note for staff; an empty text removes it.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            ConflictError: The booking is cancelled, or its guest's data was erased; `details` names the reason.
            NotFoundError: No booking has this id.
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        path = ("bookings", path_segment("booking_id", booking_id), "guest")
        body = without_none(name=name, email=email, phone=phone, note=note)
        return await self._post(Booking, *path, body=body, key=idempotency_key, options=options)

    async def check_in(
        self,
        booking_id: str | UUID,
        *,
        undo: bool = False,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Check in the guests of a booking. A booking that is checked in is returned unchanged.

        Args:
            booking_id: The id of the booking.
            undo: True to take the check-in back.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            NotFoundError: No booking has this id.
            ConflictError: The booking is cancelled or pending; `details` names the reason.
        """
        return await self._attend(booking_id, "check-in", undo, idempotency_key, options)

    async def no_show(
        self,
        booking_id: str | UUID,
        *,
        undo: bool = False,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Booking:
        """Record that the guests of a booking did not come. Seats and money stay as they are.

        Args:
            booking_id: The id of the booking.
            undo: True to take the record back.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            NotFoundError: No booking has this id.
            ConflictError: The booking is cancelled or pending; `details` names the reason.
        """
        return await self._attend(booking_id, "no-show", undo, idempotency_key, options)

    async def _attend(
        self, booking_id: str | UUID, verb: str, undo: bool, key: str | None, options: RequestOptions | None
    ) -> Booking:
        body = {"undo": True} if undo else {}
        path = ("bookings", path_segment("booking_id", booking_id), verb)
        return await self._post(Booking, *path, body=body, key=key, options=options)
