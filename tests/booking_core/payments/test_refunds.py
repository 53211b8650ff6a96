"""A refund is leased, sent, and settled by the gateway's answer; without an answer it is sent again."""

from collections.abc import Callable

import pytest
from support.databases import due
from support.serving.threads import together
from support.world.money import LEASE_S, TOTAL, Till
from support.world.world import DAY, HOUR, NOON, World

from booking_core import payments
from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.db import tables
from booking_core.models.sandbox import SandboxCard
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult, rules

# Claiming --------------------------------------------------------------------------------------------------------


def test_a_claimed_refund_is_sending_under_a_lease(till: Till) -> None:
    booking_id = till.with_refund()
    till.world.clock.advance(SECOND)
    claimed = till.one()
    row = till.refund(booking_id)
    assert claimed.idempotency_key == f"refund-{row['id']}"
    assert (claimed.payment_intent, claimed.amount_minor, claimed.currency) == (f"pi_{booking_id}", TOTAL, "NOK")
    assert (row["status"], row["attempt_count"], row["first_sent_at"]) == ("sending", 1, NOON + SECOND)
    assert row["lease_token"] == claimed.lease_token
    assert row["lease_until"] == row["next_attempt_at"] == NOON + SECOND + LEASE_S * SECOND


def test_a_leased_refund_is_nobody_elses_until_its_lease_has_passed(till: Till) -> None:
    booking_id = till.with_refund()
    first = till.one()
    assert till.claim() == []
    till.world.clock.advance(LEASE_S * SECOND - 1)
    assert till.claim() == []
    till.world.clock.advance(1)
    second = till.one()
    assert (second.id, second.attempt_count, second.first_sent_at) == (first.id, 2, first.first_sent_at)
    assert second.idempotency_key == first.idempotency_key
    assert second.lease_token != first.lease_token
    assert till.refund(booking_id)["attempt_count"] == 2


def test_the_longest_due_comes_first_and_no_more_than_asked_for(till: Till) -> None:
    booking_ids = []
    for _ in range(3):
        booking_ids.append(till.with_refund())
        till.world.clock.advance(SECOND)
    assert [refund.booking_id for refund in till.claim(limit=2)] == booking_ids[:2]
    assert [refund.booking_id for refund in till.claim(limit=2)] == booking_ids[2:]


def test_two_workers_share_what_is_due(till: Till) -> None:
    booking_ids = [till.with_refund() for _ in range(40)]

    def work() -> list[str]:
        return [refund.booking_id for claimed in iter(lambda: till.claim(limit=3), []) for refund in claimed]

    one, other = together(work, work)
    assert sorted(one + other) == sorted(booking_ids)


@pytest.mark.usefixtures("postgresql_only")
def test_what_another_worker_is_about_to_lease_is_passed_over(till: Till) -> None:
    till.with_refund()
    till.world.clock.advance(SECOND)
    second = till.with_refund()
    with till.world.database.writing() as tx:
        claim = lambda tx, owner, ids: payments.claim(tx, owner, ids, lease_s=LEASE_S)  # noqa: E731
        assert len(due.process(tx, till.world.org, payments.DUE, claim, 1).results) == 1
        assert [refund.booking_id for refund in till.claim()] == [second]


def test_a_claim_names_the_sum_that_was_returned_elsewhere(till: Till) -> None:
    """Of the payment itself, of refunds that staff settled, and of refunds from the gateway's dashboard."""
    booking_id = till.with_refund()
    row = {str(name): value for name, value in till.refund(booking_id).items() if name != "organization_id"}
    row |= {"amount_minor": 100, "status": "succeeded", "next_attempt_at": None}
    others = (
        {"status": "settled", "settled_minor": 7},
        {"last_error": "refunded_elsewhere"},
        {},
        {"status": "settled", "settled_minor": 2_000, "booking_id": till.paid()},
    )
    for number, other in enumerate(others, 1):
        till.world.insert(tables.refunds, **row | {"id": tokens.new_id(), "number": number} | other)
    assert till.one().elsewhere_minor == 7 + 100
    intent = {"booking_id": booking_id, "status": "succeeded", "amount_minor": TOTAL, "currency": "NOK"}
    dates = {"created_at": NOON, "updated_at": NOON}
    till.world.insert(tables.payment_intents, **intent, **dates, returned_minor=3)
    till.world.clock.advance(LEASE_S * SECOND)
    assert till.one().elsewhere_minor == 3 + 7 + 100


# Settling --------------------------------------------------------------------------------------------------------


def test_a_refund_of_all_is_settled_everywhere_at_once(till: Till) -> None:
    booking_id = till.with_refund()
    claimed = till.one()
    till.world.clock.advance(HOUR)
    assert till.answer(claimed, RefundOutcome.REFUNDED) == 1
    at = NOON + HOUR
    row = till.refund(booking_id)
    assert (row["status"], row["provider_refund_id"], row["updated_at"]) == ("succeeded", f"re_{claimed.id}", at)
    assert (row["next_attempt_at"], row["lease_token"], row["lease_until"], row["last_error"]) == (None,) * 4
    payment = till.payment(booking_id)
    assert (payment["status"], payment["refunded_minor"], payment["updated_at"]) == ("refunded", TOTAL, at)
    booking = till.world.row(tables.bookings, booking_id)
    assert (booking["payment_status"], booking["updated_at"]) == ("refunded", at)
    noted = {"amount_minor": TOTAL, "currency": "NOK", "total_refunded_minor": TOTAL}
    assert till.timeline()[-1] == ("refund_settled", noted)
    assert till.staff_mails() == {}
    assert [event["type"] for event in till.events()] == ["booking.refunded"]


def test_a_refund_of_a_sandbox_is_settled_by_its_clock(new_world: Callable[..., World]) -> None:
    till = Till(new_world(clock_offset=HOUR))
    booking_id = till.with_refund()
    till.answer(till.one(), RefundOutcome.REFUNDED)
    assert till.refund(booking_id)["updated_at"] == NOON + HOUR


FOR_STAFF = {
    RefundOutcome.REFUSED: ("failed", "refund_refused", "staff_refund_refused_mail"),
    RefundOutcome.UNCLEAR: ("needs_review", "refund_needs_review", "staff_refund_review_mail"),
}
"""The status, the entry of the timeline and the mail of each outcome that staff has to look at."""


@pytest.mark.parametrize(
    ("outcome", "reason", "sentence", "logged"),
    [
        (RefundOutcome.REFUSED, "charge_disputed", "charge_disputed", "the gateway refused"),
        (RefundOutcome.REFUSED, None, "refused", "the gateway refused the refund (refused)"),
        (RefundOutcome.UNCLEAR, "requires_action", "requires_action", "is unclear"),
        (RefundOutcome.UNCLEAR, None, "unclear", "It may have been made"),
    ],
)
def test_staff_is_told_of_a_refund_that_was_refused_or_is_unclear(
    till: Till, outcome: RefundOutcome, reason: str | None, sentence: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, noted, mail = FOR_STAFF[outcome]
    booking_id = till.with_refund()
    till.world.clock.advance(SECOND)
    till.answer(till.one(), outcome, reason=reason)
    row = till.refund(booking_id)
    assert (row["status"], row["last_error"], row["next_attempt_at"]) == (status, sentence, None)
    payload = {"amount_minor": TOTAL, "currency": "NOK", "reason": sentence}
    assert till.staff_mails() == {booking_id: payload}
    assert till.staff_mail_kinds(booking_id) == [mail]
    assert till.timeline()[-1] == (noted, payload | {"was_sent": True})
    # The organization may have no address: then the log is all that says so.
    assert f"refund {row['id']} of booking {booking_id} waits for a person ({sentence})" in caplog.text
    assert logged in caplog.text
    assert (till.payment(booking_id)["status"], till.payment(booking_id)["refunded_minor"]) == ("paid", 0)
    assert till.world.row(tables.bookings, booking_id)["payment_status"] == "paid"
    till.world.clock.advance(DAY)
    assert till.claim() == []


def test_staff_has_a_mail_for_each_refused_refund_of_a_booking(till: Till) -> None:
    booking_id = till.with_refund()
    row = {str(name): value for name, value in till.refund(booking_id).items() if name != "organization_id"}
    for number in (1, 2):
        till.world.insert(tables.refunds, **row | {"id": tokens.new_id(), "number": number})
    for claimed in till.claim():
        till.answer(claimed, RefundOutcome.REFUSED)
    assert till.staff_mail_kinds(booking_id) == ["staff_refund_refused_mail"] * 3


def test_what_is_unknown_is_asked_again_later_and_later(till: Till) -> None:
    booking_id = till.with_refund()
    waits = []
    for _ in range(12):
        claimed = till.one()
        till.answer(claimed, RefundOutcome.UNKNOWN, reason="no_answer")
        row = till.refund(booking_id)
        assert (row["status"], row["last_error"], row["lease_token"]) == ("sending", "no_answer", None)
        waits.append((row["next_attempt_at"] - till.world.clock()) // SECOND)
        till.world.clock.at = row["next_attempt_at"] - 1
        assert till.claim() == []
        till.world.clock.advance(1)
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    till.answer(till.one(), RefundOutcome.REFUNDED)
    assert till.refund(booking_id)["attempt_count"] == 13
    assert till.refund(booking_id)["first_sent_at"] == NOON


def test_what_failed_together_does_not_come_back_together() -> None:
    assert rules.retry_delay_s(1, 0.0) == 2
    assert rules.retry_delay_s(1, 1.0) == 2.5
    assert rules.retry_delay_s(500, 1.0) == 375


def test_an_accepted_refund_is_looked_at_again_by_its_id(till: Till) -> None:
    booking_id = till.with_refund()
    till.answer(till.one(), RefundOutcome.ACCEPTED, reason="pending")
    assert till.refund(booking_id)["status"] == "sending"
    accepted, _ = till.world.database.read(lambda tx: payments.find_refund(tx, booking_id))
    assert accepted.state.for_staff().startswith("The gateway has accepted the refund of ")
    till.world.clock.advance(600 * SECOND)
    claimed = till.one()
    assert claimed.provider_refund_id == f"re_{claimed.id}"
    till.answer(claimed, RefundOutcome.REFUNDED)
    assert till.payment(booking_id)["status"] == "refunded"


def test_an_answer_that_comes_after_its_lease_was_lost_changes_nothing(till: Till) -> None:
    booking_id = till.with_refund()
    late = till.one()
    till.world.clock.advance(LEASE_S * SECOND)
    claimed = till.one()
    assert till.answer(late, RefundOutcome.REFUSED) == 0
    assert till.refund(booking_id)["status"] == "sending"
    assert till.answer(claimed, RefundOutcome.REFUNDED) == 1
    assert till.answer(claimed, RefundOutcome.REFUNDED) == 0
    assert till.payment(booking_id)["refunded_minor"] == TOTAL
    assert till.staff_mails() == {}


def test_answers_of_every_kind_are_settled_together(till: Till, statements: list[str]) -> None:
    booking_ids = [till.with_refund(amount) for amount in (100, 200, 300, 400, 500)]
    claimed = {refund.booking_id: refund for refund in till.claim()}
    answers = [
        RefundResult(claimed[booking_id], outcome, "re_1", "said")
        for booking_id, outcome in zip(booking_ids, RefundOutcome, strict=True)
    ]
    statements.clear()
    assert till.settle(*answers) == 5
    # Locked; settled, the organization and the booking of the event, the counters, written.
    assert len(statements) == 6 or till.world.database.is_sqlite
    statuses = [till.refund(booking_id)["status"] for booking_id in booking_ids]
    by_outcome = dict(zip(RefundOutcome, statuses, strict=True))
    assert by_outcome == {
        RefundOutcome.REFUNDED: "succeeded",
        RefundOutcome.ACCEPTED: "sending",
        RefundOutcome.REFUSED: "failed",
        RefundOutcome.UNKNOWN: "sending",
        RefundOutcome.UNCLEAR: "needs_review",
    }
    assert sorted(till.staff_mails()) == sorted([booking_ids[2], booking_ids[4]])
    (event,) = till.events()
    assert (event["type"], event["data"]["object"]["id"]) == ("booking.refunded", booking_ids[0])


def test_settling_nothing_is_nothing(till: Till) -> None:
    assert till.settle() == 0


# Work for staff --------------------------------------------------------------------------------------------------


def test_without_a_gateway_what_is_owed_is_left_to_staff(till: Till) -> None:
    booking_ids = [till.with_refund() for _ in range(3)]
    refer = lambda: due.refer_refunds(till.world, limit=2)  # noqa: E731
    assert [refer(), refer(), refer()] == [2, 1, 0]
    for booking_id in booking_ids:
        row = till.refund(booking_id)
        assert (row["status"], row["last_error"], row["first_sent_at"]) == ("needs_review", "no_gateway", None)
        assert till.staff_mail_kinds(booking_id) == ["staff_refund_review_mail"]
    payload = {"amount_minor": TOTAL, "currency": "NOK", "reason": "no_gateway"}
    assert till.staff_mails() == dict.fromkeys(booking_ids, payload)
    noted = {kind: data["was_sent"] for kind, data in till.timeline() if "was_sent" in data}
    assert noted == {"refund_needs_review": False}


def test_a_legacy_booking_without_a_customer_is_refunded_too(till: Till) -> None:
    booking_id = till.with_refund(customer_id=None)
    till.answer(till.one(), RefundOutcome.REFUNDED)
    assert till.payment(booking_id)["status"] == "refunded"


# Look first ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "attempts", "looks"),
    [(0, 1, False), (23 * HOUR, 1, False), (23 * HOUR + 1, 1, True), (0, 5, False), (0, 6, True), (-1, 1, True)],
)
def test_what_the_key_may_not_tell_of_is_looked_for_first(age: int, attempts: int, looks: bool) -> None:
    claimed = ClaimedRefund("", "", "", "", 1, "NOK", None, attempts, NOON, NOON + age, "")
    assert claimed.look_first is looks


# Test cards of sandboxes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "is_sandbox", "card"),
    [
        ("pi_test_refundFail_0190f3c2", True, SandboxCard.REFUND_FAIL),
        ("pi_test_0190f3c2", True, None),
        ("pi_3MtwBwLkdIwHu7ix28a3tqPa", False, None),
    ],
)
def test_an_intent_of_a_sandbox_names_its_test_card(intent: str, is_sandbox: bool, card: SandboxCard | None) -> None:
    assert (payments.is_sandbox_intent(intent), payments.sandbox_card_of(intent)) == (is_sandbox, card)


def test_no_intent_is_none_of_a_sandbox() -> None:
    assert payments.is_sandbox_intent(None) is False
