"""Anything that staff, storefront, API and worker may do, in any order, against a model that knows no database.

After each step the seats, the bookings, the cards, the refunds and every event in its order agree with the model; at
the end of each example the doctor finds nothing. BOOKING_TEST_EXAMPLES asks for more examples than the few of an
ordinary run.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.world.creating import create, created
from support.world.operations import Operations, Verb
from support.world.world import DAY, HOUR, FixedClock, make_world

from booking_core import bookings
from booking_core.base.clock import MINUTE
from booking_core.bookings import cancel_batches
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.bookings import (
    BookingOrder,
    BookingSource,
    CancelReason,
    GuestLineInput,
    PaymentMode,
    RefundMode,
)
from booking_core.payments import gift_cards
from booking_core.records.idempotency import Answer

EXAMPLES = int(os.environ.get("BOOKING_TEST_EXAMPLES", "8"))
STEPS = 60
BATCH = 2
"""Bookings of a cancelled departure in one transaction: few, to have several batches."""
ADULT, SUIT, PENDING, MINIMUM = 89000, 15000, 30 * MINUTE, 2
ADDRESSES = ("ada@example.com", "grace@example.com", "alan@example.com")
FULL = ("insufficient_capacity", None)

which = st.one_of(st.just(0), st.integers(0, 999))
"""An index into a list, counted round from the newest: recent rows are used most."""
few = st.integers(1, 4)
seldom = st.sampled_from([False, False, False, True])
modes = st.sampled_from(list(PaymentMode))
held_by_some = st.one_of(st.none(), which)
Refusal = tuple[str, str | None] | None


# The model ---------------------------------------------------------------------------------------------------------


@dataclass
class Departure:
    id: str
    starts_at: int
    total: int
    status: str = "open"
    cancelling: str | None = None
    is_checked: bool = False


@dataclass
class Card:
    id: str
    code: str
    balance: int
    is_active: bool = True


@dataclass
class Hold:
    id: str
    departure: Departure
    seats: int
    expires_at: int
    end: str | None = None
    """Why it has ended: booked or released."""

    @property
    def has_ended(self) -> bool:
        return self.end is not None

    def refusal(self, departure: Departure, at: int) -> Refusal:
        """Return why the API refuses to take it over."""
        if self.departure is not departure:
            return "conflict", "hold_of_another_departure"
        end = self.end or ("expired" if self.expires_at <= at else None)
        return ("conflict", f"hold_{end}") if end else None


@dataclass
class Booking:
    id: str
    departure: Departure
    seats: int
    status: str
    source: str
    payment: str
    """Its source and status, such as stripe/pending."""
    total: int
    card: Card | None
    from_card: int
    expires_at: int
    suits: int = 0
    discount: int = 0
    refunded: int = 0
    refunds: list[int] = field(default_factory=list)
    """Of changes of the party."""

    @property
    def is_live(self) -> bool:
        return self.status != "cancelled"


@dataclass
class Model:
    """The expected rows and events, in order."""

    departures: list[Departure] = field(default_factory=list)
    bookings: list[Booking] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    customers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id and name by address."""
    published: list[tuple[str, str]] = field(default_factory=list)
    """Type and resource of every event."""

    def seats_taken(self, departure: Departure) -> int:
        return sum(booking.seats for booking in self.live(departure))

    def confirmed(self, departure: Departure) -> int:
        return sum(booking.seats for booking in self.live(departure) if booking.status == "confirmed")

    def available(self, departure: Departure, at: int, hold: Hold | None = None) -> int:
        seats_held = sum(
            other.seats
            for other in self.holds
            if other.departure is departure and other is not hold and not other.has_ended and other.expires_at > at
        )
        return max(0, departure.total - self.seats_taken(departure) - seats_held)

    def live(self, departure: Departure) -> list[Booking]:
        """Return the live bookings in the order of their common cancellation."""
        live = [booking for booking in self.bookings if booking.departure is departure and booking.is_live]
        return sorted(live, key=lambda booking: booking.id)

    def publish(self, kind: str, resource_id: str) -> None:
        self.published.append((kind, resource_id))

    def cancel(self, booking: Booking, at: int, *, refund: bool, in_full: bool = False) -> None:
        booking.status = "cancelled"
        if booking.card:
            booking.card.balance += booking.from_card
        if booking.payment == "stripe/pending":
            booking.payment = "stripe/failed"
        is_early = booking.departure.starts_at - at >= DAY
        if booking.payment == "stripe/paid" and refund and (is_early or in_full):
            booking.refunded = booking.total
        self.publish("booking.cancelled", booking.id)
        if booking.card:
            self.publish("gift_card.restored", booking.card.id)

    def cancel_batch(self, departure: Departure, reason: str, at: int) -> None:
        """Cancel the next few of the departure's bookings; no two that took from a card."""
        live = self.live(departure)
        batch = live[:BATCH]
        while sum(booking.from_card > 0 for booking in batch) > 1:
            batch.pop()
        departure.status, departure.cancelling = "cancelled", reason if len(live) > len(batch) else None
        for booking in batch:
            self.cancel(booking, at, refund=True, in_full=True)


def unbookable(departure: Departure, at: int) -> Refusal:
    if departure.status in ("cancelled", "closed"):
        return "conflict", f"departure_{departure.status}"
    return ("conflict", "departure_started") if at >= departure.starts_at else None


# The machine -------------------------------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """The rules. Each works out what must come of it first, then does it, and compares."""

    database: Database
    clock: FixedClock

    @initialize()
    def begin(self) -> None:
        self.ops = Operations(make_world(self.database, self.clock, cancel_under_minimum=True))
        self.world, self.model = self.ops.world, Model()
        self.experience = self.world.experience(min_participants=MINIMUM)
        self.keys: list[tuple[Any, bytes]] = []
        for seats in (2, 6, 8):
            self.add_departure(seats)
        self.issue(400000)

    @property
    def at(self) -> int:
        return self.clock.at

    def attempt(self, expected: Refusal, verb: Any, *arguments: Any, **options: Any) -> Any:
        """Return the result of the verb; None when it is refused as expected."""
        if expected is None:
            return verb(*arguments, **options)
        assert self.ops.refusal(verb, *arguments, **options) == expected
        return None

    def pick(self, choices: list[Any], which: int) -> Any:
        return choices[-1 - which % len(choices)]

    def pick_departure(self, which: int) -> Departure:
        """Mostly a departure that can be booked: else most steps would be refused."""
        bookable = [departure for departure in self.model.departures if unbookable(departure, self.at) is None]
        departure: Departure = self.pick(bookable if bookable and which % 5 < 4 else self.model.departures, which)
        return departure

    def pick_hold(self, which: int) -> Hold:
        """Mostly an unused key."""
        unused = [hold for hold in self.model.holds if not hold.has_ended]
        hold: Hold = self.pick(unused if unused and which % 5 < 4 else self.model.holds, which)
        return hold

    def pick_booking(self, which: int, **likely: str) -> Booking:
        """Mostly one that lives, and of those one that the step can do something for."""
        live = [booking for booking in self.model.bookings if booking.is_live]
        best = [booking for booking in live if all(getattr(booking, name) == value for name, value in likely.items())]
        booking: Booking = self.pick((best or live) if live and which % 5 < 4 else self.model.bookings, which)
        return booking

    # Departures ----------------------------------------------------------------------------------------------------

    @rule(seats=few)
    @precondition(lambda self: len(self.model.departures) < 8)
    def add_departure(self, seats: int) -> None:
        starts = [departure.starts_at for departure in self.model.departures]
        starts_at = max(starts, default=self.at + 2 * DAY) + 7 * HOUR
        departure_id = self.world.departure(self.experience, seats=seats, starts_at=starts_at)
        self.model.departures.append(Departure(departure_id, starts_at, seats))

    @rule(which=which, seats=st.integers(0, 9))
    def change_seats(self, which: int, seats: int) -> None:
        departure = self.pick_departure(which)
        refusal = ("conflict", "departure_cancelled") if departure.status == "cancelled" else None
        if self.attempt(refusal, self.ops.set_seats, departure.id, seats):
            departure.total = seats

    @rule(which=which, opens=st.sampled_from([True, True, False]))
    def close_or_reopen(self, which: int, opens: bool) -> None:
        departure = self.pick_departure(which)
        refusal = ("conflict", "departure_cancelled") if departure.status == "cancelled" else None
        if self.attempt(refusal, self.ops.reopen if opens else self.ops.close, departure.id):
            departure.status = "open" if opens else "closed"

    @rule(which=which)
    @precondition(lambda self: self.model.bookings)
    def cancel_departure(self, which: int) -> None:
        departure = self.pick_departure(which)
        self.ops.cancel_departure(departure.id)
        if departure.status != "cancelled":
            self.model.cancel_batch(departure, "admin", self.at)

    @rule()
    def go_on_cancelling(self) -> None:
        self.ops.cancel_next_batch()
        for departure in sorted(self.model.departures, key=lambda departure: departure.starts_at):
            while departure.cancelling:
                self.model.cancel_batch(departure, departure.cancelling, self.at)

    @rule()
    def count_participants(self) -> None:
        self.ops.cancel_under_minimum()
        for departure in sorted(self.model.departures, key=lambda departure: departure.starts_at):
            has_closed = departure.starts_at <= self.at < departure.starts_at + HOUR
            if not has_closed or departure.status == "cancelled" or departure.is_checked:
                continue
            if self.model.confirmed(departure) >= MINIMUM:
                departure.is_checked = True
            elif self.model.confirmed(departure) == self.model.seats_taken(departure):  # nothing is pending
                self.model.cancel_batch(departure, "min_participants", self.at)

    # Time ----------------------------------------------------------------------------------------------------------

    @rule(minutes=st.sampled_from([1, 9, 31, 240]))
    def tick(self, minutes: int) -> None:
        self.clock.advance(minutes * MINUTE)

    @rule()
    @precondition(lambda self: sum(departure.starts_at > self.at for departure in self.model.departures) > 1)
    def wait_for_the_next_departure(self) -> None:
        self.clock.at = min(departure.starts_at for departure in self.model.departures if departure.starts_at > self.at)

    @rule()
    def abandon(self) -> None:
        self.ops.abandon_due()
        due = [
            booking for booking in self.model.bookings if booking.status == "pending" and booking.expires_at <= self.at
        ]
        for booking in sorted(due, key=lambda booking: (booking.expires_at, booking.id)):
            self.model.cancel(booking, self.at, refund=False)

    # Gift cards ----------------------------------------------------------------------------------------------------

    @rule(amount=st.sampled_from([5000, 89000, 400000]))
    @precondition(lambda self: len(self.model.cards) < 3)
    def issue(self, amount: int) -> None:
        card = Card(*self.ops.issue(amount), amount)
        self.model.cards.append(card)
        self.model.publish("gift_card.issued", card.id)

    @rule(which=which, is_active=st.sampled_from([True, True, False]))
    @precondition(lambda self: self.model.cards)
    def switch_card(self, which: int, is_active: bool) -> None:
        card = self.pick(self.model.cards, which)
        verb = gift_cards.reactivate if is_active else gift_cards.deactivate
        act: Verb = lambda tx, actor: verb(tx, actor, card.id)  # noqa: E731
        self.ops.act(act)
        card.is_active = is_active

    # Holds ---------------------------------------------------------------------------------------------------------

    @rule(which=which, seats=st.integers(1, 8), minutes=st.sampled_from([5, 60]))
    def hold(self, which: int, seats: int, minutes: int) -> None:
        departure = self.pick_departure(which)
        refusal = unbookable(departure, self.at)
        if refusal is None and seats > self.model.available(departure, self.at):
            refusal = FULL
        hold_id = self.attempt(refusal, self.ops.hold, departure.id, seats, for_s=minutes * 60)
        if hold_id:
            self.model.holds.append(Hold(hold_id, departure, seats, self.at + minutes * MINUTE))

    @rule(which=which)
    @precondition(lambda self: self.model.holds)
    def release(self, which: int) -> None:
        hold = self.pick_hold(which)
        self.ops.release(hold.id)
        hold.end = hold.end or "released"

    # Booking -------------------------------------------------------------------------------------------------------

    @rule(
        which=which, count=few, suits=st.integers(0, 2), address=st.sampled_from(ADDRESSES),
        discount=st.sampled_from([0, 0, 0, 4000, 10**7]), which_hold=which, uses_hold=st.booleans(), card=which,
        uses_card=seldom,
    )  # fmt: skip
    def check_out(
        self, which: int, count: int, suits: int, address: str, discount: int, which_hold: int, uses_hold: bool,
        card: int, uses_card: bool,
    ) -> None:  # fmt: skip
        hold = self.pick_hold(which_hold) if uses_hold and self.model.holds else None
        departure = hold.departure if hold else self.pick_departure(which)
        count = hold.seats if hold and which % 2 else count  # as a guest does who has held seats for the whole party
        paying = self.pick(self.model.cards, card) if uses_card and self.model.cards else None
        refusal = ("conflict", "hold_ended") if hold and hold.has_ended else None
        refusal = refusal or self._refusal(departure, count, suits, discount, paying, hold)
        booking = self.attempt(
            refusal, self.ops.check_out, departure.id, count, suits=suits, email=address, discount_minor=discount,
            hold_id=hold and hold.id, gift_card_code=paying and paying.code,
        )  # fmt: skip
        if booking:
            if hold:
                hold.end = "booked"
            self._booked(booking, departure, count, suits, discount, address, paying, "online", "stripe/pending")

    @rule(
        which=which, count=few, suits=st.integers(0, 1), address=st.sampled_from(ADDRESSES), mode=modes, card=which,
        source=st.sampled_from([BookingSource.ADMIN, BookingSource.AGENCY, BookingSource.AI]), uses_card=seldom,
    )  # fmt: skip
    def book_by_staff(
        self, which: int, count: int, suits: int, address: str, mode: PaymentMode, card: int, source: BookingSource,
        uses_card: bool,
    ) -> None:  # fmt: skip
        departure = self.pick_departure(which)
        paying = self.pick(self.model.cards, card) if uses_card and self.model.cards else None
        booking = self.attempt(
            self._refusal(departure, count, suits, 0, paying, None), self.ops.book, departure.id, count, suits=suits,
            email=address, payment=mode, source=source, gift_card_code=paying and paying.code,
        )  # fmt: skip
        if booking:
            self._booked(booking, departure, count, suits, 0, address, paying, source, PAID_BY[mode])

    @rule(
        requests=st.lists(
            st.tuples(which, few, st.sampled_from(ADDRESSES), modes, held_by_some), min_size=1, max_size=4
        )
    )
    def book_by_api(self, requests: list[tuple[int, int, str, PaymentMode, int | None]]) -> None:
        """Several in one batch, some of them take a hold over; each is decided by the state after the one before."""
        orders = [(*self._pick_for_api(which, which_hold), *rest) for which, *rest, which_hold in requests]
        creates = [
            create(
                self.world, departure.id, f"key-{len(self.keys) + number:06}", count=count, payment=mode.value,
                customer={"name": "A guest", "email": address}, hold_id=hold and hold.id,
            )
            for number, (departure, hold, count, address, mode) in enumerate(orders)
        ]  # fmt: skip
        self._quote(*orders[0][:3])
        answers = created(self.database, creates)
        for (departure, hold, count, address, mode), answer in zip(orders, answers, strict=True):
            assert isinstance(answer, Answer)
            body = orjson.loads(answer.body)
            refusal = self._api_refusal(departure, hold, count)
            if refusal:
                assert (body["code"], next(iter(body["reasons"]), None)) == refusal
            else:
                assert answer.status == 201
                if hold:
                    hold.end = "booked"
                self._booked(body, departure, count, 0, 0, address, None, "api", PAID_BY[mode])
        self.keys += [(request, answer.body) for request, answer in zip(creates, answers, strict=True)]  # type: ignore[union-attr]

    def _pick_for_api(self, which: int, which_hold: int | None) -> tuple[Departure, Hold | None]:
        """Return a departure and a hold; mostly one of this departure."""
        if which_hold is None or not self.model.holds:
            return self.pick_departure(which), None
        hold = self.pick_hold(which_hold)
        return (hold.departure if which % 7 else self.pick_departure(which)), hold

    def _api_refusal(self, departure: Departure, hold: Hold | None, count: int) -> Refusal:
        refusal = unbookable(departure, self.at) or (hold.refusal(departure, self.at) if hold else None)
        return refusal or self._refusal(departure, count, 0, 0, None, hold)

    def _quote(self, departure: Departure, hold: Hold | None, count: int) -> None:
        """Check that a quote names the first refusal of the booking, and the seats available for it."""
        guests = [GuestLineInput(tier_id="adult", count=count)]
        order = BookingOrder(departure_id=departure.id, guests=guests, hold_id=hold and hold.id)
        quoted = self.database.read(lambda tx: bookings.quote(tx, self.world.caller(), order))
        first = next(((refusal["code"], refusal["reason"]) for refusal in quoted["refusals"]), None)
        assert first == self._api_refusal(departure, hold, count)
        assert quoted["seats_available"] == self.model.available(departure, self.at, hold)

    @rule(which=which)
    @precondition(lambda self: self.keys)
    def send_again(self, which: int) -> None:
        """Send a request again with its key, and check that the answer is the same after any other steps."""
        request, body = self.pick(self.keys, which)
        (answer,) = created(self.database, [request])
        assert isinstance(answer, Answer)
        assert (answer.body, answer.replayed) == (body, True)

    def _refusal(
        self, departure: Departure, count: int, suits: int, discount: int, card: Card | None, hold: Hold | None
    ) -> Refusal:
        refusal = unbookable(departure, self.at)
        if refusal:
            return refusal
        due = count * ADULT + suits * SUIT - discount
        if due < 0:
            return "validation_failed", "discount_too_large"
        if count > self.model.available(departure, self.at, hold):
            return FULL
        if card and due and not card.is_active:
            return "validation_failed", "gift_card_inactive"
        if card and due and not card.balance:
            return "validation_failed", "gift_card_empty"
        return None

    def _booked(
        self, body: dict[str, Any], departure: Departure, seats: int, suits: int, discount: int, address: str,
        card: Card | None, source: str, payment: str,
    ) -> None:  # fmt: skip
        due = seats * ADULT + suits * SUIT - discount
        from_card = min(card.balance, due) if card else 0
        payment = payment if due > from_card else "external/paid"
        status = "pending" if payment == "stripe/pending" else "confirmed"
        if address not in self.model.customers:
            rows = self.world.rows(tables.customers)
            (customer_id,) = (row["id"] for row in rows if row["email_key"] == address)
            self.model.customers[address] = (customer_id, body["customer"]["name"])
            self.model.publish("customer.created", customer_id)
        self.model.publish("booking.created", body["id"])
        if card and from_card:
            card.balance -= from_card
            self.model.publish("gift_card.redeemed", card.id)
        if status == "confirmed":
            self.model.publish("booking.confirmed", body["id"])
        self.model.bookings.append(
            Booking(
                body["id"], departure, seats, status, source, payment, due - from_card, card if from_card else None,
                from_card, self.at + PENDING, suits, discount,
            )
        )  # fmt: skip
        assert body["booking_number"] == len(self.model.bookings)
        assert body["totals"]["total"]["amount_minor"] == due - from_card

    # Later steps of a booking --------------------------------------------------------------------------------------

    @rule(which=which)
    @precondition(lambda self: self.model.bookings)
    def pay(self, which: int) -> None:
        booking = self.pick_booking(which, payment="stripe/pending")
        refusal = None if booking.payment.startswith("stripe") else ("conflict", "not_paid_by_card")
        if self.attempt(refusal, self.ops.pay, booking.id):
            self._paid(booking)

    @rule(which=which)
    @precondition(lambda self: any(booking.payment == "stripe/failed" for booking in self.model.bookings))
    def pay_late(self, which: int) -> None:
        booking = self.pick([booking for booking in self.model.bookings if booking.payment == "stripe/failed"], which)
        self.ops.pay(booking.id)
        self._paid(booking)

    def _paid(self, booking: Booking) -> None:
        if booking.payment == "stripe/failed":
            booking.refunded = booking.total
        if booking.payment in ("stripe/pending", "stripe/failed"):
            booking.payment = "stripe/paid"
            if booking.status != "pending":  # confirmed by staff before, or cancelled
                self.model.publish("booking.updated", booking.id)
        self._confirmed(booking)

    @rule(which=which)
    @precondition(lambda self: self.model.bookings)
    def confirm(self, which: int) -> None:
        booking = self.pick_booking(which, status="pending")
        refusal = None if booking.is_live else ("conflict", "booking_cancelled")
        if self.attempt(refusal, self.ops.confirm, booking.id):
            self._confirmed(booking)

    def _confirmed(self, booking: Booking) -> None:
        if booking.status == "pending":
            booking.status = "confirmed"
            self.model.publish("booking.confirmed", booking.id)

    @rule(
        which=which,
        reason=st.sampled_from([CancelReason.ADMIN, CancelReason.CUSTOMER, CancelReason.AGENT, CancelReason.API]),
        refund=st.sampled_from(list(RefundMode)),
    )
    @precondition(lambda self: self.model.bookings)
    def cancel(self, which: int, reason: CancelReason, refund: RefundMode) -> None:
        booking = self.pick_booking(which, payment="stripe/paid")
        self.ops.cancel(booking.id, reason, refund=refund)
        if booking.is_live:
            self.model.cancel(booking, self.at, refund=refund is RefundMode.AUTO)

    @rule(which=which, to=which)
    @precondition(lambda self: self.model.bookings)
    def reschedule(self, which: int, to: int) -> None:
        booking, target = self.pick_booking(which), self.pick_departure(to)
        if not booking.is_live:
            refusal: Refusal = ("conflict", "booking_cancelled")
        elif booking.departure is target:
            refusal = None
        else:
            refusal = unbookable(target, self.at)
            if refusal is None and booking.seats > self.model.available(target, self.at):
                refusal = FULL
        preview = self.ops.preview_reschedule(booking.id, target.id)
        moved = self.attempt(refusal, self.ops.reschedule, booking.id, target.id)
        assert preview["allowed"] == (moved is not None)
        if moved and booking.departure is not target:
            assert moved == preview["booking"]
            booking.departure = target
            self.model.publish("booking.rescheduled", booking.id)

    @rule(which=which, count=few, refund=st.sampled_from(list(RefundMode)))
    @precondition(lambda self: self.model.bookings)
    def change_party(self, which: int, count: int, refund: RefundMode) -> None:
        booking = self.pick_booking(which, payment="stripe/paid")
        preview = self.ops.preview_party(booking.id, count, refund=refund)
        refusal = self._party_refusal(booking, count)
        changed = self.attempt(refusal, self.ops.change_party, booking.id, count, refund=refund)
        assert preview["allowed"] == (changed is not None)
        if changed:
            assert changed == preview
            self._change_party(booking, count, refund is RefundMode.AUTO)

    def _party_refusal(self, booking: Booking, count: int) -> Refusal:
        departure, is_closed = booking.departure, unbookable(booking.departure, self.at)
        if booking.status != "confirmed":
            return "conflict", f"booking_{booking.status}"
        if is_closed and is_closed[1] != "departure_closed":
            return is_closed
        if self.at >= departure.starts_at:
            return "conflict", "departure_started"
        if booking.payment == "stripe/pending":
            return "conflict", "payment_pending"
        if count > booking.seats and is_closed:
            return is_closed
        if booking.payment.startswith("stripe") and self._due(booking, count) > booking.total + booking.from_card:
            return "conflict", "paid_by_card"
        return FULL if count - booking.seats > self.model.available(departure, self.at) else None

    def _due(self, booking: Booking, count: int) -> int:
        subtotal = count * ADULT + booking.suits * SUIT
        return subtotal - min(booking.discount, subtotal)

    def _change_party(self, booking: Booking, count: int, refund: bool) -> None:
        if count == booking.seats:
            return
        due, before = self._due(booking, count), booking.total
        from_card = min(booking.from_card, due)
        if booking.card:
            booking.card.balance += booking.from_card - from_card
        booking.discount = min(booking.discount, count * ADULT + booking.suits * SUIT)
        booking.seats, booking.from_card, booking.total = count, from_card, due - from_card
        excess = before - booking.total
        if booking.payment == "stripe/paid" and excess and refund and booking.departure.starts_at - self.at >= DAY:
            booking.refunds.append(excess)
        if not booking.payment.startswith("stripe"):
            booking.payment = self._payment_of(booking, before)
        self.model.publish("booking.updated", booking.id)

    @staticmethod
    def _payment_of(booking: Booking, before: int) -> str:
        if booking.total == 0:
            return "external/paid"
        return "on_site/unpaid" if before == 0 else booking.payment

    @rule(which=which, name=st.sampled_from(["Ada", "Grace"]))
    @precondition(lambda self: self.model.customers)
    def update_customer(self, which: int, name: str) -> None:
        address, (customer_id, before) = self.pick(sorted(self.model.customers.items()), which)
        self.ops.update_customer(customer_id, name=name)
        if name != before:
            self.model.customers[address] = (customer_id, name)
            self.model.publish("customer.updated", customer_id)

    # What must be true ---------------------------------------------------------------------------------------------

    @invariant()
    def seats_are_as_the_model_says(self) -> None:
        rows = {row["id"]: row for row in self.world.rows(tables.departures)}
        for departure in self.model.departures:
            row = rows[departure.id]
            assert (row["seats_taken"], row["seats_total"]) == (self.model.seats_taken(departure), departure.total)
            assert (row["status"], row["cancelling"]) == (departure.status, departure.cancelling)
        first = self.world.organization.zone.wall(self.at).date()
        page = self.database.read(lambda tx: departures.find_available(tx, self.world.caller(), date_from=first))
        available = {departure["id"]: departure["seats_available"] for departure in page["data"]}
        for departure in self.model.departures:
            assert available.get(departure.id) in (None, self.model.available(departure, self.at))

    @invariant()
    def bookings_are_as_the_model_says(self) -> None:
        by_id = {row["id"]: row for row in self.world.rows(tables.bookings)}
        assert len(by_id) == len(self.model.bookings)
        for booking in self.model.bookings:
            row = by_id[booking.id]
            payment = f"{row['payment_source']}/{row['payment_status']}"
            assert (row["status"], row["departure_id"]) == (booking.status, booking.departure.id)
            assert (row["seats"], row["source"], payment) == (booking.seats, booking.source, booking.payment)
            assert row["total_minor"] == booking.total
        rows = self.world.rows(tables.refunds)
        refunds = {row["booking_id"]: row["amount_minor"] for row in rows if row["number"] == 0}
        assert refunds == {booking.id: booking.refunded for booking in self.model.bookings if booking.refunded}
        numbered = {(row["booking_id"], row["number"]): row["amount_minor"] for row in rows if row["number"]}
        assert numbered == {
            (booking.id, number): amount
            for booking in self.model.bookings
            for number, amount in enumerate(booking.refunds, start=1)
        }

    @invariant()
    def cards_are_as_the_model_says(self) -> None:
        balances = {row["id"]: row["balance_minor"] for row in self.world.rows(tables.gift_cards)}
        assert balances == {card.id: card.balance for card in self.model.cards}

    @invariant()
    def everything_was_published_once_and_in_order(self) -> None:
        events = self.ops.events()
        assert [(event["type"], event["data"]["object"]["id"]) for event in events] == self.model.published
        assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))

    def teardown(self) -> None:
        """Leave no work for the periodic jobs of the next example."""
        if sys.exc_info()[0] or not hasattr(self, "world"):
            return  # the failed step has reported the problem
        assert self.world.examine() == []
        self.clock.advance(DAY)
        self.ops.abandon_due()
        self.ops.cancel_next_batch()
        assert self.world.examine() == []


PAID_BY = {
    PaymentMode.PAY_ON_SITE: "on_site/unpaid",
    PaymentMode.INVOICE: "external/unpaid",
    PaymentMode.EXTERNAL_PAID: "external/paid",
}


@pytest.fixture
def database(fresh_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(cancel_batches, "BATCH", BATCH)
    opened = Database(fresh_database_url, clock=FixedClock())
    yield opened
    opened.close()


@pytest.mark.exhaustive(but="postgresql")
def test_whatever_happens_in_whatever_order_the_books_are_right(database: Database) -> None:
    machine = type("Bound", (Machine,), {"database": database, "clock": database._clock})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
