"""Sells orders of another channel: quotes them, holds their seats while the guest pays, books them once.

Nothing has to be stored between the steps but the order itself. The name of the order is the `external_reference` of
its booking and the seed of each Idempotency-Key, so a seller that is killed anywhere begins the order again from its
first step: it gets the hold that it had, and the booking that it made.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from booking_sdk import (
    Booking,
    BookingClient,
    BookingQuote,
    ConflictError,
    DepartureUpdated,
    Event,
    GuestLineParam,
    GuestParam,
    Hold,
    InsufficientCapacityError,
    idempotency_key,
)

HOLD_S = 900
"""The time in which the guest has to pay."""


@dataclass(frozen=True)
class Order:
    """An order of the other channel."""

    number: str
    departure_id: str
    guests: Sequence[GuestLineParam]
    customer: GuestParam


class Refused(Exception):
    """The order cannot be sold; the message says why, for the other channel."""


class Seller:
    """Sells the orders of one channel with one API key (scopes bookings:read and bookings:write)."""

    def __init__(self, client: BookingClient, channel: str) -> None:
        self._client = client
        self._channel = channel
        self.calendar: dict[str, int] = {}

    def sell(self, order: Order) -> Booking:
        """Sell an order that was paid already, and return its booking. It may be called again at any time."""
        booked = self._find(order)
        return booked[0] if booked else self.book(order, self.offer(order)[1])

    def offer(self, order: Order) -> tuple[BookingQuote, Hold]:
        """Return the price of an order, and the hold of its seats.

        Raises:
            Refused: it cannot be booked, with each reason.
        """
        quote = self._client.bookings.quote(departure_id=order.departure_id, guests=order.guests)
        # Seats may be missing because this order holds them: the key of the hold tells.
        reasons = [refusal.message for refusal in quote.refusals if refusal.code != "insufficient_capacity"]
        if reasons:
            raise Refused("; ".join(reasons))
        try:
            hold = self._client.holds.create(
                departure_id=order.departure_id,
                seats=quote.seats,
                expires_in_seconds=HOLD_S,
                idempotency_key=self._key("hold", order),
            )
        except InsufficientCapacityError as error:
            raise Refused(f"only {error.seats_available} seats are left") from error
        return quote, hold

    def withdraw(self, hold: Hold) -> None:
        """Release the seats of an order that was not paid. Without it they are free when the hold expires."""
        self._client.holds.delete(hold.id)

    def book(self, order: Order, hold: Hold) -> Booking:
        """Book an order that was paid, with the seats of its hold, and return the booking.

        Raises:
            Refused: the hold is over and its seats are sold, so the payment has to be returned.
        """
        try:
            return self._create(order, hold.id, "book")
        except ConflictError as error:
            reason = error.details[0].reason if error.details else ""
        if reason == "external_reference_taken":  # booked before, late, or under another key
            return self._find(order)[0]
        try:  # the guest paid late: perhaps the seats are still there
            return self._create(order, None, "book-late")
        except (ConflictError, InsufficientCapacityError) as error:
            raise Refused(f"not booked in time: {error}") from error

    def _create(self, order: Order, hold_id: str | None, verb: str) -> Booking:
        return self._client.bookings.create(
            departure_id=order.departure_id,
            guests=order.guests,
            customer=order.customer,
            payment="external_paid",
            hold_id=hold_id,
            external_reference=self._name(order),
            external_reference_unique=True,
            metadata={"channel": self._channel, "order": order.number},
            idempotency_key=self._key(verb, order),
        )

    def move(self, order: Order, departure_id: str) -> Booking:
        """Move a sold order to another departure, at the price as sold, and return its booking.

        Raises:
            Refused: it cannot be moved, with each reason.
        """
        booking = self._find(order)[0]
        if booking.departure.id == departure_id:
            return booking
        preview = self._client.bookings.preview_reschedule(booking.id, departure_id=departure_id)
        if preview.refusals:
            raise Refused("; ".join(refusal.message for refusal in preview.refusals))
        key = self._key(f"move to {departure_id}", order)
        return self._client.bookings.reschedule(booking.id, departure_id=departure_id, idempotency_key=key).booking

    def notice(self, event: Event) -> None:
        """Take in an event of the feed, which `follow.py` reads: the seats for the calendar of the other channel."""
        if isinstance(event, DepartureUpdated):
            departure = event.data.object
            self.calendar[departure.id] = departure.seats_available if departure.status == "open" else 0

    def _find(self, order: Order) -> list[Booking]:
        return list(self._client.bookings.iterate(external_reference=self._name(order), order="asc"))

    def _name(self, order: Order) -> str:
        return f"{self._channel}:{order.number}"

    def _key(self, verb: str, order: Order) -> str:
        return idempotency_key(verb, self._name(order), namespace="channel-manager")


if __name__ == "__main__":  # sells the order of a JSON file that was paid already
    with BookingClient() as seller_client:
        Seller(seller_client, "acme").sell(Order(**json.loads(Path(sys.argv[1]).read_text())))
