"""Staff settles a refund by hand, has it sent once more, or records one, and never while a worker is sending it."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.databases import due
from support.serving.threads import together
from support.world.money import LEASE_S, TOTAL, Till
from support.world.world import DAY, HOUR, NOON

from booking_core import bookings, payments
from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.errors import BookingError, Conflict, Malformed, NotFound
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.payments import MoneyState, Refund, RefundFilter, RefundOutcome, rules

UNKNOWN = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"


@dataclass
class Staff:
    """Verbs of staff on the refunds of a till."""

    till: Till

    def act(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self.till.world.database.write(lambda tx: verb(tx, self.till.actor, *arguments, **options))

    def refund_id(self, booking_id: str) -> str:
        return str(self.till.refund(booking_id)["id"])

    def settle(self, booking_id: str, note: str = "Cash", amount_minor: int | None = None) -> Refund:
        return self.act(bookings.settle_refund, self.refund_id(booking_id), note=note, amount_minor=amount_minor)

    def reopen(self, booking_id: str) -> Refund:
        return self.act(payments.reopen_refund, self.refund_id(booking_id))

    def refer(self) -> None:
        """Hand due refunds to staff, since there is no gateway."""
        assert due.refer_refunds(self.till.world)

    def reason(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> str:
        with pytest.raises(BookingError) as refused:
            verb(*arguments, **options)
        return str(refused.value.details[0].reason)

    def outcome(self, booking_id: str) -> payments.MoneyOutcome:
        return self.till.world.database.read(lambda tx: payments.outcome_of(tx, self.till.world.org, booking_id))


@pytest.fixture
def staff(till: Till) -> Staff:
    return Staff(till)


def without_booking(till: Till) -> list[Any]:
    """Return the doctor's findings about money: these bookings have no events."""
    about = ("refund", "payment", "gave back", "recorded")
    return [finding for finding in till.world.examine() if any(word in finding.invariant for word in about)]


# Settled by hand -------------------------------------------------------------------------------------------------


def test_a_refund_settled_by_hand_is_settled_everywhere_at_once_and_once(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    staff.refer()
    till.world.clock.advance(HOUR)
    outcome = staff.settle(booking_id, note="  Bank transfer of 23 November  ")
    at = NOON + HOUR
    row = till.refund(booking_id)
    assert (row["status"], row["settled_minor"], row["settled_at"], row["updated_at"]) == ("settled", TOTAL, at, at)
    assert (row["settled_note"], row["next_attempt_at"]) == ("Bank transfer of 23 November", None)
    assert outcome.state.for_staff() == "890.00 NOK was returned by hand."
    payment = till.payment(booking_id)
    assert (payment["status"], payment["refunded_minor"], payment["updated_at"]) == ("refunded", TOTAL, at)
    booking = till.world.row(tables.bookings, booking_id)
    assert (booking["payment_status"], booking["updated_at"]) == ("refunded", at)
    assert staff.reason(staff.settle, booking_id) == "refund_settled"
    noted = {"amount_minor": TOTAL, "currency": "NOK", "by_hand": True, "note": "Bank transfer of 23 November"}
    noted |= {"total_refunded_minor": TOTAL}
    assert [entry for entry in till.timeline() if entry[0] == "refund_settled"] == [("refund_settled", noted)]
    assert without_booking(till) == []


@pytest.mark.parametrize(
    ("amount", "status", "sentence"),
    [
        (50_000, "partially_refunded", "500.00 NOK (due: 890.00 NOK) was returned by hand."),
        (0, "paid", "The refund of 890.00 NOK was closed by hand, and nothing was returned."),
    ],
)
def test_another_amount_may_have_been_returned(
    till: Till, staff: Staff, amount: int, status: str, sentence: str
) -> None:
    booking_id = till.with_refund()
    staff.refer()
    staff.settle(booking_id, amount_minor=amount)
    assert (till.payment(booking_id)["status"], till.payment(booking_id)["refunded_minor"]) == (status, amount)
    assert till.world.row(tables.bookings, booking_id)["payment_status"] == status
    assert till.refund(booking_id)["amount_minor"] == TOTAL
    assert staff.outcome(booking_id).sentence == sentence
    assert without_booking(till) == []


def test_staff_may_return_more_than_owed_up_to_the_payment(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    till.world.change(tables.refunds, staff.refund_id(booking_id), amount_minor=1_000)
    till.world.change(tables.payments, till.payment(booking_id)["id"], refunded_minor=500)
    staff.refer()
    assert staff.reason(staff.settle, booking_id, amount_minor=TOTAL - 499) == "more_than_paid"
    assert staff.reason(staff.settle, booking_id, amount_minor=-1) == "out_of_range"
    staff.settle(booking_id, amount_minor=TOTAL - 500)
    assert till.payment(booking_id)["status"] == "refunded"


@pytest.mark.parametrize("note", ["", "  ", "x" * 501, "a\x00b"])
def test_a_settlement_needs_a_valid_note(till: Till, staff: Staff, note: str) -> None:
    booking_id = till.with_refund()
    staff.refer()
    with pytest.raises(Malformed, match="note"):
        staff.settle(booking_id, note=note)
    assert till.refund(booking_id)["status"] == "needs_review"


@pytest.mark.parametrize("outcome", [RefundOutcome.REFUSED, RefundOutcome.UNCLEAR])
def test_what_the_gateway_refused_or_left_open_is_settled_too(till: Till, staff: Staff, outcome: RefundOutcome) -> None:
    booking_id = till.with_refund()
    till.answer(till.one(), outcome)
    staff.settle(booking_id)
    assert till.payment(booking_id)["status"] == "refunded"


def test_what_no_worker_has_taken_up_yet_is_settled_and_never_sent(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    staff.settle(booking_id)
    till.world.clock.advance(DAY)
    assert till.claim() == []


def test_a_refund_in_progress_is_neither_reopened_nor_settled(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    assert staff.reason(staff.reopen, booking_id) == "refund_under_way"
    claimed = till.one()
    for verb in (staff.settle, staff.reopen):
        assert staff.reason(verb, booking_id) == "refund_under_way"
    till.world.clock.advance(LEASE_S * SECOND)  # its worker may be dead, and the gateway may have made it
    assert staff.reason(staff.settle, booking_id) == "refund_under_way"
    till.world.clock.at -= LEASE_S * SECOND
    till.answer(claimed, RefundOutcome.REFUNDED)
    for verb in (staff.settle, staff.reopen):
        assert staff.reason(verb, booking_id) == "refund_settled"
    assert till.payment(booking_id)["refunded_minor"] == TOTAL


def test_a_late_answer_changes_nothing_that_staff_settled(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    late = till.one()
    till.world.clock.advance(LEASE_S * SECOND)
    staff.refer()
    staff.settle(booking_id, amount_minor=1_000)
    assert till.answer(late, RefundOutcome.REFUNDED) == 0
    assert till.payment(booking_id)["refunded_minor"] == 1_000


def test_staff_and_a_worker_that_meet_never_both_act(till: Till, staff: Staff) -> None:
    """Either staff settles a refund, and it is never sent; or the worker sends it, and staff cannot settle it."""
    booking_ids = [till.with_refund(100) for _ in range(20)]

    def claim_all() -> list[str]:
        return [refund.booking_id for claimed in iter(lambda: till.claim(limit=3), []) for refund in claimed]

    def settle_all() -> list[str]:
        settled = []
        for booking_id in reversed(booking_ids):
            with contextlib.suppress(Conflict):  # the worker has it
                settled.append(staff.settle(booking_id).booking_id)
        return settled

    claimed, settled = together(claim_all, settle_all)
    assert sorted(claimed + settled) == sorted(booking_ids)


@pytest.mark.usefixtures("postgresql_only")
def test_staff_waits_for_a_worker_that_has_just_taken_a_refund(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    refused: list[str] = []
    with till.world.database.writing() as tx:
        claim = lambda tx, owner, ids: payments.claim(tx, owner, ids, lease_s=LEASE_S)  # noqa: E731
        assert due.process(tx, till.world.org, payments.DUE, claim).results
        tx.flush()
        thread = threading.Thread(target=lambda: refused.append(staff.reason(staff.settle, booking_id)))
        thread.start()
    thread.join()
    assert refused == ["refund_under_way"]


# Sent once more --------------------------------------------------------------------------------------------------


def test_a_reopened_refund_gets_a_new_key_and_is_looked_up_first(till: Till, staff: Staff) -> None:
    """The gateway keeps the refusal for the old key, and answers it again."""
    booking_id = till.with_refund()
    first = till.one()
    till.answer(first, RefundOutcome.REFUSED, reason="charge_disputed", provider_refund_id="re_given_up")
    refund = staff.reopen(booking_id)
    assert (refund.status, refund.last_error, refund.reopened_count) == ("requested", None, 1)
    assert till.timeline()[-1][0] == "refund_reopened"
    again = till.one()
    assert (again.idempotency_key, again.look_first) == (f"{first.idempotency_key}-1", True)
    assert (again.provider_refund_id, again.attempt_count) == (None, 1)
    assert again.first_sent_at == first.first_sent_at
    till.answer(again, RefundOutcome.REFUSED, reason="charge_disputed")
    staff.reopen(booking_id)
    assert till.one().idempotency_key == f"{first.idempotency_key}-2"


def test_a_refund_that_the_gateway_accepted_is_read_and_not_repeated(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    till.answer(till.one(), RefundOutcome.UNCLEAR, provider_refund_id="re_1")
    staff.reopen(booking_id)
    assert till.one().provider_refund_id == "re_1"


def test_staff_is_mailed_again_when_the_gateway_refuses_again(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    for _ in range(2):
        till.answer(till.one(), RefundOutcome.REFUSED)
        staff.reopen(booking_id)
    assert till.staff_mail_kinds(booking_id) == ["staff_refund_refused_mail"] * 2


def test_a_refund_without_an_intent_waits_for_staff(till: Till, staff: Staff) -> None:
    booking_id, beside = till.with_refund(intent=None), till.with_refund()
    assert till.one().booking_id == beside
    row = till.refund(booking_id)
    assert (row["status"], row["last_error"]) == ("needs_review", "no_payment_intent")
    assert list(till.staff_mails()) == [booking_id]
    assert staff.reason(staff.reopen, booking_id) == "no_payment_intent"
    till.receive(booking_id, "pi_named_later")
    staff.reopen(booking_id)
    assert till.one().payment_intent == "pi_named_later"


def test_a_reopened_unsettled_refund_restarts_at_its_first_attempt(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    till.world.change(tables.refunds, staff.refund_id(booking_id), attempt_count=rules.ATTEMPTS_MAX, first_sent_at=NOON)
    assert till.claim() == []
    assert till.refund(booking_id)["last_error"] == "never_settled"
    assert list(till.staff_mails()) == [booking_id]
    staff.reopen(booking_id)
    assert till.one().attempt_count == 1


def test_a_reopened_refund_is_rounded_to_the_unit_of_the_gateway(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund(12_345)
    till.world.change(tables.refunds, staff.refund_id(booking_id), currency="KWD")
    till.world.change(tables.payments, till.payment(booking_id)["id"], currency="KWD")
    till.answer(till.one(), RefundOutcome.REFUSED, reason="amount_invalid")
    assert staff.reopen(booking_id).amount_minor == 12_340


# Recorded without a refund due -----------------------------------------------------------------------------------


def record(staff: Staff, booking_id: str, amount_minor: int = 1_000) -> Refund:
    return staff.act(bookings.record_refund, booking_id, amount_minor=amount_minor, note="Goodwill")


def test_money_that_was_returned_without_being_owed_is_recorded_once(till: Till, staff: Staff) -> None:
    booking_id = till.paid()
    result, sentence = staff.outcome(booking_id), "Nothing is returned of the 890.00 NOK that was paid by card."
    assert (result.amount_minor, result.sentence) == (0, sentence)
    refund = record(staff, booking_id)
    assert (refund.status, refund.amount_minor, refund.settled_minor) == ("settled", 1_000, 1_000)
    payment = till.payment(booking_id)
    assert (payment["status"], payment["refunded_minor"]) == ("partially_refunded", 1_000)
    assert staff.reason(record, staff, booking_id) == "refund_exists"
    assert till.timeline()[-1][0] == "refund_settled"
    assert without_booking(till) == []


def test_a_refund_is_recorded_only_of_money_that_was_received_here(till: Till, staff: Staff) -> None:
    waiting, confirmed, bare = till.booking(), till.paid(status="confirmed", cancelled_at=None), till.booking()
    till.expect(waiting)
    assert staff.reason(record, staff, waiting) == "nothing_received"
    assert staff.reason(record, staff, bare) == "nothing_received"
    assert staff.reason(record, staff, confirmed) == "booking_not_cancelled"
    paid = till.paid()
    assert staff.reason(record, staff, paid, TOTAL + 1) == "more_than_paid"
    assert staff.reason(record, staff, paid, 0) == "out_of_range"
    with pytest.raises(NotFound):
        record(staff, UNKNOWN)


# Listed ----------------------------------------------------------------------------------------------------------


def test_refunds_are_listed_by_what_they_wait_for(till: Till, staff: Staff) -> None:
    refused, unsent, queued = till.with_refund(100), till.with_refund(200), till.with_refund(300)
    claimed = {refund.booking_id: refund for refund in till.claim()}
    till.answer(claimed[refused], RefundOutcome.REFUSED)
    till.world.change(tables.refunds, staff.refund_id(unsent), status="needs_review")
    till.world.change(tables.refunds, staff.refund_id(queued), status="requested")

    def listed(status: RefundFilter | None, limit: int = 10) -> set[str]:
        def read(tx: Tx) -> list[payments.OwnedRefund]:
            return payments.find_refunds(tx, till.world.organization, status=status, limit=limit)

        return {refund.booking_id for refund, _ in till.world.database.read(read)}

    assert listed(None) == {refused, unsent, queued}
    assert listed(RefundFilter.WAITING) == {refused, unsent}
    assert listed(RefundFilter.FAILED) == {refused}
    assert listed(RefundFilter.REQUESTED) == {queued}
    assert listed(RefundFilter.SETTLED) == set()
    assert len(listed(None, limit=2)) == 2


def test_a_refund_is_found_by_its_id_and_by_its_bookings(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    for name in (booking_id, staff.refund_id(booking_id).upper()):
        refund, organization = till.world.database.read(lambda tx, name=name: payments.find_refund(tx, name))
        assert (refund.booking_id, organization.id) == (booking_id, till.world.org)
    for name in (UNKNOWN, "no-id"):
        with pytest.raises(NotFound, match="There is no refund"):
            till.world.database.read(lambda tx, name=name: payments.find_refund(tx, name))


def test_a_booking_identifies_its_waiting_refund_before_a_newer_settled_refund(till: Till, staff: Staff) -> None:
    booking_id = till.with_refund()
    till.answer(till.one(), RefundOutcome.REFUNDED)
    (settled,) = till.world.rows(tables.refunds)
    older = {str(name): value for name, value in settled.items() if name != "organization_id"}
    older |= {"id": tokens.new_id(), "number": 1, "created_at": settled["created_at"] - 1}
    waiting = till.world.insert(tables.refunds, **older | {"status": "failed", "provider_refund_id": None})
    refund, _ = till.world.database.read(lambda tx: payments.find_refund(tx, booking_id))
    assert (refund.id, refund.status) == (waiting, "failed")


# The money of a cancellation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "state", "amount"),
    [
        ({}, MoneyState.QUEUED, TOTAL),
        ({"status": "sending", "first_sent_at": 1}, MoneyState.QUEUED, TOTAL),
        ({"status": "succeeded"}, MoneyState.RETURNED, TOTAL),
        ({"status": "settled", "settled_minor": 500}, MoneyState.RETURNED, 500),
        ({"status": "failed", "first_sent_at": 1}, MoneyState.BY_HAND, TOTAL),
        ({"status": "needs_review"}, MoneyState.BY_HAND, TOTAL),
    ],
)
def test_an_outcome_names_state_and_amount(
    till: Till, staff: Staff, columns: dict[str, Any], state: MoneyState, amount: int
) -> None:
    booking_id = till.with_refund()
    if columns:
        till.world.change(tables.refunds, staff.refund_id(booking_id), **columns)
    outcome = staff.outcome(booking_id)
    assert (outcome.state, outcome.amount_minor, outcome.refund_id) == (state, amount, staff.refund_id(booking_id))
    assert outcome.to_json()["amount"] == {"amount_minor": amount, "currency": "NOK"}
    assert outcome.sentence.endswith(".")


def test_the_outcome_of_what_was_never_paid_or_not_cancelled_says_so(till: Till, staff: Staff) -> None:
    unpaid, confirmed = till.booking(payment_status="failed"), till.booking(status="confirmed", cancelled_at=None)
    assert staff.outcome(unpaid).state is MoneyState.NOTHING_PAID
    assert staff.outcome(confirmed).state is MoneyState.NOT_CANCELLED
    with pytest.raises(NotFound):
        staff.outcome(UNKNOWN)
