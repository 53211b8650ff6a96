"""Operations of staff, storefront and worker on bookings, by the core's functions, each in its own transaction."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from booking_core import bookings, customers
from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, Unavailable
from booking_core.bookings import BookingRequest, Party, storefront
from booking_core.bookings.storefront import CheckoutRequest
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.paging import PageRequest
from booking_core.due_work.rows import NIL_ID, DuePage, DueRow, DueWork, Processed
from booking_core.models.bookings import (
    AddOnInput,
    BookingSource,
    CancelReason,
    GuestInput,
    GuestLineInput,
    PaymentMode,
    RefundMode,
)
from booking_core.models.holds import HoldCreate
from booking_core.models.pages import Order
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards import GiftCardIssue
from support.world.world import World

Booking = dict[str, Any]
Verb = Callable[[Tx, Actor], Any]


def as_published(booking: Booking) -> Booking:
    """Return a booking of a response as events contain it: without the guest's link."""
    return booking | {"manage_url": None}


ADA = "ada@example.com"
OWN_INTENT = "one for the booking"


def with_retries(act: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return the result, and try again while the database is too busy: a worker that was killed may have held it."""
    while True:
        try:
            return act(*arguments, **keywords)
        except Unavailable:
            continue


def paged_rows(find: Callable[[PageRequest], Any], limit: int, order: Order = Order.DESC) -> list[dict[str, Any]]:
    """Return the rows of all pages of a list, in their order."""
    page, rows = {"next_cursor": None, "has_more": True}, list[dict[str, Any]]()
    while page["has_more"]:
        page = find(PageRequest(limit, order, page["next_cursor"]))
        rows += page["data"]
    return rows


def lines(count: int, tier: str = "adult") -> list[GuestLineInput]:
    return [GuestLineInput(tier_id=tier, count=count)]


def guest(email: str = ADA, name: str = "Ada Lovelace") -> GuestInput:
    return GuestInput(name=name, email=email, phone="+47 900 00 000")


def add_ons(count: int) -> list[AddOnInput]:
    return [AddOnInput(id="drysuit", count=count)] if count else []


class Operations:
    """The verbs, as one organization's staff and storefront use them."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def actor(self) -> Actor:
        world = self.world
        return Actor(installation=world.installation, organization=world.organization, at=world.clock())

    def act(self, verb: Verb) -> Any:
        """Call a function of the core in a transaction, and return its result, parsed if it is JSON."""

        def work(tx: Tx) -> Any:
            return verb(tx, self.actor)

        result = self.world.database.write(work)
        return orjson.loads(result) if isinstance(result, bytes) else result

    def refusal(self, verb: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[str, str | None]:
        """Return the code and the reason of an error."""
        try:
            result = verb(*arguments, **keywords)
        except BookingError as error:
            return str(error.code), error.details[0].reason if error.details else None
        raise AssertionError(f"it was not refused: {result}")

    # The storefront --------------------------------------------------------------------------------------------

    def hold(self, departure_id: str, seats: int, *, for_s: int = 600) -> str:
        def verb(tx: Tx, actor: Actor) -> Any:
            return storefront.hold(tx, actor, HoldCreate(departure_id=departure_id, seats=seats), for_s=for_s)

        return str(self.act(verb)["id"])

    def release(self, hold_id: str) -> dict[str, Any]:
        return self.act(lambda tx, actor: storefront.release(tx, actor, hold_id))

    def check_out(self, departure_id: str, count: int = 1, *, email: str = ADA, suits: int = 0, **over: Any) -> Booking:
        checkout = {"guests": lines(count), "customer": guest(email), "add_ons": add_ons(suits)} | over
        request = CheckoutRequest(departure_id=departure_id, **checkout)
        return self.act(lambda tx, actor: storefront.check_out(tx, actor, request))

    def pay(self, booking_id: str, payment_intent: str | None = OWN_INTENT) -> Booking:
        if payment_intent is OWN_INTENT:
            payment_intent = f"pi_{booking_id}"

        def verb(tx: Tx, actor: Actor) -> Any:
            return bookings.pay(tx, actor, booking_id, payment_intent=payment_intent)

        return self.act(verb)

    def abandon_due(self, limit: int = 50) -> int:
        """Abandon the organization's expired checkouts, in several runs."""
        return self._sweep(bookings.EXPIRED, bookings.abandon, limit)

    # Staff -----------------------------------------------------------------------------------------------------

    def book(self, departure_id: str, count: int = 1, *, email: str = ADA, suits: int = 0, **over: Any) -> Booking:
        draft: dict[str, Any] = {
            "guests": lines(count),
            "customer": guest(email),
            "add_ons": add_ons(suits),
            "source": BookingSource.ADMIN,
            "payment": PaymentMode.EXTERNAL_PAID,
        }
        request = BookingRequest(departure_id=departure_id, **(draft | over))
        return self.act(lambda tx, actor: bookings.create(tx, actor, request))

    def confirm(self, booking_id: str) -> Booking:
        return self.act(lambda tx, actor: bookings.confirm(tx, actor, booking_id))

    def cancel(
        self,
        booking_id: str,
        reason: CancelReason = CancelReason.ADMIN,
        *,
        note: str | None = None,
        refund: RefundMode = RefundMode.AUTO,
    ) -> Booking:
        def verb(tx: Tx, actor: Actor) -> Any:
            return bookings.cancel(tx, actor, booking_id, reason=reason, note=note, refund=refund)

        return self.act(verb)

    def reschedule(self, booking_id: str, departure_id: str) -> Booking:
        return self.act(lambda tx, actor: bookings.reschedule(tx, actor, booking_id, departure_id))

    def preview_reschedule(self, booking_id: str, departure_id: str) -> dict[str, Any]:
        return self.act(lambda tx, actor: bookings.preview_reschedule(tx, actor, booking_id, departure_id))

    def change_party(self, booking_id: str, count: int, **over: Any) -> dict[str, Any]:
        """Change the party to that number of adults, and return the change."""
        party = Party(guests=lines(count), **over)
        return self.act(lambda tx, actor: bookings.change_party(tx, actor, booking_id, party))

    def preview_party(self, booking_id: str, count: int, **over: Any) -> dict[str, Any]:
        party = Party(guests=lines(count), **over)
        return self.act(lambda tx, actor: bookings.preview_party(tx, actor, booking_id, party))

    def update_customer(self, customer_id: str, **changes: str) -> dict[str, Any]:
        return self.act(lambda tx, actor: customers.update(tx, actor, customer_id, **changes))

    def close(self, departure_id: str) -> dict[str, Any]:
        return self.act(lambda tx, actor: departures.close(tx, actor, departure_id))

    def reopen(self, departure_id: str) -> dict[str, Any]:
        return self.act(lambda tx, actor: departures.reopen(tx, actor, departure_id))

    def set_seats(self, departure_id: str, seats: int) -> dict[str, Any]:
        return self.act(lambda tx, actor: departures.set_seats(tx, actor, departure_id, seats))

    def cancel_departure(self, departure_id: str) -> dict[str, Any]:
        """Cancel a departure with the first of its bookings, and return it."""
        self.act(lambda tx, actor: bookings.cancel_departure_batch(tx, actor, departure_id))
        return self.world.database.read(lambda tx: departures.get(tx, self.actor, departure_id))

    def cancel_next_batch(self) -> int:
        return self._sweep(bookings.CANCELLING, bookings.cancel_next_batch, 1)

    def cancel_under_minimum(self) -> int:
        return self._sweep(bookings.CLOSED, bookings.cancel_under_minimum, 1)

    def _sweep(self, work: DueWork, process: Callable[..., Processed[None]], limit: int) -> int:
        """Process the organization's due rows until nothing is left, and return the number of processed rows."""
        total = 0
        while count := sum(self._pass(work, process, limit)):
            total += count
        return total

    def _pass(self, work: DueWork, process: Callable[..., Processed[None]], limit: int) -> Iterator[int]:
        world, page = self.world, DuePage([], DueRow(-1, NIL_ID))
        while page.after:
            page = world.database.read(lambda tx: work.find(tx, world.org, after=page.after, limit=limit))  # noqa: B023
            keys = [row.key for row in page.rows]
            if keys:
                processed = world.database.write(lambda tx: process(tx, world.installation, world.org, keys))  # noqa: B023
                yield len(processed.finished) + len(processed.remaining)

    def issue(self, amount_minor: int, **over: Any) -> tuple[str, str]:
        """Issue a gift card, and return its id and its code."""
        request = GiftCardIssue(amount_minor=amount_minor, **over)
        card, code = self.act(lambda tx, actor: gift_cards.issue(tx, actor, request))
        return str(orjson.loads(card)["id"]), code

    # Contents --------------------------------------------------------------------------------------------------

    def events(self) -> list[dict[str, Any]]:
        """Return the envelopes of all events, in order."""
        rows = sorted(self.world.rows(tables.events), key=lambda row: row["sequence"])
        return [orjson.loads(row["body"]) for row in rows]

    def event_types(self, resource_id: str | None = None) -> list[str]:
        """Return the types of the events about a resource, or all of them, in order."""
        return [event["type"] for event in self.events() if resource_id in (None, event["data"]["object"]["id"])]

    def outbox_kinds(self, booking_id: str | None = None) -> list[str]:
        """Return the kinds of outbox rows, sorted."""
        rows = self.world.rows(tables.effects)
        return sorted(row["kind"] for row in rows if booking_id in (None, row["subject_id"]))

    def noted(self, booking_id: str | None = None) -> list[str]:
        """Return the kinds of timeline entries of a booking, or of none, sorted."""
        return sorted(row["kind"] for row in self.world.rows(tables.timeline) if row["booking_id"] == booking_id)

    def booking(self, booking_id: str) -> dict[str, Any]:
        return self.world.row(tables.bookings, booking_id)

    def seats_taken(self, departure_id: str) -> int:
        return int(self.world.row(tables.departures, departure_id)["seats_taken"])
