"""`/api/v1/bookings`: list, get, create, cancel."""

from booking_core import bookings
from booking_core.bookings import Create
from booking_core.db.engine import Tx
from booking_core.errors import Conflict, InsufficientCapacity, NotFound, Unprocessable
from booking_core.idempotency import Answer
from booking_core.models.bookings import (
    Booking,
    BookingCancel,
    BookingCreate,
    BookingStatus,
    CancelReason,
    RefundMode,
)
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_server.api import params
from booking_server.api.operations import Call, Operation
from booking_server.api.routers.paged import page_request


def _find(tx: Tx, call: Call) -> object:
    query = call.query
    return bookings.find(
        tx,
        call.caller,
        page_request(call),
        status=query["status"],
        experience_id=query["experience_id"],
        departure_from=query["departure_from"],
        departure_to=query["departure_to"],
        updated_since=query["updated_since"],
    )


def _get(tx: Tx, call: Call) -> object:
    return bookings.get(tx, call.caller, call.ids["id"])


def _create(call: Call) -> Create:
    assert call.once is not None
    return Create(call.caller, call.body, call.once, call.refuse)


def _cancel(tx: Tx, call: Call) -> Answer:
    shown = bookings.cancel(
        tx,
        call.caller,
        call.ids["id"],
        reason=CancelReason.API,
        note=call.body.reason,
        refund=call.body.refund or RefundMode.AUTO,
    )
    return Answer(200, shown)


_EXAMPLE = {
    "experience_date_id": "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55",
    "guests": [{"tier_id": "adult", "count": 2}],
    "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"},
    "payment": "pay_on_site",
}

OPERATIONS = (
    Operation(
        id="list_bookings",
        method="GET",
        path="/api/v1/bookings",
        tag="Bookings",
        summary="List bookings",
        description=(
            "`departure_from` and `departure_to` are days of the organization, at most 92 apart; with one of them the "
            "other lies 92 days away. `manage_url` is filled in for keys that hold `bookings:write`."
        ),
        scope=Scope.BOOKINGS_READ,
        act=_find,
        query=(
            *params.LIST,
            params.choice("status", BookingStatus, "Only bookings in this status."),
            params.uuid("experience_id", "Only bookings of this experience."),
            params.day("departure_from", "Departure on this day or later."),
            params.day("departure_to", "Departure on this day or earlier."),
            params.instant("updated_since", "Only bookings changed at or after it."),
        ),
        answers={200: ("A page of bookings.", Page[Booking])},
        refusals=(Unprocessable,),
    ),
    Operation(
        id="get_booking",
        method="GET",
        path="/api/v1/bookings/{id}",
        tag="Bookings",
        summary="Get a booking",
        scope=Scope.BOOKINGS_READ,
        act=_get,
        answers={200: ("The booking.", Booking)},
        refusals=(NotFound,),
    ),
    Operation(
        id="create_booking",
        method="POST",
        path="/api/v1/bookings",
        tag="Bookings",
        summary="Create a booking",
        description=(
            "Books seats of one departure, confirmed at once. The body carries counts, never amounts: prices come from "
            "the experience's tiers (an experience without tiers sells `standard`, at the departure's price). A retry "
            "with the same key and body gets the first answer again, whatever happened in between. `details` gives the "
            "reason of a `conflict` (`departure_cancelled`, `departure_closed`, `departure_started`) and of a 422 "
            "`validation_failed` (`unknown_tier`, `unknown_add_on`, `add_ons_app_disabled`, `amount_overflow`)."
        ),
        scope=Scope.BOOKINGS_WRITE,
        book=_create,
        body=BookingCreate,
        idempotency="required",
        answers={201: ("The booking, confirmed.", Booking)},
        refusals=(NotFound, Conflict, InsufficientCapacity, Unprocessable),
        example=_EXAMPLE,
    ),
    Operation(
        id="cancel_booking",
        method="POST",
        path="/api/v1/bookings/{id}/cancel",
        tag="Bookings",
        summary="Cancel a booking",
        description=(
            "Gives the seats back, and what a gift card paid to the card. A booking that is cancelled already is "
            "answered unchanged, so a retry is always safe. `refund: auto` gives back what the organization's policy "
            "says of a booking that was paid by card (`payment.source` is `stripe`), `none` keeps the money; the "
            "service returns no other payment: what was paid on site or by invoice is returned by hand. The booking is "
            "cancelled whatever the gateway says: `payment.status` stays `paid` until it has answered."
        ),
        scope=Scope.BOOKINGS_WRITE,
        write=_cancel,
        body=BookingCancel,
        body_optional=True,
        idempotency="required",
        answers={200: ("The booking, cancelled.", Booking)},
        refusals=(NotFound,),
        example={"refund": "auto", "reason": "The guest is ill."},
    ),
)
