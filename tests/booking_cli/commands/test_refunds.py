"""`booking refunds` and `booking payments`: money that staff takes and returns by hand, at a shell."""

from pathlib import Path

import pytest
from support.databases import due
from support.serving.commands import Booking, Environment, Result
from support.world.kayaks import ORG, nok
from support.world.operations import Operations

from booking_cli.client import api_bookings
from booking_core.models.bookings import PaymentMode, RefundMode
from booking_core.payments import stripe_accounts

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def staff(stored_on_both: Booking, environment: Environment, tmp_path: Path) -> Booking:
    """Return a function that runs `booking` with JSON output."""
    environment("BOOKING_MAIL_DIR", str(tmp_path / "mails"))  # or the doctor tells that mails cannot leave
    return lambda *argv: stored_on_both(*argv, "-o", "json")


def waiting(ops: Operations, departure: str, intent: str | None = "pi_1") -> str:
    """Return the id of a cancelled booking whose refund waits for the staff, since there is no gateway."""
    booking_id = ops.pay(ops.check_out(departure)["id"], intent)["id"]
    ops.cancel(booking_id)
    assert due.refer_refunds(ops.world) == 1
    return booking_id


# Refunds ---------------------------------------------------------------------------------------------------------


def test_a_refund_that_waits_is_listed_shown_and_settled(staff: Booking, ops: Operations, departure: str) -> None:
    booking_id = waiting(ops, departure)
    listed = staff("refunds", "list", *ORG, "--status", "waiting").json
    (refund,) = listed["data"]
    assert (refund["booking_id"], refund["status"], refund["reason"]) == (booking_id, "needs_review", "no_gateway")
    assert (refund["amount"], refund["paid"], refund["settled_amount"]) == (nok(89000), nok(89000), None)
    assert refund["summary"] == (
        "890.00 NOK has to be returned by hand: no payment gateway is configured (BOOKING_STRIPE_API_KEY), so nothing"
        " was sent."
    )
    number = (str(refund["booking_number"]), *ORG)
    for name in ((refund["id"],), (booking_id,), number):
        assert staff("refunds", "show", *name).json == refund
    assert staff("refunds", "show", number[0]).error["hint"] == "pass --org, or the booking's id"
    settled = staff("refunds", "settle", refund["id"], "--note", "Bank transfer")
    assert (settled.code, settled.json["status"], settled.json["note"]) == (0, "settled", "Bank transfer")
    assert settled.json["settled_amount"] == nok(89000)
    assert staff("refunds", "list", "--status", "waiting").json["data"] == []
    assert [entry["id"] for entry in staff("refunds", "list", "--status", "settled").json["data"]] == [refund["id"]]
    assert staff("bookings", "reschedule", booking_id, "--departure", departure).code == 7
    assert staff("doctor").json["data"] == []


def test_a_retry_warns_when_no_gateway_is_configured(stored_on_both: Booking, ops: Operations, departure: str) -> None:
    first, second = waiting(ops, departure, "pi_1"), waiting(ops, departure, "pi_2")
    assert "BOOKING_STRIPE_API_KEY is not set here" in stored_on_both("refunds", "retry", first).err
    account = {"api_key": "sk_test_of_ours", "webhook_secret": "whsec_of_an_endpoint"}
    ops.act(lambda tx, actor: stripe_accounts.configure(tx, actor, **account, publishable_key=None))
    again = stored_on_both("refunds", "retry", str(ops.booking(second)["booking_number"]), *ORG)
    assert (again.code, "BOOKING_STRIPE_API_KEY" in again.err) == (0, False)


def test_what_can_be_done_next_is_said(stored_on_both: Booking, ops: Operations, departure: str) -> None:
    notes = stored_on_both("refunds", "show", waiting(ops, departure)).err
    assert ("booking refunds settle" in notes, "booking refunds retry" in notes) == (True, True)
    notes = stored_on_both("refunds", "show", waiting(ops, departure, None)).err
    assert "booking refunds retry" not in notes


@pytest.mark.parametrize(
    "argv",
    [
        ("refunds", "settle", UNKNOWN),
        ("refunds", "list", "--status", "lost"),
        ("refunds", "record", UNKNOWN, "--amount", "5,00", "--note", "x"),
        ("payments", "record", UNKNOWN, "--amount", "-5"),
        ("payments", "due"),
    ],
    ids=" ".join,
)
def test_what_is_written_wrong_is_a_usage_error(booking: Booking, argv: tuple[str, ...]) -> None:
    assert booking(*argv, "-o", "json").error["exit_code"] == 2


# Payments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [PaymentMode.PAY_ON_SITE, PaymentMode.INVOICE])
def test_a_booking_is_paid_in_parts_and_no_longer_due(
    staff: Booking, stored_on_both: Booking, ops: Operations, departure: str, mode: PaymentMode
) -> None:
    booking_id = ops.book(departure, payment=mode)["id"]
    (due,) = staff("payments", "due", *ORG).json["data"]
    assert (due["id"], due["left"], due["paid"], due["is_overdue"]) == (booking_id, nok(89000), nok(0), False)
    assert staff("payments", "due", *ORG, "--overdue").json["data"] == []
    partly = stored_on_both("payments", "record", booking_id, "--amount", "400.00", "--method", "cash")
    assert (partly.code, partly.err.splitlines()[-1]) == (0, "recorded 400.00 NOK; 490.00 NOK left")
    (due,) = staff("payments", "due", *ORG, "--method", str(mode)).json["data"]
    assert (due["left"], due["paid"]) == (nok(49000), nok(40000))
    over = staff("payments", "record", booking_id, "--amount", "500.00")
    assert (over.code, over.error["details"][0]["reason"]) == (8, "overpaid")
    assert "490.00 NOK left to pay" in over.error["message"]
    paid = staff("payments", "record", booking_id, "--amount", "49000", "--at", "2026-11-20T09:00:00").json
    assert (paid["id"], paid["payment"]["status"]) == (booking_id, "paid")
    assert staff("payments", "due", *ORG).json["data"] == []
    first, second = staff("payments", "list", booking_id).json["data"]
    assert (first["amount"], first["method"], first["voided_at"]) == (nok(40000), "cash", None)
    assert second["received_at"] == "2026-11-20T09:00:00+01:00"
    assert staff("payments", "void", second["id"], "--note", "Bounced").json["payment"]["status"] == "unpaid"
    assert staff("doctor").json["data"] == []


def test_what_was_recorded_and_what_is_left_are_written_in_every_mode(
    stored_on_both: Booking, ops: Operations, departure: str
) -> None:
    def record(*argv: str) -> Result:
        booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
        return stored_on_both("payments", "record", booking_id, *argv)

    assert record("--amount", "2.90", "-q").err == "recorded 2.90 NOK; 887.10 NOK left\n"
    assert "recorded\t890.00 NOK\nleft\t0.00 NOK\n" in record("--amount", "890.00").out
    written = record("--amount", "1000", "-o", "json")
    assert (written.json["recorded"], written.json["left"], written.err) == (nok(1000), nok(88000), "")


def test_a_refund_by_hand_reports_what_is_left(stored_on_both: Booking, ops: Operations, departure: str) -> None:
    def last_line(*argv: str) -> str:
        return stored_on_both("refunds", *argv, "--note", "Cash", "-q").err.splitlines()[-1]

    assert last_line("settle", waiting(ops, departure, "pi_1")) == "recorded 890.00 NOK; 0.00 NOK of the refund left"
    part = ("settle", waiting(ops, departure, "pi_2"), "--amount", "500.00")
    assert last_line(*part) == "recorded 500.00 NOK; 390.00 NOK of the refund left"
    paid = ops.pay(ops.check_out(departure)["id"], "pi_3")["id"]
    ops.cancel(paid, refund=RefundMode.NONE)
    recorded = last_line("record", paid, "--amount", "90.00")
    assert recorded == "recorded 90.00 NOK; 800.00 NOK of the payment left"


def test_an_amount_that_is_refused_is_not_asked_about(staff: Booking, ops: Operations, departure: str) -> None:
    booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    assert staff("payments", "record", booking_id, "--amount", "890", "--at", "2999-01-01").error["code"] != (
        "confirmation_required"
    )
    assert staff("payments", "record", booking_id, "--amount", "890", "--yes").json["left"] == nok(88110)


def test_an_amount_of_another_currency_and_an_unreadable_time_are_refused(
    staff: Booking, ops: Operations, departure: str
) -> None:
    booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    for argv, message in (
        (("--amount", "5.00 EUR"), "in NOK"),
        (("--amount", "5.001"), "more precise than NOK"),
        (("--amount", "5", "--at", "yesterday"), "--at"),
    ):
        refused = staff("payments", "record", booking_id, *argv)
        assert (refused.code, message in refused.error["message"]) == (2, True)
    assert staff("payments", "list", booking_id).json["data"] == []


def test_a_booking_is_named_by_its_number_too(staff: Booking, ops: Operations, departure: str) -> None:
    booking_id = ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"]
    paid = staff("payments", "record", "1", *ORG, "--amount", "890.00")
    assert (paid.code, paid.json["id"], paid.json["payment"]["status"]) == (0, booking_id, "paid")
    assert len(staff("payments", "list", "1", *ORG).json["data"]) == 1
    for number in ("2", "x", "9" * 30):
        assert staff("payments", "list", number, *ORG).code == 6
    assert staff("payments", "list", "1").code == 2  # every organization has its own booking 1
    cancelled = ops.pay(ops.check_out(departure)["id"])["id"]
    ops.cancel(cancelled, refund=RefundMode.NONE)
    refund = staff("refunds", "record", "2", *ORG, "--amount", "5.00", "--note", "Goodwill").json
    assert (refund["booking_id"], refund["settled_amount"]) == (cancelled, nok(500))


# The money of a cancelled booking --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paid", "refund", "sentence"),
    [
        ("card stripe paid", "auto", "890.00 NOK was paid by card. The refund by the organization's policy"),
        ("card stripe paid", "none", "with --refund none it is not refunded."),
        ("card stripe failed", "auto", "No card was charged, so there is no refund."),
        ("card stripe refunded", "auto", "The payment was refunded."),
        ("card stripe partially_refunded", "auto", "The payment was partly refunded."),
        ("pay_on_site on_site unpaid", "auto", "payments made by hand are refunded by hand."),
        ("pay_on_site on_site paid", "auto", "Staff was notified to pay the refund by the organization's policy."),
        ("invoice external paid", "none", "with --refund none it is not refunded."),
        ("external_paid external paid", "auto", "and is refunded there."),
        ("gift_card external paid", "auto", "so there is no refund. 500.00 NOK was returned to the gift card."),
        *((f"{method} external paid", "auto", "Nothing else was paid") for method in ("gift_card", "free")),
    ],
)
def test_a_client_is_shown_what_the_answer_holds(paid: str, refund: str, sentence: str) -> None:
    method, source, status = paid.split()
    total = nok(0 if method in ("gift_card", "free") else 89000)
    totals = {"total": total, "gift_card": nok(50000 if method == "gift_card" else 0)}
    booking = {"payment": {"method": method, "source": source, "status": status}, "totals": totals}
    assert sentence in api_bookings.after_cancelling(booking, refund)
