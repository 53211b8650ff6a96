"""Money that staff takes by hand makes a booking paid, and goes back by hand when the booking is cancelled."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.world.operations import Operations
from support.world.world import ADULT, DAY, HOUR, World

from booking_core import bookings, payments
from booking_core.db import tables
from booking_core.models.bookings import PaymentMethod, PaymentMode, RefundMode
from booking_core.payments import MoneyState

TOTAL = 89_000
UNKNOWN = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
BY_HAND = [PaymentMode.PAY_ON_SITE, PaymentMode.INVOICE]


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), starts_at=world.clock() + 10 * DAY)


def record(ops: Operations, booking_id: str, amount_minor: int, **over: Any) -> dict[str, Any]:
    return ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, amount_minor=amount_minor, **over))


def void(ops: Operations, record_id: str, note: str | None = None) -> dict[str, Any]:
    return ops.act(lambda tx, actor: bookings.void_payment(tx, actor, record_id, note=note))


def records(ops: Operations, booking_id: str) -> list[payments.Record]:
    world = ops.world
    return world.database.read(lambda tx: payments.find_records(tx, world.organization, booking_id))


def due(ops: Operations, **over: Any) -> list[str]:
    world = ops.world
    rows = world.database.read(lambda tx: payments.find_due(tx, world.organization, limit=10, **over))
    return [row.id for row in rows]


def outcome(ops: Operations, booking_id: str) -> payments.MoneyOutcome:
    return ops.world.database.read(lambda tx: payments.outcome_of(tx, ops.world.org, booking_id))


@pytest.mark.parametrize(("discount", "is_due"), [(TOTAL - 1, True), (TOTAL, False)], ids=["something", "nothing"])
def test_an_invoice_is_due_if_there_is_something_to_pay(
    ops: Operations, departure: str, discount: int, is_due: bool
) -> None:
    booking = ops.book(departure, payment=PaymentMode.INVOICE, discount_minor=discount)
    assert ops.booking(booking["id"])["invoice_due"] == is_due


# Recorded --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BY_HAND)
def test_a_booking_is_paid_once_what_was_recorded_comes_to_its_total(
    ops: Operations, world: World, departure: str, mode: PaymentMode
) -> None:
    booking = ops.book(departure, payment=mode)
    world.clock.advance(HOUR)
    partly = record(ops, booking["id"], 40_000, method="cash", note="At the quay")
    assert partly["payment"] == booking["payment"] | {"status": "unpaid"}
    assert bool(ops.booking(booking["id"])["invoice_due"]) == (mode is PaymentMode.INVOICE)
    world.clock.advance(HOUR)
    paid = record(ops, booking["id"], 49_000, received_at=world.clock() - DAY)
    assert paid["payment"] == booking["payment"] | {"status": "paid"}
    assert paid["updated_at"] > partly["updated_at"] > booking["updated_at"]
    row = ops.booking(booking["id"])
    assert (row["payment_status"], row["recorded_minor"], row["invoice_due"]) == ("paid", TOTAL, False)
    first, second = records(ops, booking["id"])
    assert (first.amount_minor, first.method, first.note, first.currency) == (40_000, "cash", "At the quay", "NOK")
    assert (second.amount_minor, second.received_at) == (49_000, world.clock() - DAY)
    assert ops.noted(booking["id"]).count("payment_recorded") == 2
    assert ops.event_types(booking["id"]) == ["booking.created", "booking.confirmed", *["booking.updated"] * 2]
    changes = [event["data"]["changes"] for event in ops.events()[-2:]]
    assert changes == [
        {"cancellation": booking["cancellation"]},
        {"payment": partly["payment"], "cancellation": partly["cancellation"]},
    ]


def test_what_cannot_have_been_paid_is_refused_and_changes_nothing(
    ops: Operations, world: World, departure: str
) -> None:
    booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    record(ops, booking_id, 40_000)
    before = ops.booking(booking_id), world.rows(tables.payments), world.rows(tables.payment_records)
    for amount, over, reason in (
        (49_001, {}, "overpaid"),
        (0, {}, "out_of_range"),
        (-5, {}, "out_of_range"),
        (2**63, {}, "out_of_range"),
        (1, {"received_at": world.clock() + 1}, "in_the_future"),
        (1, {"method": "x" * 51}, "too_long"),
        (1, {"method": "a\nb"}, "forbidden_character"),
        (1, {"note": "x" * 501}, "too_long"),
    ):
        assert ops.refusal(record, ops, booking_id, amount, **over) == ("validation_failed", reason)
    assert ops.refusal(record, ops, UNKNOWN, 1)[0] == "not_found"
    assert before == (ops.booking(booking_id), world.rows(tables.payments), world.rows(tables.payment_records))


def test_only_what_is_to_be_paid_by_hand_is_recorded(ops: Operations, departure: str) -> None:
    card = ops.check_out(departure)["id"]
    assert ops.refusal(record, ops, card, 1) == ("conflict", "paid_by_card")
    elsewhere = ops.book(departure, payment=PaymentMode.EXTERNAL_PAID)["id"]
    assert ops.refusal(record, ops, elsewhere, 1) == ("conflict", "paid_already")
    paid = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    record(ops, paid, TOTAL)
    assert ops.refusal(record, ops, paid, 1) == ("conflict", "paid_already")
    cancelled = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    ops.cancel(cancelled)
    assert ops.refusal(record, ops, cancelled, 1) == ("conflict", "booking_cancelled")


def test_what_a_gift_card_left_to_pay_is_recorded(ops: Operations, world: World, departure: str) -> None:
    _, code = ops.issue(50_000)
    booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE, gift_card_code=code)["id"]
    assert record(ops, booking_id, 39_000)["payment"]["status"] == "paid"
    ops.cancel(booking_id)
    money = outcome(ops, booking_id)
    assert (money.amount_minor, money.restored_minor) == (39_000, 50_000)
    assert money.sentence.endswith("500.00 NOK went back to the gift card.")


# Voided ----------------------------------------------------------------------------------------------------------


def test_a_record_that_was_a_mistake_is_voided_once(ops: Operations, world: World, departure: str) -> None:
    booking_id = ops.book(departure, payment=PaymentMode.INVOICE)["id"]
    record(ops, booking_id, TOTAL)
    (payment,) = records(ops, booking_id)
    assert void(ops, payment.id, "The wrong booking")["payment"]["status"] == "unpaid"
    row = ops.booking(booking_id)
    assert (row["recorded_minor"], row["invoice_due"]) == (0, True)
    (voided,) = records(ops, booking_id)
    assert (voided.voided_at, voided.voided_note) == (world.clock(), "The wrong booking")
    assert ops.refusal(void, ops, payment.id) == ("conflict", "payment_voided")
    assert ops.refusal(void, ops, UNKNOWN)[0] == "not_found"
    assert world.examine() == []
    record(ops, booking_id, TOTAL)
    assert ops.booking(booking_id)["payment_status"] == "paid"


def test_what_was_paid_for_a_cancelled_booking_stays_recorded(ops: Operations, departure: str) -> None:
    booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    record(ops, booking_id, TOTAL)
    ops.cancel(booking_id)
    (payment,) = records(ops, booking_id)
    assert ops.refusal(void, ops, payment.id) == ("conflict", "booking_cancelled")


# Cancelled -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BY_HAND)
@pytest.mark.parametrize("amount", [TOTAL, 40_000])
def test_a_payment_by_hand_is_owed_by_hand_once(
    ops: Operations, world: World, departure: str, mode: PaymentMode, amount: int
) -> None:
    booking_id = ops.book(departure, payment=mode)["id"]
    status = record(ops, booking_id, amount)["payment"]["status"]
    for _ in range(2):
        assert ops.cancel(booking_id)["payment"]["status"] == status
    (refund,) = world.rows(tables.refunds)
    assert (refund["status"], refund["last_error"], refund["amount_minor"]) == ("needs_review", "paid_by_hand", amount)
    assert refund["next_attempt_at"] is None
    assert ops.outbox_kinds(booking_id).count("staff_refund_review_mail") == 1
    assert ops.noted(booking_id).count("refund_needs_review") == 1
    money = outcome(ops, booking_id)
    assert (money.state, money.amount_minor) == (MoneyState.BY_HAND, amount)
    assert "the payment was taken by hand" in money.sentence
    assert world.examine() == []

    reopen = partial(ops.act, lambda tx, actor: payments.reopen_refund(tx, actor, refund["id"]))
    assert ops.refusal(reopen) == ("conflict", "paid_by_hand")
    ops.act(lambda tx, actor: bookings.settle_refund(tx, actor, refund["id"], note="Cash"))
    assert ops.booking(booking_id)["payment_status"] == "refunded"


def test_the_policy_and_the_refund_mode_count_by_hand_too(new_world: Callable[..., World]) -> None:
    world = new_world(refund_late_percent=50)
    ops, experience = Operations(world), world.experience()
    leaving = [world.departure(experience, starts_at=world.clock() + at * HOUR) for at in (2, 3)]
    late, unrefunded = (ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"] for departure in leaving)
    for booking_id in (late, unrefunded):
        record(ops, booking_id, TOTAL)
    ops.cancel(late)
    ops.cancel(unrefunded, refund=RefundMode.NONE)
    assert [(row["booking_id"], row["amount_minor"]) for row in world.rows(tables.refunds)] == [(late, 44_500)]
    result, sentence = outcome(ops, unrefunded), "Nothing is returned of the 890.00 NOK that was paid by hand."
    assert (result.amount_minor, result.sentence) == (0, sentence)


def test_a_cancelled_departure_returns_card_payments_and_payments_by_hand(ops: Operations, world: World) -> None:
    """Also where the policy gives nothing back: that is for a guest who cancels."""
    departure = world.departure(world.experience(), starts_at=world.clock() + 2 * HOUR)
    cancelled = ops.check_out(departure)["id"]
    ops.pay(cancelled)
    ops.cancel(cancelled)
    card, hand = ops.check_out(departure)["id"], ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    ops.pay(card)
    record(ops, hand, 40_000)
    ops.cancel_departure(departure)
    refunds = {row["booking_id"]: (row["status"], row["amount_minor"]) for row in world.rows(tables.refunds)}
    assert refunds == {card: ("requested", TOTAL), hand: ("needs_review", 40_000)}


def test_without_a_record_nothing_is_owed(ops: Operations, world: World, departure: str) -> None:
    for mode in PaymentMode:
        booking_id = ops.book(departure, payment=mode)["id"]
        ops.cancel(booking_id)
        expected = MoneyState.PAID_ELSEWHERE if mode is PaymentMode.EXTERNAL_PAID else MoneyState.NOTHING_PAID
        assert outcome(ops, booking_id).state is expected
    confirmed = ops.check_out(departure)["id"]
    ops.confirm(confirmed)
    assert ops.cancel(confirmed)["payment"]["status"] == "failed"
    assert outcome(ops, confirmed).sentence == "No card was charged, so nothing is returned."
    assert world.rows(tables.refunds) == []


# Due -------------------------------------------------------------------------------------------------------------


def test_what_is_left_to_pay_is_listed_by_departure(ops: Operations, world: World) -> None:
    experience = world.experience()
    soon, later = (world.departure(experience, starts_at=world.clock() + at * DAY) for at in (1, 2))
    invoice = ops.book(later, payment=PaymentMode.INVOICE)["id"]
    on_site = ops.book(soon, payment=PaymentMode.PAY_ON_SITE)["id"]
    card = ops.check_out(later)["id"]
    ops.book(soon, payment=PaymentMode.EXTERNAL_PAID)
    cancelled = ops.book(soon, payment=PaymentMode.INVOICE)["id"]
    ops.cancel(cancelled)
    assert due(ops) == [on_site, invoice]  # a checkout that waits for its card is nobody's debt
    ops.confirm(card)
    assert due(ops) == [on_site, *sorted([invoice, card])]
    assert due(ops, method=PaymentMethod.INVOICE) == [invoice]
    assert due(ops, overdue=True) == []
    world.clock.advance(DAY)
    assert due(ops, overdue=True) == [on_site]
    record(ops, on_site, TOTAL)
    ops.pay(card)
    assert due(ops) == [invoice]


# Currencies of three decimals ------------------------------------------------------------------------------------


def kuwaiti(ops: Operations, price_minor: int) -> str:
    tiers = json.dumps([ADULT | {"price": {"amount_minor": price_minor, "currency": "KWD"}}])
    experience = ops.world.experience(currency="KWD", price_tiers=tiers, add_ons="[]")
    return ops.world.departure(experience, starts_at=ops.world.clock() + 10 * DAY)


@pytest.mark.parametrize("how", ["policy", "departure", "late payment"])
def test_wherever_a_refund_becomes_owed_the_gateway_can_return_it(ops: Operations, world: World, how: str) -> None:
    departure = kuwaiti(ops, 12_345)
    booking_id = ops.check_out(departure)["id"]
    if how == "late payment":
        ops.cancel(booking_id)
        ops.pay(booking_id)
    else:
        ops.pay(booking_id)
        ops.cancel(booking_id) if how == "policy" else ops.cancel_departure(departure)
    assert [row["amount_minor"] for row in world.rows(tables.refunds)] == [12_340]
    noted = [row["data"] for row in world.rows(tables.timeline) if row["kind"] == "refund_requested"]
    assert ['"rounded_off_minor":5' in data for data in noted] == [True]
    assert outcome(ops, booking_id).amount_minor == 12_340


def test_what_is_returned_by_hand_is_returned_to_the_last_minor_unit(ops: Operations, world: World) -> None:
    booking_id = ops.book(kuwaiti(ops, 12_345), payment=PaymentMode.PAY_ON_SITE)["id"]
    record(ops, booking_id, 12_345)
    ops.cancel(booking_id)
    assert [row["amount_minor"] for row in world.rows(tables.refunds)] == [12_345]
