"""An erasure removes everything that is stored about a guest, and nothing else."""

import json
from urllib.parse import urlsplit

import pytest
from support.api.api import Api
from support.receivers.stripe_ledger import stripe
from support.world import checkouts as checkouts_support
from support.world.checkouts import Webhooks, checkout_body
from support.world.guests import ADA, NOTE, TYPES, Guests
from support.world.world import DAY, NOON, FixedClock, make_world

from booking_core import notifications
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Conflict
from booking_core.bookings import checkouts
from booking_core.customers.erasures import processing
from booking_core.customers.erasures.store import columns
from booking_core.db import tables
from booking_core.db.tables import Personal
from booking_core.models.bookings import GuestInput
from booking_core.notifications import MailOutcome, MailResult

UNFILLED = {
    *("customers.tags", "payment_records.voided_note", "erasures.addresses"),
    *("bookings.manage_key_id", "bookings.manage_expires_at"),
}
"""Columns with personal data that the history of the guest has none in."""
HOLDING = {
    f"{table.name}.{name}"
    for table in tables.metadata.tables.values()
    for name in columns(table, Personal.EMPTIED, Personal.REPLACED, Personal.REWRITTEN)
} - UNFILLED


def test_nothing_of_the_guest_is_left_in_any_column_of_any_table(filled: Guests) -> None:
    assert filled.traces() == HOLDING
    filled.request()
    filled.erase()
    assert filled.traces() == set()
    filled.mails.write()
    assert filled.traces() == set(), "unsent mails are written again"
    assert filled.world.examine() == []


def test_an_erasure_leaves_nothing_of_checkouts_payments_and_disputes(guests: Guests) -> None:
    world, actor = guests.world, checkouts_support.actor_of(guests.world)
    checkouts_support.configure(world)
    with stripe() as ledger, checkouts_support.calling(guests.api.client, ledger):
        first, second = (
            guests.post(name, "/checkouts", checkout_body(guests.departure, 1, customer=ADA, note=NOTE))
            for name in ("checkout", "reviewed")
        )
        webhooks = Webhooks(ledger, world.org)
        failed = webhooks.failed(first["payment"]["intent_id"])
        ledger.pay(first["payment"]["intent_id"])
        ledger.pay(second["payment"]["intent_id"])
        ledger.intents[second["payment"]["intent_id"]]["amount_received"] = 5
        paid = [webhooks.succeeded(checkout["payment"]["intent_id"]) for checkout in (first, second)]
        for event in (failed, *paid, webhooks.disputed(first["payment"]["intent_id"])):
            assert webhooks.send(guests.api.client, event, now_s=world.clock() / 1e6).status_code == 200
        guests.act(lambda tx: checkouts.resolve(tx, actor, second["id"], note="Canarynote of review"))
        guests.ops.cancel(second["id"])
        world.clock.advance(10 * DAY)
        assert len(guests.dump()["payment_intents"]) == 2
        assert {"timeline.data", "bookings.note", "idempotency.body_sealed"} <= guests.traces()
        guests.request()
        guests.erase()
        assert guests.traces() == set()
        assert guests.world.examine() == []
        again = guests.api.post(*guests.answers["checkout"], key="key-of-checkout")
        assert (again.status_code, "canary" in again.text.lower()) == (201, False)


def test_the_mails_that_a_sandbox_keeps_lose_the_guest(guests: Guests, clock: FixedClock) -> None:
    sandbox = Guests(Api(guests.api.client, make_world(guests.world.database, clock, clock_offset=0)), guests.url)
    sandbox.book("booked")
    sandbox.mails.write()
    claimed = [mail for mail in sandbox.mails.claim() if mail.organization_id == sandbox.world.org]
    sandbox.act(lambda tx: notifications.record(tx, [MailResult(mail, MailOutcome.SENT) for mail in claimed]))
    sandbox.world.clock.advance(10 * DAY)
    assert {"mails.message", "mails.recipient"} <= sandbox.traces()
    sandbox.request()
    sandbox.erase()
    assert sandbox.traces() == set()


@pytest.mark.one_database
def test_numbers_money_and_the_other_guest_stay_as_they_were(filled: Guests) -> None:
    customer_id = filled.customer_id()
    before = filled.dump()
    filled.request()
    filled.erase()
    after = filled.dump()
    for table in ("bookings", "payments", "payment_records", "refunds", "gift_card_entries", "departures", "holds"):
        assert [filled.unchanging(row) for row in after[table]] == [filled.unchanging(row) for row in before[table]]
    changed = {table: [row for row in rows if row not in after[table]] for table, rows in before.items()}
    eves = [str(row) for rows in changed.values() for row in rows if "other.example" in str(row).lower()]
    assert all("canary" in row.lower() for row in eves), "only a gift card that both have"
    counted = {table: len(rows) for table, rows in before.items()}
    assert {table: len(rows) for table, rows in after.items()} == counted | {
        "events": counted["events"] + 1,
        "timeline": counted["timeline"] + 1,
        "erasures": 1,
        "mails": len(after["mails"]),  # unsent mails are written again
    }
    assert customer_id in {str(row["id"]) for row in after["customers"]}
    ended, ended_before = (
        {row["id"]: row["status"] for row in rows["mails"] if row["status"] != "queued"} for rows in (after, before)
    )
    assert ended == ended_before, "no mail is sent twice"


@pytest.mark.one_database
def test_the_receivers_get_one_event_and_the_customer_is_anonymous_at_once(filled: Guests) -> None:
    customer_id = filled.customer_id()
    while claimed := filled.hooks.claim(free=1000):
        filled.hooks.succeed(*claimed)
    first, second = filled.request(), filled.request(customer_id)
    assert (first["status"], first) == ("in_progress", second)
    filled.erase()
    assert filled.request(customer_id)["status"] == "finished"
    claimed = filled.hooks.claim(free=1000)
    assert [delivery.event_type for delivery in claimed] == ["customer.updated"]
    customer = json.loads(claimed[0].body)["data"]["object"]
    assert customer == filled.api.get(f"/customers/{customer_id}").json()
    assert (customer["name"], customer["phone"]) == ("Anonymized", None)
    assert customer["email"] == f"anonymized-{customer_id}@anonymized.invalid"


@pytest.mark.one_database
def test_a_retry_after_an_erasure_books_and_shows_nothing(filled: Guests) -> None:
    filled.request()
    filled.erase()
    before = filled.world.rows(tables.bookings)
    for key, (path, request) in filled.answers.items():
        again = filled.api.post(path, request, key=f"key-of-{key}")
        is_new = path in ("/bookings", "/customers") and key != "customer-again"
        assert again.status_code == (201 if is_new else 200), again.text
        assert "canary" not in again.text.lower()
        body = again.json()
        assert body.get("booking", body).get("manage_url") is None
    assert filled.world.rows(tables.bookings) == before
    assert filled.api.get("/customers", email=ADA["email"]).json()["data"] == []


@pytest.mark.one_database
def test_an_erasure_ends_the_link_and_a_later_booking_makes_another_customer(filled: Guests) -> None:
    former, path = filled.customer_id(), urlsplit(filled.link).path
    for row in filled.world.rows(tables.bookings):
        filled.world.change(tables.bookings, row["id"], manage_expires_at=filled.world.clock() + 90 * DAY)
    assert filled.api.client.get(path).status_code == 200
    filled.request()
    filled.erase()
    assert filled.api.client.get(path).status_code == 404
    booked = filled.api.book(filled.world.departure(filled.experience), customer=ADA)
    assert booked.json()["customer"] == ADA
    assert filled.customer_id() != former
    assert filled.world.examine() == []


@pytest.mark.parametrize("is_taken", [False, True])
def test_an_earlier_address_is_removed_unless_another_customer_has_it(guests: Guests, is_taken: bool) -> None:
    guests.book("booked")
    customer_id = guests.customer_id()
    guests.ops.issue(500, recipient_name=ADA["name"], recipient_email=ADA["email"])
    guests.ops.update_customer(customer_id, email="ada@canarynew.example")
    if is_taken:
        guests.api.book(guests.departure, customer=ADA)
    guests.world.clock.advance(10 * DAY)
    guests.request(customer_id)
    guests.erase()
    (card,) = guests.world.rows(tables.gift_cards)
    contact = (ADA["name"], ADA["email"]) if is_taken else (None, None)
    assert (card["recipient_name"], card["recipient_email"]) == contact


def test_an_anonymized_customer_cannot_be_updated(guests: Guests) -> None:
    guests.post("customer", "/customers", ADA)
    customer_id = guests.customer_id()
    guests.request()
    refusal = guests.ops.refusal(guests.ops.update_customer, customer_id, name="Ada")
    assert refusal == ("conflict", "customer_anonymized")


# Refusals --------------------------------------------------------------------------------------------------------


def refusal(guests: Guests) -> str | None:
    return guests.ops.refusal(guests.request)[1]


def test_a_refused_erasure_names_the_bookings_to_come(guests: Guests) -> None:
    number = guests.book("booked")["booking_number"]
    with pytest.raises(Conflict, match=rf"bookings to come \(#{number}\)"):
        guests.request()


def test_an_erasure_is_refused_until_every_booking_is_cancelled_or_over(guests: Guests) -> None:
    booked = guests.book("booked")
    assert refusal(guests) == "booking_to_come"
    assert guests.api.event_types().count("customer.updated") == 0
    guests.api.cancel(booked["id"])
    other = guests.book("other")
    guests.world.clock.at = NOON + 2 * DAY + 149 * MINUTE
    assert refusal(guests) == "booking_to_come", "the tour is under way"
    guests.world.clock.advance(MINUTE)
    assert guests.request()["bookings"] == 2
    guests.erase()
    assert guests.ops.booking(other["id"])["guest_email"] is None


def test_a_legacy_booking_of_the_address_counts_too(guests: Guests) -> None:
    guests.book("booked")
    guests.legacy()
    (legacy,) = [row["id"] for row in guests.world.rows(tables.bookings) if row["customer_id"] is None]
    guests.api.cancel(next(row["id"] for row in guests.world.rows(tables.bookings) if row["customer_id"]))
    guests.world.change(tables.bookings, legacy, status="confirmed", cancelled_at=None)
    assert refusal(guests) == "booking_to_come"
    guests.world.clock.advance(10 * DAY)
    guests.request()


def test_a_guest_who_is_owed_a_refund_is_refused(guests: Guests) -> None:
    booking_id = guests.ops.check_out(guests.departure, customer=GuestInput(**ADA))["id"]
    guests.ops.pay(booking_id)
    guests.ops.cancel(booking_id)
    guests.world.clock.advance(10 * DAY)
    assert refusal(guests) == "refund_open"


# Batches ---------------------------------------------------------------------------------------------------------


def test_an_erasure_that_is_killed_at_any_point_goes_on(filled: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is a separate transaction here, which is killed before its commit."""
    monkeypatch.setattr(processing, "ROWS_MAX", 2)
    monkeypatch.setattr(processing, "_ENTRIES", 2)
    filled.request()
    filled.world.clock.advance(2 * MINUTE)
    transactions, is_left = 0, True
    while is_left:
        filled.process_and_die()
        is_left = bool(filled.process())
        transactions += 1
        if transactions % 8 == 0:
            assert filled.world.examine() == [], "bookings and their events change together"
    assert 20 < transactions < 60
    filled.mails.write()
    assert filled.traces() == set()
    assert filled.world.examine() == []


def test_a_delivery_in_flight_is_waited_for(guests: Guests) -> None:
    guests.hooks.endpoint(*TYPES)
    booking_id = guests.book("booked")["id"]
    guests.world.clock.advance(10 * DAY)
    claimed = guests.hooks.claim(free=1000)
    guests.request()
    guests.world.clock.advance(MINUTE)
    assert guests.process() == 0
    assert guests.ops.booking(booking_id)["guest_email"] == ADA["email"]
    guests.hooks.record(*(guests.hooks.result(delivery, response_excerpt="Canarymail") for delivery in claimed))
    guests.process()
    assert guests.ops.booking(booking_id)["guest_email"] is None
    assert guests.traces() == set()


def test_a_booking_concurrent_with_the_erasure_gets_its_own_customer(guests: Guests) -> None:
    """It found the customer before the customer was anonymized, and was committed after."""
    guests.book("booked")
    former = guests.customer_id()
    guests.world.clock.advance(10 * DAY)
    late = guests.api.book(guests.world.departure(guests.experience), customer=ADA).json()
    guests.world.change(tables.bookings, late["id"], status="cancelled", cancelled_at=NOON)
    guests.request()
    guests.world.change(tables.bookings, late["id"], status="confirmed", cancelled_at=None)
    guests.erase()
    row = guests.ops.booking(late["id"])
    assert (row["guest_email"], row["customer_id"]) == (ADA["email"], guests.customer_id())
    assert row["customer_id"] != former
    assert guests.world.examine() == []


def test_erasures_of_one_organization_share_the_pages_of_its_rows(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        guest = {"email": f"guest-{number}@example.com", "name": "Guest"}
        guests.request(guests.api.post("/customers", guest).json()["id"])
    guests.world.clock.advance(MINUTE)
    texts: list[str] = []
    monkeypatch.setattr(guests.world.database, "observer", texts.append)
    assert guests.process() == 0
    assert len([text for text in texts if "FROM idempotency" in text]) == 1
    assert {row["finished_at"] is not None for row in guests.world.rows(tables.erasures)} == {True}
