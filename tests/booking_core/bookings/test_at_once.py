"""Several who change the same bookings and departures at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.serving import threads
from support.world.operations import Operations, lines
from support.world.world import DAY, World

from booking_core import bookings
from booking_core.base.clock import MINUTE
from booking_core.base.context import Actor
from booking_core.base.errors import BookingError
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.bookings import PaymentMode

ROUNDS = 20
FULL = "insufficient_capacity"


@pytest.fixture
def two(ops: Operations) -> tuple[str, str]:
    """Two departures of four seats."""
    experience = ops.world.experience()
    first, second = (
        ops.world.departure(experience, seats=4, starts_at=ops.world.clock() + days * DAY) for days in (2, 3)
    )
    return first, second


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Run the functions, which begin at the same moment, and return the result or the refusal's code of each."""

    def outcome(act: Callable[[], Any]) -> Any:
        try:
            return act()
        except BookingError as error:
            return str(error.code)

    return threads.together(*(partial(outcome, act) for act in acts))


def test_bookings_that_change_places_do_not_deadlock(ops: Operations, two: tuple[str, str]) -> None:
    first, second = two
    one, other = ops.book(first)["id"], ops.book(second)["id"]
    for turn in range(ROUNDS):
        there, back = (second, first) if turn % 2 == 0 else (first, second)
        moved = together(partial(ops.reschedule, one, there), partial(ops.reschedule, other, back))
        assert [booking["departure"]["id"] for booking in moved] == [there, back]
    assert ops.event_types().count("booking.rescheduled") == 2 * ROUNDS
    assert (ops.seats_taken(first), ops.seats_taken(second)) == (1, 1)


def test_growing_parties_and_moving_bookings_never_take_a_seat_twice(ops: Operations, two: tuple[str, str]) -> None:
    first, second = two
    growing, moving = [ops.book(first)["id"] for _ in range(2)], [ops.book(second, 2)["id"] for _ in range(2)]
    for _ in range(ROUNDS // 2):
        outcomes = together(
            *(partial(ops.change_party, booking_id, 3) for booking_id in growing),
            *(partial(ops.reschedule, booking_id, first) for booking_id in moving),
            partial(ops.book, first),
        )
        assert {outcome for outcome in outcomes if isinstance(outcome, str)} == {FULL}
        assert ops.seats_taken(first) <= 4
        for booking_id in moving:
            ops.reschedule(booking_id, second)
        for booking_id in growing:
            ops.change_party(booking_id, 1)
        for row in ops.world.rows(tables.bookings):
            if row["status"] == "confirmed" and row["id"] not in (*growing, *moving):
                ops.cancel(row["id"])
    assert (ops.seats_taken(first), ops.seats_taken(second)) == (2, 4)


def test_two_changes_of_one_party_follow_each_other(ops: Operations, two: tuple[str, str]) -> None:
    booking = ops.check_out(two[0], 4)["id"]
    ops.pay(booking)
    outcomes = together(
        partial(ops.change_party, booking, 3), partial(ops.change_party, booking, 2), partial(ops.cancel, booking)
    )
    refunds = [row["amount_minor"] for row in ops.world.rows(tables.refunds)]
    assert sum(refunds) == 4 * 89000, (refunds, outcomes)
    assert ops.seats_taken(two[0]) == 0


def test_a_change_of_party_that_dies_before_its_commit_leaves_nothing(ops: Operations, two: tuple[str, str]) -> None:
    card, code = ops.issue(89000)
    booking = ops.check_out(two[0], 3, gift_card_code=code)["id"]
    ops.pay(booking)
    change = bookings.Party(guests=lines(1))

    def die(tx: Tx, actor: Actor) -> bytes:
        bookings.change_party(tx, actor, booking, change)
        raise KeyboardInterrupt

    with nothing_changes(ops.world), pytest.raises(KeyboardInterrupt):
        ops.act(die)
    assert ops.change_party(booking, 1)["money"]["refund"]["amount_minor"] == 2 * 89000
    assert ops.world.row(tables.gift_cards, card)["balance_minor"] == 0


def test_a_payment_and_the_sweep_that_meet_have_one_winner(ops: Operations, two: tuple[str, str]) -> None:
    for _ in range(ROUNDS):
        booking = ops.check_out(two[0])["id"]
        ops.world.clock.advance(30 * MINUTE)
        together(partial(ops.pay, booking), ops.abandon_due)
        row = ops.booking(booking)
        refunds = [row["status"] for row in ops.world.rows(tables.refunds) if row["booking_id"] == booking]
        assert row["payment_status"] == "paid"
        assert (row["status"], refunds) in [("confirmed", []), ("cancelled", ["requested"])]
        ops.cancel(booking)
    assert ops.seats_taken(two[0]) == 0


@pytest.mark.usefixtures("postgresql_only")
def test_a_sweep_passes_over_a_booking_that_is_being_paid(ops: Operations, two: tuple[str, str]) -> None:
    booking = ops.check_out(two[0])["id"]
    ops.world.clock.advance(30 * MINUTE)
    with ops.world.database.writing() as tx:
        bookings.pay(tx, ops.actor, booking, payment_intent="pi_1")
        tx.flush()
        ops.abandon_due()
        assert ops.booking(booking)["status"] == "pending"
    assert ops.booking(booking)["status"] == "confirmed"


def test_two_bookings_paid_at_once_by_one_payment_intent_have_one_winner(ops: Operations, two: tuple[str, str]) -> None:
    for turn in range(ROUNDS):
        first, second = (ops.check_out(departure)["id"] for departure in two)
        outcomes = together(*(partial(ops.pay, booking_id, f"pi_{turn}") for booking_id in (first, second)))
        assert sorted(isinstance(outcome, dict) for outcome in outcomes) == [False, True]
        assert "conflict" in outcomes
        for booking_id in (first, second):
            ops.cancel(booking_id)


def test_a_cancellation_and_a_move_that_meet_leave_the_seats_right(ops: Operations, two: tuple[str, str]) -> None:
    for _ in range(ROUNDS):
        booking = ops.book(two[0], 3)["id"]
        moved, cancelled = together(partial(ops.reschedule, booking, two[1]), partial(ops.cancel, booking))
        assert cancelled["status"] == "cancelled"
        assert moved == "conflict" or moved["departure"]["id"] == two[1]
        assert (ops.seats_taken(two[0]), ops.seats_taken(two[1])) == (0, 0)
    assert ops.event_types().count("booking.cancelled") == ROUNDS


def test_four_concurrent_cancellations_return_seats_and_gift_card_once(ops: Operations, two: tuple[str, str]) -> None:
    for _ in range(5):
        card_id, code = ops.issue(89000)
        booking = ops.book(two[0], 2, gift_card_code=code)["id"]
        answers = together(*[partial(ops.cancel, booking)] * 4)
        assert [booking["status"] for booking in answers] == ["cancelled"] * 4
        assert ops.world.row(tables.gift_cards, card_id)["balance_minor"] == 89000
        assert ops.event_types(booking).count("booking.cancelled") == 1
    assert ops.seats_taken(two[0]) == 0


def test_guests_who_pay_with_one_card_at_once_take_its_amount(ops: Operations) -> None:
    departures = [ops.world.departure(ops.world.experience(), seats=ROUNDS) for _ in range(4)]
    for _ in range(ROUNDS // 2):
        card_id, code = ops.issue(100_000)
        outcomes = together(*(partial(ops.check_out, departure, gift_card_code=code) for departure in departures))
        paid = [outcome["totals"]["gift_card"]["amount_minor"] for outcome in outcomes if isinstance(outcome, dict)]
        assert sorted(paid) == [11_000, 89_000]
        assert outcomes.count("validation_failed") == 2
        assert ops.world.row(tables.gift_cards, card_id)["balance_minor"] == 0


def test_the_last_seat_is_held_or_sold_once(ops: Operations, two: tuple[str, str]) -> None:
    for _ in range(ROUNDS // 2):
        ops.set_seats(two[0], 1)
        outcomes = together(
            partial(ops.hold, two[0], 1),
            partial(ops.hold, two[0], 1),
            partial(ops.check_out, two[0]),
            partial(ops.book, two[0]),
        )
        won = [outcome if isinstance(outcome, str) else outcome["id"] for outcome in outcomes if outcome != FULL]
        assert len(won) == 1
        holds = [row for row in ops.world.rows(tables.holds) if row["id"] == won[0]]
        if holds:
            ops.release(won[0])
        else:
            ops.cancel(won[0])
    assert ops.seats_taken(two[0]) == 0


def test_one_hold_checked_out_twice_at_once_is_one_booking(ops: Operations, two: tuple[str, str]) -> None:
    for _ in range(ROUNDS // 2):
        hold_id = ops.hold(two[0], 4)
        outcomes = together(*[partial(ops.check_out, two[0], 4, hold_id=hold_id)] * 2)
        assert sorted(outcome == "conflict" for outcome in outcomes) == [False, True]
        ops.cancel(next(outcome["id"] for outcome in outcomes if outcome != "conflict"))


def test_a_departure_that_is_cancelled_while_it_is_booked_keeps_no_booking(
    ops: Operations, two: tuple[str, str]
) -> None:
    for _ in range(5):
        departure = ops.world.departure(ops.world.experience(), seats=4)
        ops.book(departure)
        moving = ops.book(two[0])["id"]
        together(
            partial(ops.cancel_departure, departure),
            partial(ops.book, departure),
            partial(ops.reschedule, moving, departure),
        )
        ops.cancel_next_batch()
        assert ops.seats_taken(departure) == 0
        if ops.booking(moving)["status"] != "cancelled":
            ops.cancel(moving)


def test_two_who_take_one_address_are_distinguished(ops: Operations, two: tuple[str, str]) -> None:
    ops.book(two[0], email="first@example.com")
    ops.book(two[0], email="second@example.com")
    for turn in range(5):
        ids = [row["id"] for row in ops.world.rows(tables.customers)]
        address = f"shared{turn}@example.com"
        outcomes = together(*[partial(ops.update_customer, customer_id, email=address) for customer_id in ids])
        assert sorted(outcome == "conflict" for outcome in outcomes) == [False, True]


def test_departures_that_fall_under_their_minimum_are_cancelled_once_by_two_workers(
    new_world: Callable[..., World],
) -> None:
    ops = Operations(new_world(cancel_under_minimum=True))
    experience = ops.world.experience(min_participants=3)
    for number in range(5):
        departure = ops.world.departure(experience, starts_at=ops.world.clock() + number * MINUTE + DAY)
        ops.book(departure, 2)
    ops.world.clock.advance(DAY + 5 * MINUTE)
    together(ops.cancel_under_minimum, ops.cancel_under_minimum)
    assert ops.event_types().count("booking.cancelled") == 5


def record(ops: Operations, booking_id: str) -> Callable[[], Any]:
    """Records two thirds of the amount to pay."""
    return partial(ops.act, lambda tx, actor: bookings.record_payment(tx, actor, booking_id, amount_minor=60_000))


def test_two_who_record_the_last_payment_at_once_record_it_once(ops: Operations) -> None:
    departure = ops.world.departure(ops.world.experience(), seats=ROUNDS)
    for _ in range(ROUNDS):
        booking = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
        outcomes = together(record(ops, booking), record(ops, booking))
        assert outcomes.count("validation_failed") == 1
        assert ops.booking(booking)["recorded_minor"] == 60_000


def test_what_is_recorded_while_a_booking_is_cancelled_is_owed_or_refused(
    ops: Operations, two: tuple[str, str]
) -> None:
    for _ in range(ROUNDS):
        booking = ops.book(two[0], payment=PaymentMode.PAY_ON_SITE)["id"]
        recorded, cancelled = together(record(ops, booking), partial(ops.cancel, booking))
        assert cancelled["status"] == "cancelled"
        is_done = recorded != "conflict"
        amounts = [row["amount_minor"] for row in ops.world.rows(tables.refunds) if row["booking_id"] == booking]
        assert amounts == ([60_000] if is_done else [])
        assert ops.booking(booking)["recorded_minor"] == (60_000 if is_done else 0)
