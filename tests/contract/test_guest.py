"""Changes of the guest of a booking over HTTP: the contact, the link, the mails."""

from typing import Any

import orjson
import pytest
from support.api.api import Api, body_of
from support.api.refusals import conflict_reason, nothing_changes, refused
from support.world.guests import Guests
from support.world.mails import Mails
from support.world.operations import Operations

from booking_core import notifications
from booking_core.base.errors import NotFound
from booking_core.db import tables
from booking_core.models import limits
from booking_core.notifications import MailOutcome

Booking = dict[str, Any]
CONFIRMATION = "booking_confirmation_mail"


def path_of(booking_id: str) -> str:
    return f"/bookings/{booking_id}/guest"


def changed(api: Api, booking_id: str, **fields: str) -> Booking:
    """Change the guest, and let the doctor look."""
    booking: Booking = body_of(api.post(path_of(booking_id), fields))
    assert booking == api.get(f"/bookings/{booking_id}").json()
    assert api.world.examine() == []
    return booking


def opens(api: Api, booking: Booking) -> bool:
    token = booking["manage_url"].rpartition("/")[2]
    try:
        view = api.world.database.read(lambda tx: notifications.open_link(tx, api.world.installation, token))
    except NotFound:
        return False
    return view.row.id == booking["id"]


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("field", "sent", "stored"),
    [
        ("name", "  Ada King ", "Ada King"),
        ("email", "Ada.King@example.com", "Ada.King@example.com"),
        ("phone", "+47 911 11 111", "+47 911 11 111"),
        ("phone", "", None),
        ("note", "Arrives\nlate", "Arrives\nlate"),
        ("note", "", None),
    ],
)
def test_one_field_changes_and_the_others_stay(
    api: Api, ops: Operations, departure: str, field: str, sent: str, stored: str | None
) -> None:
    before = api.book(departure, note="By the door").json()
    records = api.get("/customers").json()
    booking = changed(api, before["id"], **{field: sent})
    expected = {"note": stored} if field == "note" else {"customer": before["customer"] | {field: stored}}
    assert {name: value for name, value in booking.items() if value != before[name]}.items() >= expected.items()
    same = set(before) - {*expected, "updated_at", "manage_url"}
    assert {name: booking[name] for name in same} == {name: before[name] for name in same}
    assert api.get("/customers").json() == records
    (entry,) = (row for row in api.world.rows(tables.timeline) if row["kind"] == "booking_guest_changed")
    assert orjson.loads(entry["data"]) == {"booking_number": 1, "changed": [field]}
    (event,) = api.get("/events", type="booking.updated").json()["data"]
    assert event["data"]["changes"] == {name: before[name] for name in expected}


@pytest.mark.one_database
def test_the_same_data_changes_nothing(api: Api, departure: str) -> None:
    before = api.book(departure).json()
    with nothing_changes(api.world, leaving_out=["idempotency"]):
        assert api.post(path_of(before["id"]), {**before["customer"], "note": ""}).json() == before


def test_a_link_of_a_former_address_opens_nothing(api: Api, departure: str) -> None:
    first = api.book(departure).json()
    assert changed(api, first["id"], name="Ada King")["manage_url"] == first["manage_url"]
    second = changed(api, first["id"], email="grace@example.com")
    again = changed(api, first["id"], email=first["customer"]["email"])
    assert [opens(api, booking) for booking in (first, second, again)] == [False, False, True]


def test_an_address_with_other_capital_letters_is_not_a_new_one(api: Api, ops: Operations, departure: str) -> None:
    first = api.book(departure).json()
    booking = changed(api, first["id"], email=first["customer"]["email"].upper())
    assert booking["customer"]["email"] == first["customer"]["email"].upper()
    assert booking["manage_url"] == first["manage_url"]
    assert opens(api, first)
    assert ops.outbox_kinds(first["id"]).count(CONFIRMATION) == 1


def test_the_confirmation_goes_to_the_new_address_once_per_change(api: Api, ops: Operations, departure: str) -> None:
    confirmed, quiet = (api.book(departure, send_confirmation_email=sent).json()["id"] for sent in (True, False))
    pending = ops.check_out(departure)["id"]
    for booking_id in (confirmed, quiet, pending):
        changed(api, booking_id, email="grace@example.com")
        changed(api, booking_id, name="Grace")
    counts = [ops.outbox_kinds(booking_id).count(CONFIRMATION) for booking_id in (confirmed, quiet, pending)]
    assert counts == [2, 0, 0]


def test_a_mail_that_was_not_sent_goes_to_the_new_address_alone(api: Api, ops: Operations, departure: str) -> None:
    mails = Mails(api.world)
    booking_id = api.book(departure).json()["id"]
    mails.write()
    ops.reschedule(booking_id, api.world.departure(api.world.experience()))
    mails.write()
    to_staff = {row["id"] for row in api.world.rows(tables.mails) if row["recipient"] == "staff@example.com"}
    changed(api, booking_id, email="grace@example.com")
    mails.write()
    rows = api.world.rows(tables.mails)
    to_guest = sorted((row["kind"], row["recipient"]) for row in rows if row["id"] not in to_staff)
    assert to_guest == [(CONFIRMATION, "grace@example.com"), ("booking_rescheduling_mail", "grace@example.com")]
    assert len(rows) == 2 + len(to_staff) == 4


def test_of_the_sent_mails_only_the_confirmation_is_sent_again(api: Api, ops: Operations, departure: str) -> None:
    mails = Mails(api.world)
    booking_id = api.book(departure).json()["id"]
    ops.reschedule(booking_id, api.world.departure(api.world.experience()))
    mails.write()
    mails.settle(MailOutcome.SENT)
    changed(api, booking_id, email="grace@example.com")
    mails.write()
    queued = [row for row in api.world.rows(tables.mails) if row["status"] == "queued"]
    assert [(row["kind"], row["recipient"]) for row in queued] == [(CONFIRMATION, "grace@example.com")]


def test_a_mail_that_is_being_sent_while_the_address_changes_ends_quietly(api: Api, departure: str) -> None:
    mails = Mails(api.world)
    booking_id = api.book(departure, notify_staff=False).json()["id"]
    mails.write()
    claimed = mails.claim()
    changed(api, booking_id, email="grace@example.com")
    mails.settle(MailOutcome.SENT, claimed=claimed)
    mails.write()
    (row,) = api.world.rows(tables.mails)
    assert (row["status"], row["recipient"]) == ("queued", "grace@example.com")


def test_a_departure_that_has_started_sends_no_confirmation_again(api: Api, ops: Operations, departure: str) -> None:
    booking = api.book(departure).json()
    api.world.clock.at = ops.booking(booking["id"])["manage_expires_at"] - 1
    changed(api, booking["id"], email="grace@example.com")
    assert ops.outbox_kinds(booking["id"]).count(CONFIRMATION) == 1


@pytest.mark.one_database
def test_cancelled_and_erased_guests_are_refused(
    api: Api, ops: Operations, departure: str, shared_database_url: str
) -> None:
    cancelled, erased = (api.book(departure).json()["id"] for _ in range(2))
    api.cancel(cancelled)
    api.world.clock.at = ops.booking(erased)["manage_expires_at"] + 1
    guests = Guests(api, shared_database_url)
    guests.request(guests.customer_id("ada@example.com"))
    guests.erase()
    with nothing_changes(api.world, leaving_out=["idempotency"]):
        assert conflict_reason(api.post(path_of(cancelled), {"name": "Eve"})) == "booking_cancelled"
        assert conflict_reason(api.post(path_of(erased), {"name": "Eve"})) == "customer_anonymized"


@pytest.mark.one_database
@pytest.mark.parametrize(
    "body",
    [
        *({}, {"name": None, "email": None}, {"name": " "}, {"email": ""}, {"email": "a@b.c, d@e.f"}, {"phone": 1}),
        *({"phone": "1\n2"}, {"note": "x" * (limits.NOTE_LENGTH_MAX + 1)}, {"customer": {"name": "Ada"}}),
    ],
)
def test_a_body_without_a_valid_field_is_refused(api: Api, departure: str, body: dict[str, Any]) -> None:
    booking_id = api.book(departure).json()["id"]
    with nothing_changes(api.world):
        refused(api.post(path_of(booking_id), body), 400, "validation_failed")


def test_a_change_of_guest_takes_statements_only_for_locks_and_its_write(
    api: Api, departure: str, statements: list[str]
) -> None:
    booking_id = api.book(departure).json()["id"]
    statements.clear()
    assert api.post(path_of(booking_id), {"email": "grace@example.com"}).status_code == 200
    # The key; its lock, the stored answer; locked, read; the waiting mails; the sequence of the event; written
    assert len(statements) == (8 if not api.world.database.is_sqlite else 11)
