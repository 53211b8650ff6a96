"""A pending row becomes a mail, once, with the present data."""

import json
import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any

import pytest
from support.world.mails import Mails
from support.world.operations import Operations
from support.world.world import HOUR, World

from booking_core.base import tokens
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.models.bookings import CancelReason, PaymentMode
from booking_core.notifications import default_sender
from booking_core.notifications.rules import (
    BOOKING_KINDS,
    GUEST_KINDS,
    MAIL_KINDS,
    STAFF_PAYMENT_KINDS,
    TO_GUESTS,
    WRITE_RETRY_DELAYS,
)
from booking_core.records.outbox import OutboxKind

pytestmark = pytest.mark.one_database

GIFT_CARD = OutboxKind.GIFT_CARD_MAIL
CONFIRMATION = OutboxKind.BOOKING_CONFIRMATION_MAIL
CANCELLATION = OutboxKind.BOOKING_CANCELLATION_MAIL
RESCHEDULING = OutboxKind.BOOKING_RESCHEDULING_MAIL
CHANGE = OutboxKind.BOOKING_CHANGE_MAIL
STAFF = OutboxKind.STAFF_BOOKING_MAIL
STAFF_CANCELLATION = OutboxKind.STAFF_CANCELLATION_MAIL
REFUSED = OutboxKind.STAFF_REFUND_REFUSED_MAIL
REVIEW = OutboxKind.STAFF_REFUND_REVIEW_MAIL
PAYMENT_REVIEW = OutboxKind.STAFF_PAYMENT_REVIEW_MAIL
KEY = OutboxKind.STAFF_KEY_EXPIRING_MAIL
FAILING = OutboxKind.STAFF_WEBHOOK_FAILING_MAIL
DISABLED = OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL

LINK = re.compile(r"http://127\.0\.0\.1:8000/manage/[A-Za-z0-9_-]{64}")
TAG = re.compile(r"<(\w+)")
LOADED = re.compile(r"""\b(?:src|srcset|background)\s*=\s*["']?([^"'>\s]+)""")
TYPED = [
    "Ada\u2028Bcc: eve@evil.example",
    "Ada\r\nBcc: eve@evil.example",
    'Ada "Q" <b>Love</b>',
    "👩‍🚀 Ada",
    "<script>alert(1)</script>",
    "x" * 200,
    "{{ 7 * 7 }}{% raise %}${7*7}%s%n",
    "שלום \u202eevil",
]


def payload(world: World) -> dict[str, Any]:
    """Return the values that any kind of mail uses."""
    at = world.clock()
    return {
        "previous_starts_at": at + 24 * HOUR,
        "amount_minor": 35000,
        "refund_minor": 12000,
        "currency": "NOK",
        "reason": "charge_disputed",
        "payment_intent": "pi_3OqX2eLkdIwHu7ix",
        "name": "Partner portal",
        "prefix": "svc_3kPz9QwX",
        "expires_at": at + 7 * 24 * HOUR,
        "url": "https://hooks.example.com/in?a=1&b=<2>",
        "hours": 24,
        "failures": 12,
        "since": at,
    }


def enqueue_all(mails: Mails, booking_id: str, **over: object) -> None:
    """Enqueue a mail of each kind except the kinds that the booking itself enqueued."""
    Operations(mails.world).issue(50000, recipient_name="Ada Lovelace", recipient_email="ada@example.com")
    for kind in sorted(MAIL_KINDS - {CONFIRMATION, STAFF, GIFT_CARD}):
        subject = booking_id if kind in BOOKING_KINDS else tokens.new_id()
        mails.enqueue(kind, subject, **(payload(mails.world) | over))


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


# Every kind ------------------------------------------------------------------------------------------------------


def test_every_kind_is_written_once_and_to_whom_it_is_meant_for(mails: Mails) -> None:
    enqueue_all(mails, mails.book())
    assert mails.write() == len(MAIL_KINDS)
    assert mails.write() == 0
    assert set(mails.rows()) == MAIL_KINDS
    assert len(mails.world.rows(tables.mails)) == len(MAIL_KINDS)
    for kind in MAIL_KINDS:
        row, read = mails.rows()[kind], mails.read(kind)
        to = "ada@example.com" if kind in TO_GUESTS else "staff@example.com"
        assert (row["recipient"], row["status"], row["attempt_count"]) == (to, "queued", 0)
        assert [address.addr_spec for address in read["To"].addresses] == [to]
        assert read["Message-ID"] == f"<{row['message_id']}>"
        assert [address.addr_spec for address in read["From"].addresses] == ["office@book.example"]
    assert {row["status"] for row in mails.world.rows(tables.effects)} == {"done"}


def test_a_guest_hears_from_the_organization_and_can_answer_it(mails: Mails) -> None:
    mails.book_and_write()
    guest, staff = mails.read(CONFIRMATION), mails.read(STAFF)
    assert [address.display_name for address in guest["From"].addresses] == ["Fjord Tours"]
    assert [address.addr_spec for address in guest["Reply-To"].addresses] == ["staff@example.com"]
    assert [address.display_name for address in guest["To"].addresses] == ["Ada Lovelace"]
    assert [address.display_name for address in staff["From"].addresses] == ["Booking Office"]
    assert "Reply-To" not in staff


SAYS: Mapping[OutboxKind, tuple[str, list[str]]] = {
    CONFIRMATION: ("Booking confirmed: Fjord kayak, 23 November 2026", ["Your booking is confirmed", "Booking: 1"]),
    CANCELLATION: ("Booking cancelled: Fjord kayak, 23 November 2026", ["Your booking is cancelled"]),
    RESCHEDULING: (
        "New time for your booking: Fjord kayak, 23 November 2026",
        ["Before: Sunday 22 November 2026, 13:00 (Europe/Oslo, UTC+01:00)", "Now: Monday 23 November 2026, 13:00"],
    ),
    CHANGE: (
        "Booking changed: Fjord kayak, 23 November 2026",
        ["Your booking was changed", "120.00 NOK is to be returned to you."],
    ),
    STAFF: ("New booking 1: Fjord kayak, 23 November 2026", ["ada@example.com", "+47 900 00 000", "Source: api"]),
    STAFF_CANCELLATION: ("Cancelled 1: Fjord kayak, 23 November 2026", ["Its seats are free again", "Ada Lovelace"]),
    OutboxKind.STAFF_RESCHEDULING_MAIL: (
        "Moved 1: Fjord kayak, 23 November 2026",
        ["Before: Sunday 22 November 2026, 13:00"],
    ),
    REFUSED: ("Refund by hand needed 1: Fjord kayak, 23 November 2026", ["350.00 NOK", "charge_disputed"]),
    REVIEW: ("Refund by hand needed 1: Fjord kayak, 23 November 2026", ["350.00 NOK", "charge_disputed"]),
    PAYMENT_REVIEW: (
        "Payment to be checked, booking 1: Fjord kayak, 23 November 2026",
        ["Stripe took a payment that this booking cannot take.", "350.00 NOK", "pi_3OqX2eLkdIwHu7ix", "Ada Lovelace"],
    ),
    OutboxKind.STAFF_DISPUTE_OPENED_MAIL: (
        "Payment disputed, booking 1: Fjord kayak, 23 November 2026",
        ["asks for this payment back", "Answer the dispute at Stripe", "350.00 NOK", "charge_disputed"],
    ),
    OutboxKind.STAFF_DISPUTE_LOST_MAIL: (
        "Dispute lost, booking 1: Fjord kayak, 23 November 2026",
        ["has got this payment back", "350.00 NOK", "charge_disputed", "ada@example.com"],
    ),
    KEY: ("The API key Partner portal is about to expire", ["svc_3kPz9QwX", "Saturday 28 November 2026, 13:00"]),
    FAILING: ("A webhook endpoint is failing", ["https://hooks.example.com/in?a=1&b=<2>", "24 hours", "12 in a row"]),
    GIFT_CARD: (
        "A gift card from Fjord Tours for you",
        ["You have received a gift card from Fjord Tours.", "500.00 NOK"],
    ),
    DISABLED: ("A webhook endpoint was switched off", ["https://hooks.example.com/in?a=1&b=<2>", "12 in a row"]),
}


def test_each_mail_says_the_same_in_plain_text_and_in_html(mails: Mails) -> None:
    enqueue_all(mails, mails.book())
    mails.write()
    about_booking = ["Monday 23 November 2026, 13:00–15:30", "Europe/Oslo, UTC+01:00", "890.00 NOK", "on arrival"]
    assert set(SAYS) == MAIL_KINDS
    for kind, (subject, sentences) in SAYS.items():
        assert mails.read(kind)["Subject"] == subject
        plain = " ".join(mails.text(kind).split())
        tags, html = TAG.findall(mails.html(kind)), " ".join(text_of(mails.html(kind)).split())
        for text in sentences + (about_booking if kind in BOOKING_KINDS else []):
            assert text in plain, kind
            assert text.replace("Booking: ", "Booking ").replace("Source: ", "Source ") in html, kind
        loaded = LOADED.findall(mails.html(kind))
        assert [url for url in loaded if not url.startswith("cid:")] == [], "nothing is loaded from elsewhere"
        assert tags.count("img") == len(loaded), kind
        assert not set(tags) & {"script", "link", "style", "iframe", "form"}, kind
        assert "h1" in tags, kind


@pytest.mark.parametrize(
    "reason", ["amount_differs", "currency_differs", "second_intent", "refund_differs", "paid_already"]
)
def test_staff_reads_of_a_payment_in_the_language_of_the_organization(mails: Mails, reason: str) -> None:
    mails.world.change(tables.organizations, mails.world.org, language="de", notify_staff=False)
    mails.enqueue(PAYMENT_REVIEW, mails.book(), **(payload(mails.world) | {"reason": reason, "amount_minor": None}))
    mails.write()
    read = mails.read(PAYMENT_REVIEW)
    assert read["Subject"] == "Zahlung zu prüfen, Buchung 1: Fjord kayak, 23. November 2026"
    assert read["Content-Language"] == "de"
    assert "Stripe hat" in mails.text(PAYMENT_REVIEW)
    assert 'lang="de"' in mails.html(PAYMENT_REVIEW)
    assert "Betrag" not in mails.text(PAYMENT_REVIEW).partition("Bei Stripe")[0].rpartition("\n\n")[2]


def test_what_was_bought_is_listed_with_what_it_costs(mails: Mails) -> None:
    mails.book(
        guests=[{"tier_id": "adult", "count": 2}, {"tier_id": "family", "count": 1}],
        add_ons=[{"id": "drysuit", "count": 3}],
        note="Two of us\nare vegetarian",
    )
    mails.write()
    guest, staff = mails.text(CONFIRMATION), mails.text(STAFF)
    assert "2 x Adult\n    890.00 NOK each, 1,780.00 NOK\n1 x Family\n" in guest
    assert "3 x Dry suit\n    150.00 NOK each, 450.00 NOK\n" in guest
    assert "Total:      4,730.00 NOK\n" in guest
    assert "> Two of us\n> are vegetarian\n" in staff
    assert "vegetarian" not in guest


def test_an_invoice_that_is_due_is_reported_to_staff(mails: Mails) -> None:
    mails.book_and_write(payment="invoice")
    assert "An invoice has to be sent." in mails.text(STAFF)
    assert "Payment:    By invoice" in mails.text(CONFIRMATION)
    assert "has to be sent" not in mails.text(CONFIRMATION)


# The link and the calendar ---------------------------------------------------------------------------------------


def test_only_guest_mails_have_the_secret_link_and_the_calendar_entry(mails: Mails) -> None:
    enqueue_all(mails, mails.book())
    mails.write()
    for kind in MAIL_KINDS:
        for text in (mails.text(kind), mails.html(kind)):
            assert bool(LINK.search(text)) == (kind in {CONFIRMATION, RESCHEDULING, CHANGE}), kind
        entries = [(entry["SUMMARY"], entry["STATUS"]) for entry in mails.calendar_entries(kind)]
        assert entries == [("Fjord kayak", "CONFIRMED")] * (kind in GUEST_KINDS), kind


def test_a_mail_about_a_booking_that_has_no_link_has_none(mails: Mails) -> None:
    booking = mails.book()
    mails.world.change(tables.bookings, booking, manage_expires_at=None)
    mails.write()
    for text in (mails.text(CONFIRMATION), mails.html(CONFIRMATION)):
        assert "manage" not in text
        assert "address" not in text


def test_what_is_stored_shows_neither_the_link_nor_the_guest(mails: Mails) -> None:
    mails.book_and_write()
    stored = json.dumps(mails.world.rows(tables.mails))
    assert "manage" not in stored
    assert "Lovelace" not in stored
    assert LINK.search(mails.text(CONFIRMATION))


def test_a_cancellation_takes_the_entry_out_of_the_calendar(mails: Mails) -> None:
    booking = mails.book_and_write()
    cancel(mails, booking)
    mails.write()
    (before,), (after,) = mails.calendar_entries(CONFIRMATION), mails.calendar_entries(CANCELLATION)
    assert before["UID"] == after["UID"]
    assert before["SEQUENCE"] < after["SEQUENCE"]
    assert (before["STATUS"], after["STATUS"]) == ("CONFIRMED", "CANCELLED")
    assert mails.world.examine() == []


def test_a_booking_that_was_moved_takes_its_entry_with_it(mails: Mails) -> None:
    booking, world = mails.book_and_write(), mails.world
    row = world.row(tables.bookings, booking)
    later = world.departure(row["experience_id"], starts_at=world.clock() + 100 * HOUR)
    world.clock.advance(HOUR)
    Operations(world).reschedule(booking, later)
    mails.write()
    (before,), (after,) = mails.calendar_entries(CONFIRMATION), mails.calendar_entries(RESCHEDULING)
    assert before["UID"] == after["UID"]
    assert before["SEQUENCE"] < after["SEQUENCE"]
    assert (after.start - before.start).total_seconds() == 52 * 3600
    assert "Before:     Monday 23 November 2026, 13:00" in mails.text(RESCHEDULING)
    assert "Now:        Wednesday 25 November 2026, 17:00" in mails.text(RESCHEDULING)


def cancel(mails: Mails, booking_id: str, reason: CancelReason = CancelReason.CUSTOMER, **options: str) -> None:
    Operations(mails.world).cancel(booking_id, reason, **options)


# The present data ------------------------------------------------------------------------------------------------


def test_a_mail_tells_what_is_so_when_it_is_written(mails: Mails) -> None:
    booking = mails.book()
    mails.world.change(tables.bookings, booking, guest_name="Grace Hopper", guest_email="grace@example.com")
    mails.write()
    assert mails.rows()[CONFIRMATION]["recipient"] == "grace@example.com"
    assert "Hello Grace Hopper," in mails.text(CONFIRMATION)


def test_a_confirmation_that_comes_too_late_says_so(mails: Mails) -> None:
    booking = mails.book()
    cancel(mails, booking)
    mails.write()
    assert set(mails.rows()) == {CONFIRMATION, STAFF, CANCELLATION, STAFF_CANCELLATION}
    for text in (mails.text(CONFIRMATION), mails.html(CONFIRMATION)):
        assert "cancelled since" in text
        assert not LINK.search(text)
    assert [entry["STATUS"] for entry in mails.calendar_entries(CONFIRMATION)] == ["CANCELLED"]


@pytest.mark.parametrize(
    ("reason", "to_guest", "to_staff"),
    [
        (CancelReason.CUSTOMER, "It was cancelled as you asked.", "Cancelled by the guest."),
        (CancelReason.MIN_PARTICIPANTS, "Too few people had booked", "because too few people had booked"),
        (CancelReason.API, "", "Cancelled through the API."),
        (CancelReason.ADMIN, "", "Cancelled by staff."),
        (CancelReason.AGENT, "", "Cancelled by an agent."),
    ],
)
def test_a_cancellation_says_why(mails: Mails, reason: CancelReason, to_guest: str, to_staff: str) -> None:
    cancel(mails, mails.book(), reason, note="<b>storm</b>")
    mails.write()
    assert to_guest in mails.text(CANCELLATION)
    assert to_guest in text_of(mails.html(CANCELLATION))
    assert to_staff in mails.text(STAFF_CANCELLATION)
    assert "Reason given: <b>storm</b>" in mails.text(STAFF_CANCELLATION)
    assert "Reason given: <b>storm</b>" in text_of(mails.html(STAFF_CANCELLATION))
    assert "storm" not in mails.text(CANCELLATION)


def paid_by_card(mails: Mails) -> str:
    """Create a booking that a card paid."""
    world, booking = mails.world, mails.book()
    world.change(tables.bookings, booking, payment_method="card", payment_source="stripe", payment_status="paid")
    at = world.clock()
    paid = {"payment_intent": "pi_1", "amount_minor": 89000, "currency": "NOK", "status": "paid"}
    world.insert(tables.payments, booking_id=booking, created_at=at, updated_at=at, **paid)
    return booking


def cancel_with_refund(mails: Mails, booking_id: str, columns: dict[str, Any]) -> str:
    """Cancel a booking, change the columns of its refund and return the id of the refund."""
    cancel(mails, booking_id)
    (refund,) = mails.world.rows(tables.refunds)
    mails.world.change(tables.refunds, refund["id"], **columns)
    return refund["id"]


REFUNDS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "queued": (
        {"status": "requested"},
        "890.00 NOK will be returned to you, normally to the card that paid.",
        "The refund of 890.00 NOK is queued and has not been sent yet.",
    ),
    "no gateway": (
        {"status": "needs_review", "last_error": "no_gateway"},
        "890.00 NOK is to be returned to you. Fjord Tours will make the refund by hand.",
        "no payment gateway is configured (BOOKING_STRIPE_API_KEY), so nothing was sent.",
    ),
    "no payment intent": (
        {"status": "needs_review", "last_error": "no_payment_intent"},
        "Fjord Tours will make the refund by hand.",
        "the payment came without a payment intent, so nothing could be sent.",
    ),
    "taken by hand": (
        {"status": "needs_review", "last_error": "paid_by_hand"},
        "890.00 NOK is to be returned to you. Fjord Tours will make the refund by hand.",
        "the payment was taken by hand and not through the gateway.",
    ),
    "being sent": (
        {"status": "sending", "first_sent_at": 1},
        "890.00 NOK will be returned to you, normally to the card that paid.",
        "The refund of 890.00 NOK is being sent; the gateway has not confirmed it yet.",
    ),
    "accepted": (
        {"status": "sending", "first_sent_at": 1, "provider_refund_id": "re_1"},
        "890.00 NOK is on its way back to the card that paid.",
        "The gateway has accepted the refund of 890.00 NOK and has not paid it out yet.",
    ),
    "refused": (
        {"status": "failed", "first_sent_at": 1, "last_error": "charge_disputed"},
        "It could not be returned to the card that paid, so Fjord Tours will make the refund by hand.",
        "the gateway refused the refund (charge_disputed).",
    ),
    "unclear": (
        {"status": "needs_review", "first_sent_at": 1, "last_error": "never_settled"},
        "Fjord Tours is checking whether it has reached the card that paid.",
        "It may have been made, so look the payment up at the gateway before you pay.",
    ),
    "succeeded": (
        {"status": "succeeded", "first_sent_at": 1, "provider_refund_id": "re_1"},
        "890.00 NOK was returned to the card that paid.",
        "890.00 NOK was returned to the card.",
    ),
    "settled by hand": (
        {"status": "settled", "settled_minor": 89000, "settled_at": 1, "settled_note": "Cash"},
        "890.00 NOK was returned to you by Fjord Tours.",
        "890.00 NOK was returned by hand.",
    ),
    "settled in part": (
        {"status": "settled", "settled_minor": 50000, "settled_at": 1, "settled_note": "Cash"},
        "500.00 NOK was returned to you by Fjord Tours.",
        "500.00 NOK (due: 890.00 NOK) was returned by hand.",
    ),
    "closed": (
        {"status": "settled", "settled_minor": 0, "settled_at": 1, "settled_note": "Waived"},
        "Fjord Tours has closed the refund of 890.00 NOK and returns nothing more.",
        "The refund of 890.00 NOK was closed by hand, and nothing was returned.",
    ),
}


@pytest.mark.parametrize("state", REFUNDS)
def test_a_cancellation_says_what_is_true_of_the_refund(mails: Mails, state: str) -> None:
    columns, to_guest, to_staff = REFUNDS[state]
    cancel_with_refund(mails, paid_by_card(mails), columns)
    mails.write()
    for text in (mails.text(CANCELLATION), text_of(mails.html(CANCELLATION))):
        assert to_guest in " ".join(text.split())
        assert "did not accept" not in text
    for text in (mails.text(STAFF_CANCELLATION), text_of(mails.html(STAFF_CANCELLATION))):
        assert to_staff in " ".join(text.split())


def test_a_cancellation_says_what_went_back_to_the_gift_card(mails: Mails) -> None:
    ops, departure = Operations(mails.world), mails.world.departure(mails.world.experience())
    _, code = ops.issue(20_000, send_email=False)
    cancel(mails, ops.book(departure, payment=PaymentMode.PAY_ON_SITE, gift_card_code=code)["id"])
    mails.write()
    for kind, owner in ((CANCELLATION, "your"), (STAFF_CANCELLATION, "the")):
        for text in (mails.text(kind), text_of(mails.html(kind))):
            assert f"200.00 NOK went back to {owner} gift card." in " ".join(text.split())


@pytest.mark.parametrize(
    ("state", "subject"),
    [
        ("no gateway", "Refund by hand needed 1"),
        ("refused", "Refund by hand needed 1"),
        ("unclear", "Refund to be checked 1"),
        ("settled by hand", "Refund settled meanwhile 1"),
        ("being sent", "Refund being sent again 1"),
        ("taken by hand", "Refund by hand needed 1"),
    ],
)
@pytest.mark.parametrize("kind", [REFUSED, REVIEW])
def test_staff_reads_the_true_reason_why_a_refund_waits(
    mails: Mails, kind: OutboxKind, state: str, subject: str
) -> None:
    columns, _, to_staff = REFUNDS[state]
    booking = paid_by_card(mails)
    refund_id = cancel_with_refund(mails, booking, columns)
    mails.enqueue(kind, booking, amount_minor=89000, currency="NOK", reason=columns.get("last_error") or "no_gateway")
    mails.write()
    assert mails.read(kind)["Subject"].startswith(f"{subject}: Fjord kayak")
    for text in (mails.text(kind), text_of(mails.html(kind))):
        assert to_staff in " ".join(text.split())
        is_waiting = columns["status"] in ("needs_review", "failed")
        assert (f"booking refunds settle {refund_id}" in " ".join(text.split())) == is_waiting
        assert ("card processor" in text) == (is_waiting and state != "taken by hand")


# To nobody -------------------------------------------------------------------------------------------------------


def outcomes(mails: Mails) -> dict[str, str | None]:
    """Why each effect that is done brought no mail, by kind."""
    assert {row["status"] for row in mails.effects().values()} == {"done"}
    return {kind: row["last_error"] for kind, row in mails.effects().items() if kind not in mails.rows()}


def test_a_guest_without_a_confirmation_mail_gets_the_cancellation_mail(mails: Mails) -> None:
    booking = mails.book(send_confirmation_email=False)
    cancel(mails, booking)
    mails.enqueue(CONFIRMATION, booking)
    mails.enqueue(RESCHEDULING, booking, previous_starts_at=0)
    mails.write()
    assert outcomes(mails) == {CONFIRMATION: "suppressed"}
    assert {CANCELLATION, RESCHEDULING} <= set(mails.rows())


def test_staff_without_mails_hears_only_of_waiting_refunds_and_payments(mails: Mails) -> None:
    enqueue_all(mails, mails.book())
    mails.world.change(tables.organizations, mails.world.org, notify_staff=False)
    mails.write()
    written = TO_GUESTS | {REFUSED, REVIEW} | STAFF_PAYMENT_KINDS
    assert set(mails.rows()) == written
    assert outcomes(mails) == dict.fromkeys(MAIL_KINDS - written, "suppressed")


def test_an_unannounced_creation_leaves_all_later_staff_mails(mails: Mails) -> None:
    booking = mails.book(notify_staff=False)
    enqueue_all(mails, booking)
    mails.enqueue(STAFF, booking)
    mails.write()
    assert outcomes(mails) == {STAFF: "suppressed"}
    assert {STAFF_CANCELLATION, OutboxKind.STAFF_RESCHEDULING_MAIL} <= set(mails.rows())


def test_who_has_no_address_gets_no_mail_and_holds_up_nothing(mails: Mails) -> None:
    booking = mails.book()
    mails.world.change(tables.organizations, mails.world.org, staff_email=None)
    mails.world.change(tables.bookings, booking, guest_email=None)
    enqueue_all(mails, booking)
    (card,) = mails.world.rows(tables.gift_cards)
    mails.world.change(tables.gift_cards, card["id"], recipient_email=None)
    assert mails.write() == len(MAIL_KINDS)
    assert outcomes(mails) == dict.fromkeys(MAIL_KINDS, "no_recipient")


def test_no_mail_is_written_about_a_booking_that_is_not_there(mails: Mails) -> None:
    mails.enqueue(CANCELLATION, tokens.new_id())
    mails.enqueue(STAFF_CANCELLATION, tokens.new_id())
    mails.write()
    assert outcomes(mails) == {CANCELLATION: "no_recipient", STAFF_CANCELLATION: "no_recipient"}


# Entered text stays text -----------------------------------------------------------------------------------------


@pytest.mark.exhaustive(but=("sqlite-<script>", "sqlite-Ada\\r"))
@pytest.mark.parametrize("typed", TYPED)
def test_what_was_typed_stays_text_everywhere(mails: Mails, typed: str) -> None:
    world = mails.world
    experience = world.experience(title=typed, address=typed)
    booking = mails.book(departure_id=world.departure(experience))
    world.change(tables.bookings, booking, guest_name=typed, guest_phone=typed, note=typed, cancel_note=typed)
    world.change(tables.organizations, world.org, name=typed)
    enqueue_all(mails, booking, name=typed, reason=typed, url=typed)
    (card,) = world.rows(tables.gift_cards)
    world.change(tables.gift_cards, card["id"], recipient_name=typed, purchaser_name=typed)
    mails.write()
    assert set(mails.rows()) == MAIL_KINDS
    one_line = " ".join(typed.replace("\u202e", "").split())
    for kind in MAIL_KINDS:
        read = mails.read(kind)
        assert "Bcc" not in read
        html, text = mails.html(kind), mails.text(kind)
        assert not set(TAG.findall(html)) & {"script", "b"}
        assert one_line in " ".join(text_of(html).split())
        assert one_line in " ".join(text.split())
        assert not [line for line in text.split("\n") if line.startswith("Bcc")]


def test_the_subject_of_a_long_title_is_cut(mails: Mails) -> None:
    mails.book_and_write(departure_id=mails.world.departure(mails.world.experience(title="kayak " * 60)))
    assert len(mails.read(CONFIRMATION)["Subject"]) <= 150


# What cannot be written ------------------------------------------------------------------------------------------


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("CRITICAL", "booking.mail")
    return caplog


def test_an_unwritable_mail_is_retried_then_fails_alone(mails: Mails, caplog: pytest.LogCaptureFixture) -> None:
    clock = mails.world.clock
    mails.enqueue(KEY, tokens.new_id(), name="Portal")  # and no prefix, which the template wants
    mails.enqueue(FAILING, tokens.new_id(), **payload(mails.world))
    assert mails.write() == 2
    assert set(mails.rows()) == {FAILING}
    for attempts, wait in enumerate(WRITE_RETRY_DELAYS, start=1):
        row = mails.effects()[KEY]
        assert (row["status"], row["attempt_count"], row["due_at"]) == ("queued", attempts, clock() + wait)
        assert (row["last_error"], row["completed_at"]) == ("UndefinedError", None)
        assert mails.write() == 0
        clock.advance(wait)
        assert mails.write() == 1
    attempts, row = len(WRITE_RETRY_DELAYS) + 1, mails.effects()[KEY]
    assert (row["status"], row["attempt_count"], row["completed_at"]) == ("failed", attempts, clock())
    clock.advance(1000 * HOUR)
    assert mails.write() == 0
    first, last = (record.message for record in caplog.records)
    assert ("cannot be written" in first, "given up" in last) == (True, True)


@pytest.mark.parametrize("address", ["a@b.example,eve@evil.example", "Ada <a@b.example>", "a@b.example\r\nBcc: e@f.de"])
def test_an_address_that_is_not_one_mailbox_is_never_written_to(
    mails: Mails, address: str, quiet: pytest.LogCaptureFixture
) -> None:
    booking = mails.book()
    mails.world.change(tables.bookings, booking, guest_email=address)
    mails.write()
    assert set(mails.rows()) == {STAFF}
    assert mails.effects()[CONFIRMATION]["last_error"] == "Fault"
    mails.world.change(tables.bookings, booking, guest_email="ada@example.com")  # staff mends it
    mails.world.clock.advance(WRITE_RETRY_DELAYS[0])
    mails.write()
    assert mails.rows()[CONFIRMATION]["recipient"] == "ada@example.com"


# Together --------------------------------------------------------------------------------------------------------


def test_a_message_id_is_made_from_the_effect(mails: Mails) -> None:
    booking = mails.book()
    for occurrence in ("1", "2"):
        mails.enqueue(RESCHEDULING, booking, occurrence, previous_starts_at=0)
    mails.write()
    rows = mails.world.rows(tables.mails)
    assert len({row["message_id"] for row in rows}) == len(rows) == 4
    key = f"booking_rescheduling_mail:{booking}:1"
    expected = tokens.sha256_hex(f"{mails.world.org}:{key}".encode())[:32] + "@book.example"
    assert expected in {row["message_id"] for row in rows if row["effect_key"] == key}


def test_a_batch_takes_a_few_statements_whatever_its_size(mails: Mails, statements: list[str]) -> None:
    for number in range(6):
        mails.book(f"a-key-of-a-test-{number}")
    statements.clear()
    assert mails.write() == 12
    # The organizations and their due rows, the lock, the bookings and the writes; SQLite changes one table with one
    # statement, and so takes one more.
    assert len(statements) == (6 if mails.world.database.is_sqlite else 5)


def test_a_batch_is_bounded_and_takes_the_longest_due_first(mails: Mails) -> None:
    first = mails.book("a-key-of-a-test-1")
    mails.world.clock.advance(1)
    mails.book("a-key-of-a-test-2")
    assert mails.write(limit=2) == 2
    assert {row["booking_id"] for row in mails.world.rows(tables.mails)} == {first}


def test_each_organization_is_written_to_in_its_own_words(mails: Mails, new_world: Callable[..., World]) -> None:
    others = Mails(new_world(name="Tokyo Walks", timezone="Asia/Tokyo", staff_email="tokyo@example.com"))
    mails.book()
    others.book()
    assert (mails.write(), others.write()) == (2, 2)
    assert "Monday 23 November 2026, 13:00–15:30\nTime zone:  Europe/Oslo, UTC+01:00" in mails.text(CONFIRMATION)
    assert "Monday 23 November 2026, 21:00–23:30\nTime zone:  Asia/Tokyo, UTC+09:00" in others.text(CONFIRMATION)
    assert others.rows()[STAFF]["recipient"] == "tokyo@example.com"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://book.example.com", "no-reply@book.example.com"),
        ("https://book.example.com:8443/base", "no-reply@book.example.com"),
        ("http://127.0.0.1:8000", "no-reply@localhost.localdomain"),
        ("http://localhost:8000", "no-reply@localhost.localdomain"),
        ("http://[::1]:8000", "no-reply@localhost.localdomain"),
        ("https://bücher.example", "no-reply@xn--bcher-kva.example"),
        ("https://a_b.example", "no-reply@localhost.localdomain"),
        ("https://[book.example", "no-reply@localhost.localdomain"),
        ("https://büro.example", "no-reply@xn--bro-hoa.example"),
        (f"https://{'ü' * 70}.example", "no-reply@localhost.localdomain"),
    ],
)
def test_without_a_setting_mails_come_from_the_host_of_the_service(url: str, address: str) -> None:
    assert default_sender(Installation(SecretKeys("a secret key"), url)).address == address
