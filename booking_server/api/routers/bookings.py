"""`/api/v1/bookings`: list, get, quote, create, cancel, move, change of party or guest, check-in and no-show."""

from typing import Annotated

from fastapi import Query

from booking_core import bookings
from booking_core.base.errors import Conflict, InsufficientCapacity, NotFound, Unprocessable
from booking_core.bookings import CreateRequest, Party
from booking_core.db.engine import Tx
from booking_core.models.bookings import (
    Booking,
    BookingAttendance,
    BookingCancel,
    BookingChange,
    BookingCreate,
    BookingGuestChange,
    BookingPartyChange,
    BookingQuote,
    BookingQuoteRequest,
    BookingReschedule,
    BookingStatus,
    CancelReason,
    RefundMode,
)
from booking_core.models.pages import Page
from booking_core.records.idempotency import Answer
from booking_server.api.commands import IdempotentCommand, Keyed, OptionallyIdempotentCommand, OrderKey
from booking_server.api.dependencies import ApiRouter, BookingsReader, BookingsWriter, Lane, ReadTx, runs_in
from booking_server.api.errors import SALE_REFUSALS, WINDOW_TOO_WIDE, refusals
from booking_server.api.parameters import BookingNumber, Day, EmailText, ListQuery, PathId, QueryId, Text, Timestamp

router = ApiRouter(prefix="/api/v1/bookings", tags=["Bookings"])


class BookingQuery(ListQuery):
    """The filters of the list of bookings."""

    status: BookingStatus | None = None
    """Only bookings in this status."""
    experience_id: QueryId | None = None
    """Only bookings of this experience."""
    departure_from: Day | None = None
    """Departure on this day or later."""
    departure_to: Day | None = None
    """Departure on this day or earlier."""
    updated_since: Timestamp | None = None
    """Only bookings changed at or after it."""
    departure_id: QueryId | None = None
    """Only bookings of this departure."""
    customer_id: QueryId | None = None
    """Only bookings of this customer."""
    booking_number: BookingNumber | None = None
    """Only the booking with this number."""
    email: EmailText | None = None
    """Only bookings of the customer with this address, in any case."""
    external_reference: Text | None = None
    """Only bookings with this reference, exactly."""


@router.get(
    "",
    summary="List bookings",
    response_model=Page[Booking],
    response_description="A page of bookings.",
    responses=refusals(Unprocessable.at("departure_to", WINDOW_TOO_WIDE, "window_too_wide")),
)
@runs_in(Lane.LISTS)
def list_bookings(caller: BookingsReader, tx: ReadTx, query: Annotated[BookingQuery, Query()]) -> object:
    """`departure_from` and `departure_to` are days of the organization, at most 92 apart; if only one is given, the
    other is 92 days away. `email` is the address of the customer's record: a booking keeps the address that its guest
    gave, which may differ after a change of the record. `manage_url` is filled in for keys that hold
    `bookings:write`."""
    filters = bookings.BookingConditions(
        status=query.status,
        experience_id=query.experience_id,
        departure_from=query.departure_from,
        departure_to=query.departure_to,
        updated_since=query.instant("updated_since", caller),
        departure_id=query.departure_id,
        customer_id=query.customer_id,
        number=query.booking_number,
        email=query.email,
        external_reference=query.external_reference,
    )
    return bookings.find(tx, caller, query.page, filters)


@router.get(
    "/{id}",
    summary="Get a booking",
    response_model=Booking,
    response_description="The booking.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_booking(caller: BookingsReader, tx: ReadTx, booking_id: PathId) -> object:
    return bookings.get(tx, caller, booking_id)


@router.post(
    "",
    summary="Create a booking",
    status_code=201,
    response_model=Booking,
    response_description="The booking, confirmed.",
    responses=refusals(Conflict("departure_started", "The departure has started."), *SALE_REFUSALS),
)
@runs_in(Lane.BOOKINGS)
def create_booking(caller: BookingsWriter, keyed: Keyed, body: BookingCreate) -> CreateRequest:
    """Books seats of one departure, confirmed at once. The body carries counts, never amounts: prices come from the
    experience's tiers (an experience without tiers sells `standard`, at the departure's price). A retry with the same
    key and body gets the first answer again, even after a crash. `details` gives the reason of a `conflict`
    (`departure_cancelled`, `departure_closed`, `departure_started`, `external_reference_taken`, and of a hold
    `hold_expired`, `hold_released`, `hold_booked`, `hold_of_another_departure`) and of a 422 `validation_failed`
    (`unknown_tier`, `unknown_add_on`, `add_ons_app_disabled`, `amount_overflow`).

    With `hold_id` the booking takes over the seats of a hold of this departure, once. A larger party needs more
    available seats; the other seats of a larger hold are available again.

    `external_reference` is your id of the booking, and `metadata` has up to 50 of your texts; the booking and its
    events return both. With `external_reference_unique` the booking is refused (`external_reference_taken`) when the
    organization has one with that reference already, cancelled or not: an order is then booked once, also under another
    key."""
    return keyed.creation(caller, body)


@router.post(
    "/quote",
    summary="Quote a booking",
    response_model=BookingQuote,
    response_description="The quote.",
    responses=refusals(NotFound),
)
@runs_in(Lane.LISTS)
def quote_booking(caller: BookingsWriter, tx: ReadTx, key: OrderKey, body: BookingQuoteRequest) -> object:
    """Returns the price, the needed seats and the available seats of `POST /bookings` with the same body, and in
    `refusals` each reason to refuse it, with the code and reason of its error. The guest and the payment may be
    omitted. Nothing is held or written, so the booking may be refused a moment later: hold the seats first. With the
    `Idempotency-Key` of an order that is booked already, the quote is allowed and names the booking. An unknown
    departure is a 404."""
    return bookings.quote(tx, caller, body, key=key)


@router.post(
    "/{id}/cancel",
    summary="Cancel a booking",
    response_model=Booking,
    response_description="The booking, cancelled.",
)
async def cancel_booking(
    caller: BookingsWriter,
    command: IdempotentCommand,
    booking_id: PathId,
    body: BookingCancel = BookingCancel(),  # noqa: B008 - frozen
) -> Answer:
    """Releases the seats, and returns a gift card's payment to the card. A booking that is already cancelled is
    answered unchanged, so a retry is always safe. `refund: auto` refunds a card payment (`payment.source` is `stripe`)
    by the organization's policy, `none` keeps the money. Staff return other payments, on site or by invoice, by hand.
    The booking is cancelled at once: `payment.status` stays `paid` until the gateway has answered."""
    refund = body.refund or RefundMode.AUTO

    def work(tx: Tx) -> bytes:
        return bookings.cancel(tx, caller, booking_id, reason=CancelReason.API, note=body.reason, refund=refund)

    return await command.write(caller, work)


@router.post(
    "/{id}/reschedule",
    summary="Move a booking to another departure",
    response_model=BookingChange,
    response_description="The booking on its new departure.",
    responses=refusals(
        Conflict("departure_closed", "Booking of this departure has closed."),
        InsufficientCapacity(1),
        Unprocessable.at("departure_id", "The departure is sold in EUR.", "currency_mismatch"),
    ),
)
async def reschedule_booking(
    caller: BookingsWriter, command: IdempotentCommand, booking_id: PathId, body: BookingReschedule
) -> Answer:
    """Takes seats of the new departure and releases the seats of the former one, or does neither. Lines and totals stay
    as sold, also at a departure of another experience; `list_price` has their price there today. A check-in and a
    no-show are cleared. The guest gets a mail, and the event is `booking.rescheduled`. A booking that is on that
    departure already is answered unchanged. `details` gives the reason of a `conflict` (`booking_cancelled`,
    `departure_cancelled`, `departure_closed`, `departure_started`) and of a 422 (`currency_mismatch`)."""
    return await command.write(caller, lambda tx: bookings.apply_reschedule(tx, caller, booking_id, body.departure_id))


@router.post(
    "/{id}/reschedule/preview",
    summary="Preview the move of a booking to another departure",
    response_model=BookingChange,
    response_description="The booking as it would be, or the reasons why it would not move.",
)
@runs_in(Lane.LISTS)
def preview_reschedule(caller: BookingsWriter, tx: ReadTx, booking_id: PathId, body: BookingReschedule) -> object:
    """Gives the answer that `POST /bookings/{id}/reschedule` would give now, and changes nothing. `refusals` has each
    reason to refuse it."""
    return bookings.preview_reschedule(tx, caller, booking_id, body.departure_id)


def _party(body: BookingPartyChange) -> Party:
    return Party(guests=body.guests, add_ons=body.add_ons, refund=body.refund or RefundMode.AUTO)


@router.post(
    "/{id}/party",
    summary="Change the party of a booking",
    response_model=BookingChange,
    response_description="The booking with its new party.",
    responses=refusals(
        Conflict("booking_checked_in", "The guests are checked in: take the check-in back first."), *SALE_REFUSALS
    ),
)
async def change_party(
    caller: BookingsWriter, command: IdempotentCommand, booking_id: PathId, body: BookingPartyChange
) -> Answer:
    """Sets the whole party, so a repeated request changes nothing more. Guests who stay keep their price, and
    additional guests pay today's price of their tier. Payments for guests who leave are refunded by the terms of a
    cancellation, money before the gift card. The event is `booking.updated`. `details` gives the reason of a `conflict`
    (`booking_cancelled`, `booking_pending`, `booking_checked_in`, `booking_no_show`, `departure_cancelled`,
    `departure_started`; `departure_closed` for more guests; `payment_pending`; `paid_by_card`: the price of a booking
    that a card has paid cannot rise) and of a 422 (`unknown_tier`, `unknown_add_on`, `add_ons_app_disabled`,
    `amount_overflow`, `currency_mismatch`)."""
    party = _party(body)
    return await command.write(caller, lambda tx: bookings.change_party(tx, caller, booking_id, party))


@router.post(
    "/{id}/party/preview",
    summary="Preview a change of the party of a booking",
    response_model=BookingChange,
    response_description="The booking as it would be, or the reasons why its party would not change.",
)
@runs_in(Lane.LISTS)
def preview_party(caller: BookingsWriter, tx: ReadTx, booking_id: PathId, body: BookingPartyChange) -> object:
    """Gives the answer that `POST /bookings/{id}/party` would give now, and changes nothing. `refusals` has each reason
    to refuse it."""
    return bookings.preview_party(tx, caller, booking_id, _party(body))


@router.post(
    "/{id}/guest",
    summary="Change the guest of a booking",
    response_model=Booking,
    response_description="The booking with its new guest.",
    responses=refusals(Conflict("booking_cancelled", "The booking is cancelled.")),
)
async def change_guest(
    caller: BookingsWriter, command: IdempotentCommand, booking_id: PathId, body: BookingGuestChange
) -> Answer:
    """Changes the fields that are sent, at least one of `name`, `email`, `phone` and `note`, and leaves the customer's
    record and the booking's customer as they are. A new `email` ends the guest's link of before: the booking has
    another `manage_url`, and a confirmation that was sent is sent again, to the new address. An address with other
    capital letters is not a new one. Mails go to the address that the booking has when they are written. The event is
    `booking.updated`, with the former `customer` and `note` in `changes`. The same data is answered unchanged.
    `details` gives the reason of a `conflict`: `booking_cancelled`, or `customer_anonymized` after an erasure."""
    return await command.write(caller, lambda tx: bookings.change_guest(tx, caller, booking_id, body))


_NOT_CONFIRMED = refusals(Conflict("booking_cancelled", "The booking is cancelled."))


@router.post(
    "/{id}/check-in",
    summary="Check in the guests of a booking",
    response_model=Booking,
    response_description="The booking, checked in.",
    responses=_NOT_CONFIRMED,
)
async def check_in_booking(
    caller: BookingsWriter,
    command: OptionallyIdempotentCommand,
    booking_id: PathId,
    body: BookingAttendance = BookingAttendance(),  # noqa: B008 - frozen
) -> Answer:
    """Sets `checked_in_at`, and clears `no_show_at`. A booking that is checked in is answered unchanged, so a retry is
    always safe; `undo` takes the check-in back. `details` gives the reason of a `conflict`: `booking_cancelled` or
    `booking_pending`. A move to another departure clears both."""
    undo = body.undo is True
    return await command.write(caller, lambda tx: bookings.check_in(tx, caller, booking_id, undo=undo))


@router.post(
    "/{id}/no-show",
    summary="Record that the guests of a booking did not come",
    response_model=Booking,
    response_description="The booking, recorded as a no-show.",
    responses=_NOT_CONFIRMED,
)
async def record_no_show(
    caller: BookingsWriter,
    command: OptionallyIdempotentCommand,
    booking_id: PathId,
    body: BookingAttendance = BookingAttendance(),  # noqa: B008 - frozen
) -> Answer:
    """Sets `no_show_at`, and clears `checked_in_at`. Seats and money stay as they are: cancelling is another decision.
    A booking that is recorded is answered unchanged; `undo` takes the record back. `details` gives the reason of a
    `conflict`: `booking_cancelled` or `booking_pending`."""
    undo = body.undo is True
    return await command.write(caller, lambda tx: bookings.record_no_show(tx, caller, booking_id, undo=undo))
