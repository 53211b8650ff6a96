"""The commands that read and write over HTTP, against the running service on both databases."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any
from zoneinfo import ZoneInfo

import pytest
from support.api.refusals import nothing_changes
from support.serving.commands import Booking, Environment, Process
from support.world.operations import Operations
from support.world.resources import LISTINGS, Listing
from support.world.world import DAY, NOON, World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.base.clock import Zone
from booking_core.db import tables

UNKNOWN = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
ADA = ("--name", "Ada Lovelace", "--email", "ada@example.com")
TOO_MANY = (*ADA, "--payment", "invoice", "--guest", "adult=500")
BOOK = ("bookings", "create", "--departure", UNKNOWN, *ADA, "--payment", "invoice", "--guest")


@pytest.fixture
def departure(shop: World) -> str:
    return shop.departure(shop.experience())


def book(booking: Booking, departure: str, *argv: str) -> Any:
    arguments = ("--departure", departure, "--guest", "adult=2", *ADA, "--payment", "pay_on_site")
    return booking("bookings", "create", *arguments, "-o", "json", *argv)


# The catalogue ---------------------------------------------------------------------------------------------------


def test_experiences_are_listed_and_shown_as_the_api_shows_them(booking: Booking, shop: World) -> None:
    hidden, published = shop.experience(is_published=False), shop.experience()
    assert set(booking("experiences", "list", "--fields", "id").out.split()) == {hidden, published}
    assert booking("experiences", "list", "--published", "--fields", "id").out.split() == [published]
    assert booking("experiences", "list", "--unpublished", "--fields", "id").out.split() == [hidden]
    one = booking("experiences", "get", published, "-o", "json").json
    assert one == booking("api", "GET", f"experiences/{published}").json
    assert one["price_tiers"][0]["id"] == "adult"


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_list_and_get_print_the_rows_of_the_table(booking: Booking, shop: World, listing: Listing) -> None:
    ids, command = listing.filled(shop, os.environ["BOOKING_DATABASE_URL"], [NOON, NOON + 1]), listing.path[1:]
    assert booking(command, "list", "--order", "asc", "--fields", "id").out.split() == ids
    assert booking(command, "list", "-o", "json").json["data"]
    assert booking(command, "get", ids[0], "-o", "json").json == booking("api", "GET", f"{command}/{ids[0]}").json


def test_what_changed_is_found_by_how_long_ago(booking: Booking, shop: World) -> None:
    now = shop.clock()
    old, new = shop.experience(updated_at=now - 2 * DAY), shop.experience(updated_at=now)
    assert booking("experiences", "list", "--updated-since", "24h", "--fields", "id").out.split() == [new]
    both = booking("experiences", "list", "--updated-since", "2020-01-01T00:00:00+01:00", "--fields", "id")
    assert set(both.out.split()) == {old, new}
    assert booking("experiences", "list", "--updated-since", "yesterday").code == ExitCode.USAGE


def test_departures_are_listed_with_their_seats(booking: Booking, shop: World, departure: str) -> None:
    other = shop.departure(shop.experience(), seats=5)
    entries = booking("availability", "-o", "json").json["data"]
    assert {entry["id"]: entry["seats_available"] for entry in entries} == {departure: 12, other: 5}
    experience = next(entry["experience_id"] for entry in entries if entry["id"] == other)
    assert booking("availability", "--experience", experience, "--fields", "id").out == f"{other}\n"
    assert booking("availability", "--from", "2020-01-01", "--to", "2020-01-31", "-o", "json").json["data"] == []


def test_a_window_wider_than_the_api_takes_is_asked_for_in_parts(booking: Booking, shop: World) -> None:
    experience, now = shop.experience(), shop.clock()
    ids = [shop.departure(experience, starts_at=now + days * DAY) for days in (1, 92, 93, 200)]
    first, last = (Zone("Europe/Oslo").wall(now + days * DAY).date().isoformat() for days in (0, 201))
    assert booking("availability", "--from", first, "--to", last, "--fields", "id").out.split() == ids


@pytest.mark.parametrize(
    "argv",
    [
        *(("availability", "--from", day) for day in ("1st", "2026-1-1")),
        *(("availability", "--to", "20261224"), ("availability", "--experience", "a/b")),
        *(("webhooks", "show", endpoint) for endpoint in ("", "..", "a/b", "a?b")),
        *((*BOOK, guest) for guest in ("adult", "adult=", "=2", "adult=0", "adult=-1", "adult=two", "adult=1.0")),
    ],
    ids=lambda argv: " ".join(argv[-2:]),
)
def test_an_invalid_day_id_or_tier_count_is_not_sent(booking: Booking, canned: Any, argv: tuple[str, ...]) -> None:
    assert booking(*argv, "-o", "json").refusal == (ExitCode.USAGE, "usage")
    assert canned.requests == []


def test_a_window_that_ends_before_it_begins_is_the_services_to_refuse(booking: Booking, shop: World) -> None:
    assert booking("availability", "--from", "2026-12-24", "--to", "2026-12-23").code == ExitCode.INVALID


def test_a_booking_is_moved_over_http(booking: Booking, shop: World, departure: str) -> None:
    booked = book(booking, departure).json
    other = shop.departure(booked["experience"]["id"], seats=2, starts_at=shop.clock() + 5 * DAY)
    move = ("bookings", "reschedule", str(booked["booking_number"]), "--departure", other)
    tried = booking(*move, "--dry-run", "-o", "json").json
    assert (tried["departure"]["id"], tried["change"]["allowed"], tried["dry_run"]) == (other, True, True)
    moved = booking(*move, "-o", "json").json
    assert (moved["departure"]["id"], moved["change"]["money"]["settlement"]) == (other, "price_kept")
    Operations(shop).close(departure)
    back = ("bookings", "reschedule", booked["id"], "--departure", departure)
    assert "would be refused: The departure is closed" in booking(*back, "--dry-run").err
    assert booking(*back, "-o", "json").error["details"][0]["reason"] == "departure_closed"
    assert booking(*back, "--api", "--org", "fjord-tours").code == ExitCode.USAGE


def test_a_party_is_changed_over_http_and_in_the_database(booking: Booking, shop: World, departure: str) -> None:
    booked = book(booking, departure).json
    change = ("bookings", "change-party", str(booked["booking_number"]), "-o", "json")
    tried = booking(*change, "--guest", "adult=3", "--dry-run").json
    assert (tried["guests"][0]["count"], tried["change"]["money"]["settlement"]) == (3, "balance_due")
    assert booking(*change, "--guest", "adult=3").json["guests"] == tried["guests"]
    assert booking(*change, "--guest", "adult=1", "--refund", "full").code == ExitCode.USAGE
    over = booking("bookings", "change-party", booked["id"], "--guest", "adult=500", "--dry-run")
    assert "It would be refused: Not enough seats" in over.err
    staff = (*change, "--org", shop.organization.slug)
    tried = booking(*staff, "--guest", "adult=1", "--refund", "full", "--dry-run").json
    assert (tried["guests"][0]["count"], tried["dry_run"]) == (1, True)
    assert booking(*staff, "--guest", "adult=1").json["change"]["money"]["settlement"] == "less_due"


def test_a_guest_is_changed_over_http_and_in_the_database(booking: Booking, shop: World, departure: str) -> None:
    booked = book(booking, departure).json
    change = ("bookings", "set-guest", str(booked["booking_number"]), "-o", "json")
    assert booking(*change, "--name", "Ada King", "--note", "Late").json["note"] == "Late"
    staff = booking(*change, "--org", shop.organization.slug, "--email", "king@example.com", "--note", "").json
    assert (staff["customer"]["name"], staff["customer"]["email"], staff["note"]) == (
        "Ada King",
        "king@example.com",
        None,
    )
    assert booking(*change).code == ExitCode.USAGE


def test_the_day_is_seen_and_written_over_http(booking: Booking, shop: World, departure: str) -> None:
    booked = book(booking, departure).json
    day = booked["departure"]["starts_at"][:10]
    entry_of_day = booking("departures", "get", departure, "-o", "json").json
    assert booking("departures", "list", "--date", day, "-o", "json").json["data"] == [entry_of_day]
    assert "Fjord kayak" in booking("departures", "list", "--date", day).out
    assert booking("departures", "list", "--date", day, "--to", day).code == ExitCode.USAGE
    present = booking("bookings", "check-in", str(booked["booking_number"]), "-o", "json").json
    assert present["checked_in_at"]
    manifest = booking("departures", "manifest", departure, "-o", "json").json
    assert [entry["id"] for entry in manifest["data"]] == [booked["id"]]
    assert manifest["totals"]["checked_in"] == 1
    assert booking("departures", "manifest", departure, "--csv").out.count("Ada Lovelace") == 1
    assert booking("bookings", "no-show", booked["id"], "-o", "json").json["checked_in_at"] is None
    assert booking("bookings", "no-show", booked["id"], "--undo", "-o", "json").json["no_show_at"] is None


def test_a_booking_is_tried_before_it_is_created(booking: Booking, shop: World, departure: str) -> None:
    extra = ("--note", "Late", "--locale", "de", "--metadata", "channel=acme", "--no-email")
    with nothing_changes(shop):
        tried = book(booking, departure, *extra, "--dry-run").json
        refused = booking("bookings", "create", "--departure", departure, *TOO_MANY, "--dry-run")
    assert (tried["allowed"], tried["dry_run"], tried["seats"]) == (True, True, 2)
    assert (refused.code, "It would be refused: Not enough seats" in refused.err) == (ExitCode.OK, True)
    booked = book(booking, departure, *extra).json
    assert booked["totals"] == tried["totals"]


def test_a_booking_of_staff_is_tried_in_the_database(booking: Booking, shop: World, departure: str) -> None:
    staff = ("--org", shop.organization.slug, "--source", "agency")
    with nothing_changes(shop):
        tried = book(booking, departure, *staff, "--dry-run").json
        over = book(booking, departure, *staff, "--guest", "adult=500", "--dry-run")
    assert (tried["status"], tried["source"], tried["dry_run"]) == ("confirmed", "agency", True)
    assert (tried["id"], tried["booking_number"]) == (None, None)
    assert over.refusal == (ExitCode.CONFLICT, "insufficient_capacity")
    assert book(booking, departure, *staff).json["totals"] == tried["totals"]


def test_the_bookings_of_today_are_listed(booking: Booking, shop: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operations, experience = Operations(shop), shop.experience()
    at = shop.clock() + DAY
    booked, _ = (operations.book(shop.departure(experience, starts_at=start)) for start in (at, at + DAY))
    monkeypatch.setattr("booking_cli.commands.bookings.day", {"today": booked["departure"]["starts_at"][:10]}.get)
    for org in ((), ("--org", shop.organization.slug)):
        entries = booking("bookings", "list", "--today", *org, "-o", "json").json["data"]
        assert [entry["id"] for entry in entries] == [booked["id"]]
    assert booking("bookings", "list", "--today", "--departure-from", "today").code == ExitCode.USAGE


def test_seats_are_quoted_held_and_booked_over_http(booking: Booking, shop: World, departure: str) -> None:
    of = ("--departure", departure)
    quote = booking("bookings", "quote", *of, "--guest", "adult=2", "-o", "json").json
    assert (quote["allowed"], quote["seats"]) == (True, 2)
    hold = booking("holds", "create", *of, "--seats", "2", "--for", "5m", "-o", "json").json
    assert booking("holds", "get", hold["id"], "-o", "json").json == hold
    assert booking("holds", "extend", hold["id"], "--for", "20m", "-o", "json").json["expires_at"] > hold["expires_at"]
    for wrong in ((), ("--seats", "1", "--guest", "adult=1"), ("--seats", "1", "--for", "31m")):
        assert booking("holds", "create", *of, *wrong).code == ExitCode.USAGE
    assert "--for is from 1s to 30m over HTTP." in booking("holds", "extend", hold["id"], "--for", "31m").err
    other = booking("holds", "create", *of, "--guest", "adult=1", "-o", "json").json
    assert other["totals"] == booking("bookings", "quote", *of, "--guest", "adult=1", "-o", "json").json["totals"]
    assert booking("holds", "delete", other["id"], "-o", "json").json["status"] == "released"
    reference = ("--external-reference", "A-1", "--unique", "--metadata", "channel=acme", "--metadata", "note=a=b")
    booked = book(booking, departure, "--hold", hold["id"], *reference).json
    assert (booked["external_reference"], booked["metadata"]) == ("A-1", {"channel": "acme", "note": "a=b"})
    assert booking("holds", "get", hold["id"], "-o", "json").json["booking_id"] == booked["id"]
    assert book(booking, departure, *reference).code == ExitCode.CONFLICT
    entries = booking("bookings", "list", "--external-reference", "A-1", "-o", "json").json["data"]
    assert [entry["id"] for entry in entries] == [booked["id"]]
    for wrong in (("--metadata", "channel"), ("--metadata", "a=1", "--metadata", "a=2")):
        assert book(booking, departure, *wrong).code == ExitCode.USAGE
    staff = ("--org", shop.organization.slug, "--source", "admin")
    assert book(booking, departure, *staff, "--hold", hold["id"]).code == ExitCode.USAGE
    assert book(booking, departure, *staff, "--external-reference", "A-1", "--unique").code == ExitCode.CONFLICT
    result = booking("bookings", "list", "--org", shop.organization.slug, "--external-reference", "A-1", "-o", "json")
    assert [entry["id"] for entry in result.json["data"]] == [booked["id"]]


# Bookings --------------------------------------------------------------------------------------------------------


def test_a_booking_is_made_listed_shown_and_cancelled(booking: Booking, shop: World, departure: str) -> None:
    booked = book(booking, departure, "--phone", "+47 900", "--note", "Window seat", "--add-on", "drysuit=1").json
    assert (booked["status"], booked["note"], booked["customer"]["phone"]) == ("confirmed", "Window seat", "+47 900")
    assert booked["totals"]["total"] == {"amount_minor": 2 * 89000 + 15000, "currency": "NOK"}
    assert booking("bookings", "get", booked["id"], "-o", "json").json == booked
    (listed,) = booking("bookings", "list", "--departure-from", "today", "-o", "json").json["data"]
    assert listed["id"] == booked["id"]
    cancel = ("bookings", "cancel", booked["id"], "--yes")
    assert booking(*cancel, "--reason", "ill", "-o", "json").json["status"] == "cancelled"
    assert booking("bookings", "list", "--status", "confirmed", "-o", "json").json["data"] == []
    assert booking(*cancel, "-o", "json").json["status"] == "cancelled"
    assert "payments made by hand are refunded by hand." in booking(*cancel).err


def test_the_same_command_with_the_same_key_books_once(booking: Booking, shop: World, departure: str) -> None:
    first, again = (book(booking, departure, "--idempotency-key", "order-1017") for _ in range(2))
    assert (first.code, again.json) == (0, first.json)
    assert len(booking("bookings", "list", "--fields", "id").out.split()) == 1
    arguments = ("--departure", departure, "--guest", "adult=2", *ADA, "--payment", "pay_on_site")
    third = booking("bookings", "create", *arguments, "--idempotency-key", "order-1017")
    assert "nothing was booked now" in third.err
    other = book(booking, departure, "--idempotency-key", "order-1017", "--note", "another body")
    assert other.refusal == (ExitCode.INVALID, "idempotency_key_reused")


def test_mail_and_notice_can_be_left_out(booking: Booking, shop: World, departure: str) -> None:
    assert book(booking, departure, "--no-email", "--no-notify").code == 0
    assert [row["kind"] for row in shop.rows(tables.effects) if "mail" in str(row["kind"])] == []


def test_the_refusal_of_an_invalid_departure_id_refers_to_the_departures(booking: Booking, shop: World) -> None:
    refused = book(booking, "tomorrow")
    assert refused.refusal == (8, "validation_failed")
    assert refused.error["message"].startswith("departure_id: must be a UUID, such as ")
    assert refused.error["hint"] == "booking availability lists the departures"


def test_the_refusal_of_a_private_endpoint_shows_the_command_for_it(booking: Booking, shop: World) -> None:
    refused = booking("webhooks", "create", "--url", "https://10.0.0.1/", "--event", "booking.created", "-o", "json")
    assert (refused.code, refused.error["details"][0]["reason"]) == (8, "address_not_public")
    assert "booking webhooks listen" in refused.error["hint"]


@pytest.mark.parametrize(
    ("target", "message"), [(UNKNOWN, "There is no such departure."), ("nowhere", "There is no departure 'nowhere'.")]
)
def test_a_missing_departure_and_a_missing_booking_are_distinguished(
    booking: Booking, shop: World, departure: str, target: str, message: str
) -> None:
    pending = Operations(shop).check_out(departure)["id"]
    refused = booking("bookings", "reschedule", pending, "--departure", target, "-o", "json")
    assert (refused.code, refused.error["message"]) == (ExitCode.NOT_FOUND, message)


# Customers -------------------------------------------------------------------------------------------------------


def test_a_customer_is_created_once_and_found_again(booking: Booking, shop: World) -> None:
    customer = booking("customers", "create", *ADA, "--phone", "+47 900", "--subscribe", "-o", "json").json
    assert customer["email_subscription"] is True
    again = booking("customers", "create", "--email", "ada@example.com", "--name", "Somebody else")
    assert "nothing was changed" in again.err
    assert booking("customers", "get", customer["id"], "-o", "json").json == customer
    assert booking("customers", "list", "--email", "ada@example.com", "-o", "json").json["data"] == [customer]
    assert booking("customers", "list", "--email", "eve@example.com", "-o", "json").json["data"] == []


def test_the_operator_changes_contact_details(booking: Booking, shop: World) -> None:
    customer = booking("customers", "create", *ADA, "--phone", "+47 900", "-o", "json").json
    details = ("--email", "ada@new.example.com", "--phone", "")
    changed = booking("customers", "update", customer["id"], *details, "-o", "json")
    assert (changed.json["email"], changed.json["phone"]) == ("ada@new.example.com", None)
    assert booking("customers", "get", customer["id"], "-o", "json").json == changed.json
    assert booking("customers", "update", customer["id"], "--email", "nobody", "-o", "json").code == ExitCode.INVALID
    assert booking("customers", "update", customer["id"]).code == ExitCode.USAGE


# Gift cards ------------------------------------------------------------------------------------------------------


def issue(booking: Booking, shop: World, *argv: str) -> Any:
    return booking("gift-cards", "issue", "--org", shop.organization.slug, "--amount", "50000", "-o", "json", *argv)


def test_a_gift_card_is_issued_and_its_code_shown_to_who_asks(booking: Booking, shop: World) -> None:
    card = issue(booking, shop, "--expires-at", "2999-12-31", "--recipient-email", "ada@example.com").json
    assert card["balance"] == {"amount_minor": 50000, "currency": "NOK"}
    assert card["expires_at"] == "2999-12-31T00:00:00+01:00"
    assert card["recipient"]["email"] == "ada@example.com"
    code = card.pop("code")
    listed, result = booking("gift-cards", "list", "-o", "json"), booking("gift-cards", "get", card["id"], "-o", "json")
    assert code not in listed.out + result.out
    assert listed.json["data"] == [card]
    assert booking("gift-cards", "get", card["id"], "--include-code", "--fields", "code").out == f"{code}\n"


def test_a_code_is_taken_once_and_an_end_is_an_instant(booking: Booking, shop: World) -> None:
    assert issue(booking, shop, "--code", "GIFT-ABCD-1234").code == ExitCode.OK
    assert issue(booking, shop, "--code", "GIFT-ABCD-1234").code == ExitCode.CONFLICT
    assert issue(booking, shop, "--expires-at", "never").code == ExitCode.USAGE


def test_a_gift_card_is_switched_off_and_on(booking: Booking, shop: World) -> None:
    card = issue(booking, shop).json
    assert booking("gift-cards", "deactivate", card["id"], "-o", "json").json["status"] == "inactive"
    assert booking("gift-cards", "list", "--status", "inactive", "--fields", "id").out == f"{card['id']}\n"
    assert booking("gift-cards", "reactivate", card["id"], "-o", "json").json["status"] == "active"


# Events ----------------------------------------------------------------------------------------------------------


def test_events_are_listed_and_shown(booking: Booking, shop: World, departure: str) -> None:
    booked = book(booking, departure).json
    listed = booking("events", "list", "--type", "booking.*", "--order", "asc", "-o", "json").json
    assert [event["type"] for event in listed["data"]] == ["booking.created", "booking.confirmed"]
    assert listed["resume_cursor"]
    assert listed["data"][0]["data"]["object"]["id"] == booked["id"]
    assert booking("events", "get", listed["data"][0]["id"], "-o", "json").json == listed["data"][0]
    assert booking("events", "list", "--since", "1h", "--until", "30m", "-o", "json").json["data"] == []
    assert booking("events", "list", "--resource-type", "customer", "--fields", "type").out == "customer.created\n"
    assert booking("events", "list", "--type", "nonsense").code == ExitCode.INVALID


def test_the_tail_ends_with_the_newest(booking: Booking, shop: World, departure: str) -> None:
    book(booking, departure)
    tail = booking("events", "tail", "-n", "2", "-o", "json").json["data"]
    assert [event["type"] for event in tail] == ["booking.created", "booking.confirmed"]
    assert booking("events", "tail", "-n", "0").out == ""
    assert len(booking("events", "tail", "--since", "1h", "-o", "jsonl").out.splitlines()) == 3
    assert booking("events", "tail", "--type", "customer.*", "--fields", "type").out == "customer.created\n"


@pytest.mark.parametrize(("begin", "before"), [(("-n", "1"), 1), (("--since", "1h"), 3)])
def test_a_follower_gets_every_event_once_as_the_list_shows_it(
    booking: Booking, shop: World, departure: str, process: Process, begin: tuple[str, ...], before: int
) -> None:
    book(booking, departure)
    with following(process, *begin, "-o", "json") as lines:
        events = [json.loads(lines.readline()) for _ in range(before)]
        book(booking, departure)
        events += [json.loads(lines.readline()) for _ in range(2)]
    everything = booking("events", "list", "--order", "asc", "-o", "json").json["data"]
    assert events == everything[len(everything) - before - 2 :]


def test_a_follower_that_wants_nothing_old_begins_at_the_end(
    booking: Booking, shop: World, departure: str, process: Process
) -> None:
    book(booking, departure)
    with following(process, "-n", "0", "-v", "--fields", "sequence", stderr=subprocess.STDOUT) as lines:
        answers = 0
        while answers < 2:  # the first question tells where the end is
            answers += lines.readline().startswith("< 200")
        book(booking, departure)
        numbers = [line for line in iter(lines.readline, "5\n") if line.strip().isdigit()]
    assert numbers == ["4\n"]


def test_a_follower_reads_an_instant_without_offset_in_the_organizations_zone(
    booking: Booking, shop: World, departure: str, process: Process, environment: Environment
) -> None:
    environment("TZ", "America/Los_Angeles")  # where it is so late only nine hours after
    begin = datetime.now(ZoneInfo(shop.organization.timezone)).replace(tzinfo=None).isoformat(timespec="seconds")
    with following(process, "--since", begin, "-v", "--fields", "type", stderr=subprocess.STDOUT) as lines:
        read_lines: list[str] = []
        answers = 0
        while answers < 12 and "booking.confirmed\n" not in read_lines:
            read_lines.append(lines.readline())
            answers += read_lines[-1].startswith("< 200")
            if answers == 4:  # the list, the organization, and two looks at a feed without new events
                answers += 1
                book(booking, departure)
    assert "booking.confirmed\n" in read_lines


@contextmanager
def following(process: Process, *argv: str, **settings: Any) -> Iterator[IO[str]]:
    """Return the output of `events tail --follow` until it is interrupted."""
    follower = process("events", "tail", "--follow", *argv, **settings)
    try:
        yield follower.stdout
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate()
    assert follower.returncode == ExitCode.INTERRUPTED
