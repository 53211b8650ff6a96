"""Card payments of a booking: expected, received or dropped, and the refund when the booking ends."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.world.money import TOTAL, Till
from support.world.world import DAY, HOUR, NOON, organization_row

from booking_core import bookings
from booking_core.base.context import Organization
from booking_core.base.errors import NotFound
from booking_core.db import tables
from booking_core.models.bookings import PaymentStatus
from booking_core.payments import RefundOutcome, rules

# Payments --------------------------------------------------------------------------------------------------------


def test_a_payment_is_expected_then_received(till: Till) -> None:
    booking_id = till.booking(status="pending", cancelled_at=None)
    till.expect(booking_id)
    waiting = till.payment(booking_id)
    assert (waiting["status"], waiting["payment_intent"], waiting["refunded_minor"]) == ("pending", None, 0)
    till.world.clock.advance(HOUR)
    till.receive(booking_id, "pi_1")
    paid = till.payment(booking_id)
    assert paid == waiting | {"status": "paid", "payment_intent": "pi_1", "updated_at": NOON + HOUR}
    assert till.timeline() == [("payment_received", {"amount_minor": TOTAL, "currency": "NOK"})]


def test_a_booking_that_expects_nothing_receives_nothing(till: Till) -> None:
    with pytest.raises(NotFound):
        till.receive(till.booking(), "pi_1")


def test_a_dropped_payment_has_failed_and_one_that_came_is_not_dropped(till: Till) -> None:
    abandoned = till.booking()
    till.expect(abandoned)
    paid, unpaid = till.paid(), till.booking()
    for booking_id in (abandoned, paid, unpaid):
        till.drop(booking_id)
    assert till.payment(abandoned)["status"] == "failed"
    assert till.payment(paid)["status"] == "paid"
    assert len(till.world.rows(tables.payments)) == 2


# Refunds due -----------------------------------------------------------------------------------------------------


def test_what_is_owed_is_written_once_and_frozen(till: Till) -> None:
    booking_id = till.paid()
    till.world.clock.advance(HOUR)
    assert till.request_refund(booking_id) == TOTAL
    refund = till.refund(booking_id)
    assert refund["amount_minor"] == TOTAL
    assert (refund["status"], refund["currency"], refund["next_attempt_at"]) == ("requested", "NOK", till.world.clock())
    assert refund["payment_id"] == till.payment(booking_id)["id"]
    organization = replace(till.world.organization, refund_full_until_hours=0, refund_late_percent=50)
    till.world.organization = organization
    assert till.request_refund(booking_id) == 0
    assert till.refund(booking_id) == refund
    assert [kind for kind, _ in till.timeline()] == ["payment_received", "refund_requested"]


@pytest.mark.parametrize("state", ["none", "pending", "failed"])
def test_nothing_is_owed_where_nothing_was_paid(till: Till, state: str) -> None:
    booking_id = till.booking()
    if state != "none":
        till.expect(booking_id)
    if state == "failed":
        till.drop(booking_id)
    assert till.request_refund(booking_id) == 0
    assert till.world.rows(tables.refunds) == []


@pytest.mark.parametrize(
    ("before_start", "percent", "amount"),
    [
        (24 * HOUR, 0, TOTAL),
        (24 * HOUR + 1, 0, TOTAL),
        (24 * HOUR - 1, 0, 0),
        (24 * HOUR - 1, 50, 44_500),
        (24 * HOUR - 1, 100, TOTAL),
        (-DAY, 30, 26_700),
    ],
)
def test_the_policy_gives_all_until_its_hours_and_then_its_percentage(
    before_start: int, percent: int, amount: int
) -> None:
    assert amount_owed(TOTAL, percent, at=-before_start) == amount


THREE_DECIMALS = "KWD BHD JOD OMR TND"
"""The gateway takes multiples of ten of their minor units."""
ORGANIZATION = Organization(**organization_row(NOON))


def amount_owed(
    paid_minor: int, percent: int, hours: int = 24, at: int = 1, currency: str = "NOK", refunded_minor: int = 0
) -> int:
    """Return the refund that the policy requires for a departure that starts at 0."""
    organization = replace(ORGANIZATION, refund_full_until_hours=hours, refund_late_percent=percent)
    terms = rules.RefundTerms(organization, starts_at=0, at=at)
    return rules.refund_amount(terms, paid_minor, refunded_minor, currency).amount_minor


@pytest.mark.parametrize(
    ("currencies", "percent", "amounts"),
    [
        pytest.param("NOK", 50, {1: 1, 2: 1, 3: 2}, id="half a minor unit is rounded up"),
        *(("NOK", percent, amounts) for percent, amounts in ((49, {1: 0}), (33, {100: 33}), (15, {1_010: 152}))),
        pytest.param("NOK", 10, {5: 1, 4: 0}, id="a tenth"),
        (THREE_DECIMALS, 50, {12_350: 6_180, 12_340: 6_170, 12_330: 6_170, 30: 20, 10: 10, 9: 0}),
        (THREE_DECIMALS, 100, {12_340: 12_340, 12_344: 12_340, 12_345: 12_340, 12_349: 12_340, 10: 10, 9: 0}),
        pytest.param("MGA", 50, {89_000: 44_500, 89_100: 44_600, 150: 100, 90: 0}, id="ariary"),
        # The gateway counts krónur and shillings with two decimals; here they have none.
        pytest.param("NOK JPY CLP ISK UGX IQD", 50, {12_345: 6_173}, id="to the minor unit"),
    ],
)
def test_a_percentage_is_rounded_half_up_to_the_unit_of_the_gateway(
    currencies: str, percent: int, amounts: dict[int, int]
) -> None:
    for currency in currencies.split():
        assert {paid: amount_owed(paid, percent, currency=currency) for paid in amounts} == amounts


@pytest.mark.parametrize(("refunded", "amount"), [(0, 800), (199, 800), (201, 799), (1_000, 0)])
def test_no_more_is_owed_than_earlier_refunds_left(refunded: int, amount: int) -> None:
    assert amount_owed(1_000, 80, refunded_minor=refunded) == amount


@settings(deadline=None)
@given(st.integers(1, 2**63 - 1), st.integers(0, 100), st.sampled_from(["KWD", "MGA"]))
def test_an_owed_amount_can_be_sent_and_differs_by_half_a_unit(paid: int, percent: int, currency: str) -> None:
    amount, unit = amount_owed(paid, percent, currency=currency), rules.gateway_unit(currency)
    assert amount % unit == 0
    assert 0 <= amount <= paid
    exact = amount_owed(paid, percent)
    assert 2 * abs(amount - exact) <= unit or amount == paid - paid % unit


@settings(deadline=None)
@given(st.integers(1, 2**63 - 1), st.integers(0, 100), st.integers(0, 8_784), st.integers(-(10**15), 10**15))
def test_no_policy_gives_back_more_than_was_paid(paid_minor: int, percent: int, hours: int, at: int) -> None:
    amount = amount_owed(paid_minor, percent, hours, at)
    assert 0 <= amount <= paid_minor
    if at <= -hours * HOUR:
        assert amount == paid_minor
    else:
        assert abs(amount * 100 - paid_minor * percent) <= 50


# Events --------------------------------------------------------------------------------------------------------------


def refunded(till: Till) -> list[dict[str, Any]]:
    return [event["data"] for event in till.events() if event["type"] == "booking.refunded"]


def nok(amount_minor: int) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": "NOK"}


def test_a_refund_of_the_gateway_is_published_when_it_succeeded_and_once(till: Till) -> None:
    booking_id = till.with_refund()
    claimed = till.one()
    assert refunded(till) == []
    assert [till.answer(claimed, RefundOutcome.REFUNDED) for _ in range(2)] == [1, 0]
    (data,) = refunded(till)
    booking = orjson.loads(till.write(lambda tx: orjson.dumps(bookings.get(tx, till.actor, booking_id))))
    assert data["object"] == {name: booking[name] for name in data["object"]}
    assert data["object"]["payment"]["status"] == "refunded"
    assert data["changes"] == {"payment": booking["payment"] | {"status": "paid"}}
    assert (data["refunded_amount"], data["total_refunded"]) == (nok(TOTAL), nok(TOTAL))


@pytest.mark.parametrize(
    ("amount_minor", "published"),
    [(0, []), (1_000, [(nok(1_000), nok(1_000), PaymentStatus.PARTIALLY_REFUNDED)])],
)
def test_a_refund_that_staff_closes_is_published_with_what_was_returned(
    till: Till, amount_minor: int, published: list[Any]
) -> None:
    refund_id = till.refund(till.with_refund())["id"]
    till.write(lambda tx: bookings.settle_refund(tx, till.actor, refund_id, note="Cash", amount_minor=amount_minor))
    refunds = [
        (refund["refunded_amount"], refund["total_refunded"], refund["object"]["payment"]["status"])
        for refund in refunded(till)
    ]
    assert refunds == published


def test_a_refund_that_staff_records_is_published(till: Till) -> None:
    booking_id = till.paid()
    till.write(lambda tx: bookings.record_refund(tx, till.actor, booking_id, amount_minor=500, note="Goodwill"))
    assert [refund["total_refunded"] for refund in refunded(till)] == [nok(500)]
