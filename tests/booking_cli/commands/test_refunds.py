"""`booking refunds` and `booking payments`: money that staff takes and returns by hand, at a shell."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import due
from support.commands import Booking, Result
from support.kayaks import DEPARTURE, ORG, import_kayaks, nok
from support.operations import guest

from booking_cli.client import api_bookings
from booking_core import bookings, organizations
from booking_core.base.context import Actor
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.models.bookings import BookingSource, CancelReason, GuestLineInput, PaymentMode, RefundMode
from booking_core.payments import stripe_accounts

UNKNOWN = "00000000-0000-4000-8000-000000000000"


class Office:
    """Staff at a shell, and the events that staff cannot cause there."""

    def __init__(self, booking: Booking) -> None:
        self.database = Database(os.environ["BOOKING_DATABASE_URL"])
        self.plain = booking

    def run(self, *argv: str) -> Result:
        return self.plain(*argv, "-o", "json")

    def act(self, verb: Callable[..., bytes]) -> Any:
        return json.loads(self.database.write(lambda tx: verb(tx, self.actor(tx))))

    @staticmethod
    def actor(tx: Any) -> Actor:
        organization = organizations.get(tx, slug="fjord-tours")
        installation = Settings.from_environment().installation()
        return Actor(installation=installation, organization=organization, at=tx.now())

    def paid(self, *, intent: str | None = "pi_1") -> str:
        """Return the id of a booking that was paid by card."""
        at = (*ORG, "--departure", DEPARTURE, "--guest", "adult=1", "--name", "Ada", "--email", "ada@example.com")
        booking_id = self.run("storefront", "checkout", *at).json["id"]
        named = ("--payment-intent", intent) if intent else ()
        assert self.run("storefront", "pay", booking_id, *named).code == 0
        return booking_id

    def book(self, mode: PaymentMode = PaymentMode.PAY_ON_SITE) -> str:
        draft = bookings.BookingRequest(
            departure_id=DEPARTURE,
            guests=[GuestLineInput(tier_id="adult", count=1)],
            customer=guest("grace@example.com", "Grace"),
            source=BookingSource.ADMIN,
            payment=mode,
        )
        return str(self.act(lambda tx, actor: bookings.create(tx, actor, draft))["id"])

    def cancel(self, booking_id: str, refund: RefundMode = RefundMode.AUTO) -> None:
        self.act(lambda tx, actor: bookings.cancel(tx, actor, booking_id, reason=CancelReason.ADMIN, refund=refund))

    def waiting(self, **over: Any) -> str:
        """Return the id of a cancelled booking whose refund waits for the staff, since there is no gateway."""
        booking_id = self.paid(**over)
        self.cancel(booking_id)
        assert due.refer_refunds(self.database) == 1
        return booking_id


@pytest.fixture
def office(fjord_on_both: Booking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setenv("BOOKING_MAIL_DIR", str(tmp_path / "mails"))  # or the doctor tells that mails cannot leave
    import_kayaks(fjord_on_both, tmp_path)
    made = Office(fjord_on_both)
    yield made
    made.database.close()


# Refunds ---------------------------------------------------------------------------------------------------------


def test_a_refund_that_waits_is_listed_shown_and_settled(office: Office) -> None:
    booking_id = office.waiting()
    listed = office.run("refunds", "list", *ORG, "--status", "waiting").json
    (refund,) = listed["data"]
    assert (refund["booking_id"], refund["status"], refund["reason"]) == (booking_id, "needs_review", "no_gateway")
    assert (refund["amount"], refund["paid"], refund["settled_amount"]) == (nok(89000), nok(89000), None)
    assert refund["summary"] == (
        "890.00 NOK has to be returned by hand: no payment gateway is configured (BOOKING_STRIPE_API_KEY), so nothing"
        " was sent."
    )
    for name in (refund["id"], booking_id):
        assert office.run("refunds", "show", name).json == refund
    settled = office.run("refunds", "settle", refund["id"], "--note", "Bank transfer")
    assert (settled.code, settled.json["status"], settled.json["note"]) == (0, "settled", "Bank transfer")
    assert settled.json["settled_amount"] == nok(89000)
    assert office.run("refunds", "list", "--status", "waiting").json["data"] == []
    assert [each["id"] for each in office.run("refunds", "list", "--status", "settled").json["data"]] == [refund["id"]]
    assert office.run("bookings", "reschedule", booking_id, "--departure", DEPARTURE).code == 7
    assert office.run("doctor").json["data"] == []


def test_a_part_is_settled_and_the_rest_is_not_returned(office: Office) -> None:
    booking_id = office.waiting()
    settled = office.run("refunds", "settle", booking_id, "--amount", "500.00", "--note", "The rest was waived").json
    assert (settled["settled_amount"], settled["amount"]) == (nok(50000), nok(89000))
    assert settled["summary"] == "500.00 NOK (due: 890.00 NOK) was returned by hand."


def test_whoever_retries_without_a_gateway_is_warned(office: Office) -> None:
    again = office.plain("refunds", "retry", office.waiting())
    assert "BOOKING_STRIPE_API_KEY is not set here" in again.err


def test_an_organization_with_an_account_of_its_own_is_not_warned(office: Office) -> None:
    refund, keys = office.waiting(), {"api_key": "sk_test_of_ours", "webhook_secret": "whsec_of_a_test_endpoint"}
    office.database.write(lambda tx: stripe_accounts.configure(tx, office.actor(tx), **keys, publishable_key=None))
    again = office.plain("refunds", "retry", refund)
    assert (again.code, "BOOKING_STRIPE_API_KEY" in again.err) == (0, False)


def test_what_can_be_done_next_is_said(office: Office) -> None:
    shown = office.plain("refunds", "show", office.waiting())
    assert "booking refunds settle" in shown.err
    assert "booking refunds retry" in shown.err
    assert "booking refunds retry" not in office.plain("refunds", "show", office.waiting(intent=None)).err


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
def test_a_booking_is_paid_in_parts_and_no_longer_due(office: Office, mode: PaymentMode) -> None:
    booking_id = office.book(mode)
    (due,) = office.run("payments", "due", *ORG).json["data"]
    assert (due["id"], due["left"], due["paid"], due["is_overdue"]) == (booking_id, nok(89000), nok(0), False)
    assert office.run("payments", "due", *ORG, "--overdue").json["data"] == []
    partly = office.plain("payments", "record", booking_id, "--amount", "400.00", "--method", "cash")
    assert (partly.code, "The booking is partly paid" in partly.err) == (0, True)
    (due,) = office.run("payments", "due", *ORG, "--method", str(mode)).json["data"]
    assert (due["left"], due["paid"]) == (nok(49000), nok(40000))
    over = office.run("payments", "record", booking_id, "--amount", "500.00")
    assert (over.code, over.error["details"][0]["reason"]) == (8, "overpaid")
    assert "490.00 NOK left to pay" in over.error["message"]
    paid = office.run("payments", "record", booking_id, "--amount", "49000", "--at", "2026-11-20T09:00:00").json
    assert (paid["id"], paid["payment"]["status"]) == (booking_id, "paid")
    assert office.run("payments", "due", *ORG).json["data"] == []
    first, second = office.run("payments", "list", booking_id).json["data"]
    assert (first["amount"], first["method"], first["voided_at"]) == (nok(40000), "cash", None)
    assert second["received_at"] == "2026-11-20T09:00:00+01:00"
    assert office.run("payments", "void", second["id"], "--note", "Bounced").json["payment"]["status"] == "unpaid"
    assert office.run("doctor").json["data"] == []


def test_an_amount_of_another_currency_and_an_unreadable_time_are_refused(office: Office) -> None:
    booking_id = office.book()
    for argv, said in (
        (("--amount", "5.00 EUR"), "in NOK"),
        (("--amount", "5.001"), "more precise than NOK"),
        (("--amount", "5", "--at", "yesterday"), "--at"),
    ):
        refused = office.run("payments", "record", booking_id, *argv)
        assert (refused.code, said in refused.error["message"]) == (2, True)
    assert office.run("payments", "list", booking_id).json["data"] == []


def test_a_booking_is_named_by_its_number_too(office: Office) -> None:
    booking_id = office.book()
    paid = office.run("payments", "record", "1", *ORG, "--amount", "890.00")
    assert (paid.code, paid.json["id"], paid.json["payment"]["status"]) == (0, booking_id, "paid")
    assert len(office.run("payments", "list", "1", *ORG).json["data"]) == 1
    for number in ("2", "x", "9" * 30):
        assert office.run("payments", "list", number, *ORG).code == 6
    assert office.run("payments", "list", "1").code == 2  # every organization has its own booking 1
    kept = office.paid()
    office.cancel(kept, refund=RefundMode.NONE)
    made = office.run("refunds", "record", "2", *ORG, "--amount", "5.00", "--note", "Goodwill").json
    assert (made["booking_id"], made["settled_amount"]) == (kept, nok(500))


# The money of a cancelled booking --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paid", "refund", "said"),
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
def test_a_client_is_shown_what_the_answer_holds(paid: str, refund: str, said: str) -> None:
    method, source, status = paid.split()
    total = nok(0 if method in ("gift_card", "free") else 89000)
    totals = {"total": total, "gift_card": nok(50000 if method == "gift_card" else 0)}
    shown = {"payment": {"method": method, "source": source, "status": status}, "totals": totals}
    assert said in api_bookings.after_cancelling(shown, refund)
