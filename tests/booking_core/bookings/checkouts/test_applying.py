"""Stripe's reports are recorded once, in any order and number."""

from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from support.world.checkouts import applied, checkout_body, configure, intent_row
from support.world.operations import Operations
from support.world.world import World

from booking_core import bookings, payments
from booking_core.base.clock import HOUR, MINUTE, SECOND
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import Applied, DisputeUpdate, IntentState, IntentUpdate, RefundUpdate, rules
from booking_core.db import tables
from booking_core.models.checkouts import CheckoutCreate
from booking_core.payments import RefundOutcome, RefundResult

TOTAL = 89_000


@dataclass
class Shop:
    """Checkouts of an organization, and what Stripe says of their payments."""

    world: World
    ops: Operations = field(init=False)
    departure: str = field(init=False)

    def __post_init__(self) -> None:
        self.ops = Operations(self.world)
        self.departure = self.world.departure(self.world.experience(), seats=50)
        configure(self.world)

    def checkout(self, count: int = 1) -> str:
        """Return the id of a booking whose guest can pay by the intent pi_<id>."""
        request = CheckoutCreate.model_validate(checkout_body(self.departure, count))
        booking_id: str = self.ops.act(lambda tx, actor: checkouts.create(tx, self.world.caller(), request))["id"]
        self.record_intent(booking_id)
        return booking_id

    def paid(self) -> str:
        """Return the id of a booking that was paid by the intent pi_<id>."""
        booking_id = self.checkout()
        self.say(self.intent(booking_id))
        return booking_id

    def record_intent(self, booking_id: str, intent_id: str | None = None) -> None:
        intent = intent_id or f"pi_{booking_id}"
        self.ops.act(lambda tx, actor: checkouts.record_intent(tx, actor, booking_id, intent, "secret"))

    def say(self, update: checkouts.StripeUpdate) -> Applied:
        return applied(self.world.database, self.world, update)

    def intent(self, booking_id: str, state: IntentState = IntentState.SUCCEEDED, **over: Any) -> IntentUpdate:
        payment = {"intent_id": f"pi_{booking_id}", "received_minor": TOTAL, "currency": "NOK"}
        ids = {"organization_id": self.world.org, "booking_id": booking_id}
        return IntentUpdate(**(payment | ids | {"state": state} | over))

    def refund(self, booking_id: str, refunded_minor: int) -> RefundUpdate:
        is_whole = refunded_minor == TOTAL
        return RefundUpdate(intent_id=f"pi_{booking_id}", refunded_minor=refunded_minor, is_whole=is_whole)

    def dispute(self, booking_id: str, *, is_closed: bool = False) -> DisputeUpdate:
        return DisputeUpdate(
            intent_id=f"pi_{booking_id}",
            dispute_id=f"dp_{booking_id}",
            status="lost" if is_closed else "needs_response",
            reason="fraudulent",
            amount_minor=TOTAL,
            is_closed=is_closed,
        )

    def mailed(self, booking_id: str) -> list[tuple[str, str]]:
        """Return the kinds and reasons of the mails to staff about the payment of a booking."""
        owed = [row for row in self.world.rows(tables.effects) if row["subject_id"] == booking_id]
        rows = sorted(owed, key=lambda row: row["key"])
        kinds = ("staff_payment_review_mail", "staff_dispute_opened_mail", "staff_dispute_lost_mail")
        return [(row["kind"], orjson.loads(row["payload"])["reason"]) for row in rows if row["kind"] in kinds]

    def state(self, booking_id: str) -> tuple[str, str]:
        row = self.ops.booking(booking_id)
        return row["status"], row["payment_status"]

    def payment(self, booking_id: str) -> dict[str, Any]:
        (row,) = [row for row in self.world.rows(tables.payments) if row["booking_id"] == booking_id]
        return row

    def row(self, booking_id: str) -> dict[str, Any]:
        return intent_row(self.world, booking_id)


@pytest.fixture
def shop(world: World) -> Shop:
    return Shop(world)


# Payments --------------------------------------------------------------------------------------------------------


def test_a_payment_confirms_its_booking_and_is_applied_once(shop: Shop) -> None:
    booking_id = shop.checkout()
    for _ in range(3):
        assert shop.say(shop.intent(booking_id)) is Applied.RECORDED
    assert shop.state(booking_id) == ("confirmed", "paid")
    assert shop.ops.event_types(booking_id) == ["booking.created", "booking.confirmed"]
    assert shop.ops.noted(booking_id).count("payment_received") == 1
    assert (shop.row(booking_id)["status"], shop.row(booking_id)["check_at"]) == ("succeeded", None)


def test_a_declined_card_is_recorded_and_may_pay_later(shop: Shop) -> None:
    booking_id = shop.checkout()
    declined = shop.intent(booking_id, IntentState.DECLINED, error="insufficient_funds", received_minor=0)
    shop.say(declined)
    shop.say(declined)
    assert shop.state(booking_id) == ("pending", "pending")
    assert shop.row(booking_id)["last_error"] == "insufficient_funds"
    assert shop.ops.noted(booking_id) == ["booking_created", "payment_failed"]
    shop.say(shop.intent(booking_id))
    assert shop.state(booking_id) == ("confirmed", "paid")
    shop.say(declined)  # late
    assert (shop.row(booking_id)["status"], shop.row(booking_id)["last_error"]) == ("succeeded", None)


def test_a_payment_before_the_intent_was_stored_is_found_by_its_metadata(shop: Shop) -> None:
    booking_id = shop.checkout()
    shop.record_intent(booking_id, "pi_again")
    assert shop.row(booking_id)["intent_id"] == f"pi_{booking_id}"
    assert shop.say(replace(shop.intent(booking_id), organization_id=None, booking_id=None)) is Applied.RECORDED
    other = shop.ops.check_out(shop.departure)["id"]
    assert shop.say(shop.intent(other)) is Applied.RECORDED
    assert shop.state(other) == ("confirmed", "paid")


def test_a_payment_of_another_organization_or_of_no_booking_is_unknown(shop: Shop, new_world: Any) -> None:
    booking_id = shop.checkout()
    stranger = replace(shop.intent(booking_id), intent_id="pi_x", organization_id=new_world().org)
    assert shop.say(stranger) is Applied.UNKNOWN
    assert shop.say(replace(stranger, organization_id=shop.world.org, booking_id=shop.world.org)) is Applied.UNKNOWN
    assert shop.say(shop.refund("nobody", 5)) is Applied.UNKNOWN
    assert shop.state(booking_id) == ("pending", "pending")


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({"received_minor": TOTAL - 1}, "amount_differs"),
        ({"received_minor": None}, "amount_differs"),
        ({"currency": "EUR"}, "currency_differs"),
    ],
)
def test_money_that_does_not_fit_waits_for_a_person(shop: Shop, over: dict[str, Any], reason: str) -> None:
    booking_id = shop.checkout()
    for _ in range(2):
        assert shop.say(shop.intent(booking_id, **over)) is Applied.NEEDS_REVIEW
    assert shop.state(booking_id) == ("pending", "pending")
    assert (shop.row(booking_id)["status"], shop.row(booking_id)["last_error"]) == ("needs_review", reason)
    assert shop.ops.noted(booking_id).count("payment_needs_review") == 1
    assert shop.mailed(booking_id) == [("staff_payment_review_mail", reason)]


def test_the_review_ends_when_the_money_was_refunded_or_staff_says_so(shop: Shop) -> None:
    refunded, resolved = shop.checkout(), shop.checkout()
    for booking_id in (refunded, resolved):
        shop.say(shop.intent(booking_id, received_minor=TOTAL - 1))
    shop.say(replace(shop.refund(refunded, TOTAL - 1), is_whole=True))
    listed = shop.ops.act(lambda tx, actor: checkouts.find_intents(tx, actor, state="waiting", limit=9))
    assert [row["booking_id"] for row in listed] == [resolved]
    shop.ops.act(lambda tx, actor: checkouts.resolve(tx, actor, resolved, note="Kept as a tip"))
    assert {shop.row(booking_id)["status"] for booking_id in (refunded, resolved)} == {"resolved"}


def test_a_second_intent_for_a_paid_booking_waits_for_a_person(shop: Shop) -> None:
    booking_id = shop.paid()
    assert shop.say(replace(shop.intent(booking_id), intent_id="pi_second")) is Applied.NEEDS_REVIEW
    assert shop.state(booking_id) == ("confirmed", "paid")
    assert shop.payment(booking_id)["payment_intent"] == f"pi_{booking_id}"
    for update in (shop.intent(booking_id), replace(shop.intent(booking_id), intent_id="pi_second")) * 2:
        shop.say(update)
    assert (shop.row(booking_id)["status"], shop.row(booking_id)["last_error"]) == ("needs_review", "second_intent")
    assert shop.mailed(booking_id) == [("staff_payment_review_mail", "second_intent")]


def test_a_payment_books_while_a_second_payment_waits_for_staff(shop: Shop) -> None:
    booking_id = shop.checkout()
    shop.say(replace(shop.intent(booking_id), intent_id="pi_second"))
    shop.say(shop.intent(booking_id))
    assert shop.state(booking_id) == ("confirmed", "paid")
    assert (shop.row(booking_id)["status"], shop.row(booking_id)["last_error"]) == ("needs_review", "second_intent")


# Refunds ---------------------------------------------------------------------------------------------------------


def test_a_refund_at_the_dashboard_is_recorded_once(shop: Shop) -> None:
    booking_id = shop.paid()
    for amount in (9_000, 9_000, 4_000):
        shop.say(shop.refund(booking_id, amount))
    assert shop.state(booking_id) == ("confirmed", "partially_refunded")
    assert shop.payment(booking_id)["refunded_minor"] == 9_000
    shop.say(shop.refund(booking_id, TOTAL))
    assert shop.state(booking_id) == ("confirmed", "refunded")
    assert shop.ops.noted(booking_id).count("payment_returned") == 2


def test_an_event_too_many_about_a_refund_at_the_dashboard_is_found(shop: Shop) -> None:
    booking_id = shop.paid()
    shop.say(shop.refund(booking_id, 9_000))
    assert shop.world.examine() == []
    (confirmed,) = (row for row in shop.world.rows(tables.events) if row["type"] == "booking.confirmed")
    shop.world.change(tables.events, confirmed["id"], type="booking.refunded")
    findings = [str(finding) for finding in shop.world.examine()]
    about = [text for text in findings if "each refund that returned money has one event" in text]
    assert ["1 refunds in the timeline, 1 made, 2 events" in text for text in about] == [True]
    shop.world.change(tables.events, confirmed["id"], type="booking.confirmed")


def test_a_cancellation_refunds_what_the_dashboard_has_left(shop: Shop) -> None:
    booking_id = shop.paid()
    shop.say(shop.refund(booking_id, 9_000))
    shop.ops.cancel(booking_id)
    (refund,) = shop.world.rows(tables.refunds)
    assert refund["amount_minor"] == TOTAL - 9_000
    shop.say(shop.refund(booking_id, TOTAL))  # Stripe tells of ours before the worker has
    assert shop.payment(booking_id)["refunded_minor"] == 9_000
    assert shop.row(booking_id)["check_at"] == shop.world.clock() + rules.UNSETTLED
    settle_refund(shop)
    shop.say(shop.refund(booking_id, TOTAL))
    assert shop.row(booking_id)["check_at"] is None
    assert (shop.payment(booking_id)["refunded_minor"], shop.state(booking_id)[1]) == (TOTAL, "refunded")
    assert shop.row(booking_id)["returned_minor"] == 9_000


@pytest.mark.parametrize(("at_the_dashboard", "released"), [(9_000, TOTAL - 9_000), (TOTAL + 9_000, 0)])
def test_a_change_of_party_counts_what_the_dashboard_returned(shop: Shop, at_the_dashboard: int, released: int) -> None:
    booking_id = shop.checkout(2)
    shop.say(shop.intent(booking_id, received_minor=2 * TOTAL))
    shop.say(RefundUpdate(intent_id=f"pi_{booking_id}", refunded_minor=at_the_dashboard, is_whole=False))
    change = shop.ops.change_party(booking_id, 1)
    assert change["money"]["refund"]["amount_minor"] == released
    assert shop.state(booking_id) == ("confirmed", "partially_refunded")
    assert shop.world.examine() == []
    shop.ops.cancel(booking_id)
    amounts = {row["number"]: row["amount_minor"] for row in shop.world.rows(tables.refunds)}
    assert amounts.pop(1, 0) == released
    assert amounts == {0: 2 * TOTAL - at_the_dashboard - released}


def test_a_refund_that_comes_before_its_payment_is_recorded_with_it(shop: Shop) -> None:
    booking_id = shop.checkout()
    shop.say(shop.refund(booking_id, 9_000))
    assert shop.state(booking_id) == ("pending", "pending")
    shop.say(shop.intent(booking_id))
    assert shop.state(booking_id) == ("confirmed", "partially_refunded")


def test_a_refund_that_waits_for_a_person_is_closed_by_the_dashboard(shop: Shop) -> None:
    booking_id = shop.paid()
    shop.ops.cancel(booking_id)
    settle_refund(shop, RefundOutcome.REFUSED)
    shop.say(shop.refund(booking_id, TOTAL))
    (refund,) = shop.world.rows(tables.refunds)
    assert (refund["status"], refund["last_error"]) == ("succeeded", "refunded_elsewhere")
    assert shop.state(booking_id) == ("cancelled", "refunded")


def test_the_dashboard_closes_the_waiting_refunds_that_its_amount_suffices_for(shop: Shop) -> None:
    booking_id = shop.checkout(3)
    shop.say(shop.intent(booking_id, received_minor=3 * TOTAL))
    for count in (2, 1):
        shop.ops.change_party(booking_id, count)
        settle_refund(shop, RefundOutcome.REFUSED)
    waiting = {row["number"]: row["status"] for row in shop.world.rows(tables.refunds)}
    for refunded_minor, closed in ((TOTAL, {1: "succeeded"}), (2 * TOTAL, {1: "succeeded", 2: "succeeded"})):
        shop.say(RefundUpdate(intent_id=f"pi_{booking_id}", refunded_minor=refunded_minor, is_whole=False))
        assert {row["number"]: row["status"] for row in shop.world.rows(tables.refunds)} == waiting | closed


def settle_refund(shop: Shop, outcome: RefundOutcome = RefundOutcome.REFUNDED) -> None:
    """Send the requested refund of the organization, and record its outcome."""
    (row,) = (row for row in shop.world.rows(tables.refunds) if row["status"] == "requested")

    def work(tx: Any, actor: Any) -> None:
        (claimed,) = payments.claim(tx, shop.world.org, [row["id"]], lease_s=30).results
        refund_id = "re_1" if outcome is RefundOutcome.REFUNDED else None
        bookings.settle_refunds(tx, [RefundResult(claimed, outcome, refund_id, None)])

    shop.ops.act(work)


# Disputes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(False, True), (True, False), (False, False, True, True, False)])
def test_a_dispute_is_opened_and_closed_once_in_any_order(shop: Shop, order: tuple[bool, ...]) -> None:
    booking_id = shop.paid()
    for is_closed in order:
        shop.say(shop.dispute(booking_id, is_closed=is_closed))
    row = shop.row(booking_id)
    assert (row["dispute_status"], row["dispute_closed_at"] is None) == ("lost", False)
    noted = [kind for kind in shop.ops.noted(booking_id) if "dispute" in kind]
    assert sorted(noted) == ["dispute_closed", "payment_disputed"]
    opened = [] if order[0] else [("staff_dispute_opened_mail", "fraudulent")]
    assert shop.mailed(booking_id) == [("staff_dispute_lost_mail", "fraudulent"), *opened]


def test_two_disputes_of_a_payment_are_mailed_once_each_however_they_alternate(shop: Shop) -> None:
    booking_id = shop.paid()
    for number in (1, 2, 1, 2):
        shop.say(replace(shop.dispute(booking_id), dispute_id=f"dp_{number}"))
    assert shop.mailed(booking_id) == [("staff_dispute_opened_mail", "fraudulent")] * 2


def test_a_dispute_that_is_won_needs_nobody(shop: Shop) -> None:
    booking_id = shop.paid()
    shop.say(replace(shop.dispute(booking_id, is_closed=True), status="won"))
    assert shop.mailed(booking_id) == []


def test_a_dispute_of_a_booking_paid_without_a_checkout_is_kept(shop: Shop) -> None:
    booking_id = shop.ops.check_out(shop.departure)["id"]
    shop.ops.pay(booking_id, f"pi_{booking_id}")
    shop.say(shop.dispute(booking_id))
    assert (shop.row(booking_id)["status"], shop.row(booking_id)["dispute_status"]) == ("succeeded", "needs_response")


# Look-ups at Stripe ----------------------------------------------------------------------------------------------


def test_the_first_check_is_shortly_before_the_end() -> None:
    assert rules.first_check(0, 30 * MINUTE) == 29 * MINUTE
    assert rules.first_check(MINUTE, 2 * MINUTE) == MINUTE + MINUTE // 2
    assert rules.first_check(5, 3) == 5


def test_a_first_check_without_a_result_is_repeated_after_45_seconds(shop: Shop) -> None:
    booking_id, world = shop.checkout(), shop.world
    at = world.clock.at = shop.row(booking_id)["check_at"]
    claim = lambda tx, actor: checkouts.claim(tx, world.installation, world.org, [booking_id])  # noqa: E731
    assert [check.booking_id for check in shop.ops.act(claim).results] == [booking_id]
    assert shop.row(booking_id)["check_at"] == at + 45 * SECOND


def test_checks_that_fail_are_made_less_and_less_often() -> None:
    waits = [rules.lease_until(0, count) for count in range(30)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (45 * SECOND, 6 * HOUR)
