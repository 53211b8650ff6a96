"""`booking departures`: staff lists, closes, resizes and cancels departures, and prints their guests."""

import csv
import io
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.serving.commands import Booking
from support.world.operations import Operations, guest
from support.world.world import DAY, SECRET, World, make_world

from booking_cli.commands import manifests
from booking_cli.framework.exit_codes import ExitCode
from booking_core import bookings
from booking_core.bookings import cancel_batches
from booking_core.db import tables
from booking_core.models.bookings import PaymentMode

GRACE = "Grace Brewster Murray Hopper of Arlington"


@pytest.fixture
def staff(stored_on_both: Booking) -> Booking:
    """Return a function that runs `booking` on that database with JSON output."""
    return lambda *argv: stored_on_both(*argv, "-o", "json")


def day_of(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).date().isoformat()


# Looking ---------------------------------------------------------------------------------------------------------


def test_a_day_is_listed_with_its_seats_and_bookings(staff: Booking, ops: Operations, departure: str) -> None:
    ops.world.departure(ops.world.experience(), starts_at=ops.world.clock() + 9 * DAY)
    ops.book(departure, 2)
    ops.check_out(departure, 3)
    ops.cancel(ops.book(departure)["id"])
    days = ("--date", day_of(ops.world.clock() + DAY), "--to", day_of(ops.world.clock() + 3 * DAY))
    (entry,) = staff("departures", "list", "--org", "fjord-tours", *days).json["data"]
    assert entry["id"] == departure
    assert (entry["seats_sold"], entry["seats_total"], entry["seats_available"]) == (5, 50, 45)
    assert entry["bookings"] == {"pending": 1, "confirmed": 1, "cancelled": 1}
    assert entry["experience"]["title"] == "Fjord kayak"
    assert staff("departures", "show", departure).json == entry
    assert staff("departures", "list", "--org", "fjord-tours").json["data"] == []
    reversed_days = ("--date", "2027-01-02", "--to", "2027-01-01")
    assert staff("departures", "list", "--org", "fjord-tours", *reversed_days).code == ExitCode.INVALID


def test_a_departure_of_two_organizations_is_asked_for_by_both(staff: Booking, world: World, departure: str) -> None:
    other = make_world(world.database, world.clock, slug="other-tours")
    other.departure(other.experience(), id=departure)
    for argv in (("show",), ("manifest",), ("close",), ("reopen",), ("cancel", "--yes")):
        refused = staff("departures", argv[0], departure, *argv[1:])
        assert refused.refusal == (ExitCode.USAGE, "ambiguous")
        assert "fjord-tours, other-tours" in refused.error["message"]
    assert staff("departures", "close", departure, "--org", "other-tours").json["status"] == "closed"
    assert staff("departures", "show", departure, "--org", "fjord-tours").json["status"] == "open"


# Changing --------------------------------------------------------------------------------------------------------


def test_a_departure_is_closed_and_reopened(staff: Booking, departure: str) -> None:
    assert staff("departures", "close", departure).json["status"] == "closed"
    assert staff("departures", "reopen", departure.upper()).json["status"] == "open"


def test_fewer_seats_than_are_sold_are_refused_unless_forced(staff: Booking, ops: Operations, departure: str) -> None:
    ops.book(departure, 5)
    assert staff("departures", "seats", departure, "6").json["seats_available"] == 1
    with nothing_changes(ops.world):
        refused = staff("departures", "seats", departure, "4")
    assert (refused.code, refused.error["message"]) == (ExitCode.CONFLICT, "5 seats are sold, more than 4.")
    assert refused.error["hint"].startswith("--force")
    forced = staff("departures", "seats", departure, "4", "--force").json
    assert (forced["seats_total"], forced["seats_sold"], forced["seats_available"]) == (4, 5, 0)
    assert ops.world.examine() == []
    assert staff("departures", "seats", departure, "-1").code == ExitCode.USAGE


# Cancelling ------------------------------------------------------------------------------------------------------


def sold(ops: Operations, departure: str, count: int) -> list[str]:
    """Create bookings, some of them paid by card, and return them."""
    booking_ids = []
    for number in range(count):
        email = f"guest{number}@example.com"
        if number % 2:
            booking_ids.append(ops.book(departure, email=email, payment=PaymentMode.PAY_ON_SITE)["id"])
        else:
            booking_ids.append(ops.check_out(departure, email=email)["id"])
            ops.pay(booking_ids[-1], f"pi_{number}")
    return booking_ids


def check_all_cancelled_once(world: World, departure: str, booking_ids: list[str], reason: str = "admin") -> None:
    """Check that each booking has one cancellation event, one mail, and one full refund if it was paid by card."""
    row = world.row(tables.departures, departure)
    assert (row["status"], row["seats_taken"], row["cancelling"]) == ("cancelled", 0, None)
    rows = world.rows(tables.bookings)
    assert {row["id"] for row in rows} == set(booking_ids)
    assert {(row["status"], row["cancel_reason"]) for row in rows} == {("cancelled", reason)}
    cancelled = [event["resource_id"] for event in world.rows(tables.events) if event["type"] == "booking.cancelled"]
    assert Counter(cancelled) == Counter(booking_ids)
    mails = [mail for mail in world.rows(tables.effects) if mail["kind"] == "booking_cancellation_mail"]
    assert Counter(mail["subject_id"] for mail in mails) == Counter(booking_ids)
    paid = [row["id"] for row in rows if row["payment_source"] == "stripe"]
    refunds = world.rows(tables.refunds)
    assert Counter(refund["booking_id"] for refund in refunds) == Counter(paid)
    assert {refund["amount_minor"] for refund in refunds} == {89000}
    assert world.examine() == []


def test_a_departure_is_cancelled_with_its_bookings_and_the_money_is_reported(
    staff: Booking, ops: Operations, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_batches, "BATCH", 2)
    booking_ids = sold(ops, departure, 5)
    report = staff("departures", "cancel", departure, "--yes").json
    check_all_cancelled_once(ops.world, departure, booking_ids)
    assert [entry["booking_number"] for entry in report["data"]] == [1, 2, 3, 4, 5]
    assert [row["refund"] and row["refund"]["state"] for row in report["data"]] == ["queued", None] * 2 + ["queued"]
    assert report["refunds"] == [{"amount_minor": 3 * 89000, "currency": "NOK"}]
    assert (report["departure"]["status"], report["departure"]["bookings"]["cancelled"]) == ("cancelled", 5)
    with nothing_changes(ops.world, leaving_out={"audit"}):
        again = staff("departures", "cancel", departure, "--yes")
    assert (again.code, again.json["data"]) == (ExitCode.OK, [])


def test_a_dry_run_lists_bookings_with_their_refunds_and_changes_nothing(
    staff: Booking, ops: Operations, departure: str
) -> None:
    sold(ops, departure, 3)
    with nothing_changes(ops.world):
        preview = staff("departures", "cancel", departure, "--dry-run").json
    assert [entry["status"] for entry in preview["data"]] == ["confirmed"] * 3
    assert preview["refunds"] == [{"amount_minor": 2 * 89000, "currency": "NOK"}]
    assert (preview["dry_run"], preview["departure"]["status"]) == (True, "open")
    report = staff("departures", "cancel", departure, "--yes").json
    assert report["refunds"] == preview["refunds"]


def test_an_interruption_reports_its_progress_and_the_same_command_completes_it(
    staff: Booking, ops: Operations, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_batches, "BATCH", 2)
    booking_ids = sold(ops, departure, 5)
    batches = iter((None, KeyboardInterrupt()))
    cancel_batch = cancel_batches._cancel_batch

    def interrupted(*arguments: Any) -> Any:
        if error := next(batches):
            raise error
        return cancel_batch(*arguments)

    monkeypatch.setattr(cancel_batches, "_cancel_batch", interrupted)
    stopped = staff("departures", "cancel", departure, "--reason-code", "agent", "--yes")
    assert stopped.refusal == (ExitCode.INTERRUPTED, "interrupted")
    assert "2 of 5 bookings" in stopped.error["message"]
    assert Counter(row["status"] for row in ops.world.rows(tables.bookings)) == {"cancelled": 2, "confirmed": 3}
    assert staff("departures", "show", departure).json["is_being_cancelled"] is True
    monkeypatch.setattr(cancel_batches, "_cancel_batch", cancel_batch)
    completed = staff(*stopped.error["hint"].split()[1:4], "--yes").json  # with the reason of the first command
    assert (len(completed["data"]), completed["departure"]["is_being_cancelled"]) == (3, False)
    check_all_cancelled_once(ops.world, departure, booking_ids, "agent")


# Who comes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def full(ops: Operations, departure: str) -> str:
    """Return a departure with a guest who pays on arrival, an unpaid booking and a cancelled one."""
    ops.book(
        departure,
        2,
        customer=guest("grace@example.com", GRACE),
        payment=PaymentMode.PAY_ON_SITE,
        suits=2,
        note="Needs a wheelchair, and arrives late:\nthe train from Bergen is the only one that comes before noon",
    )
    ops.check_out(departure, 1, customer=guest("ada@example.com", "Ada"))
    ops.cancel(ops.book(departure, email="eve@example.com")["id"])
    ops.book(departure, 1, customer=guest("bob@example.com", "Bob"))
    return departure


def test_the_manifest_tells_who_comes(staff: Booking, full: str) -> None:
    manifest = staff("departures", "manifest", full).json
    assert [entry["customer"]["name"] for entry in manifest["data"]] == ["Ada", "Bob", GRACE]
    assert [entry["unpaid"]["amount_minor"] for entry in manifest["data"]] == [89000, 0, 2 * 89000 + 2 * 15000]
    assert manifest["totals"] == {
        "bookings": 3,
        "checked_in": 0,
        "no_shows": 0,
        "guests": {"Adult": 4},
        "add_ons": {"Dry suit": 2},
        "unpaid": [{"amount_minor": 3 * 89000 + 2 * 15000, "currency": "NOK"}],
    }
    assert manifest["departure"]["id"] == full


def test_a_program_gets_a_line_for_each_booking(stored_on_both: Booking, full: str) -> None:
    result = stored_on_both("departures", "manifest", full, "-o", "tsv")
    lines = [line.split("\t") for line in result.out.splitlines()]
    assert [line[0] for line in lines] == ["2", "4", "1"]
    assert lines[2][1:7] == ["confirmed", GRACE, "2 Adult", "2 Dry suit", "2080.00 NOK", "+47 900 00 000"]
    assert "late:\\nthe train" in lines[2][8]
    fields = stored_on_both("departures", "manifest", full, "-o", "tsv", "--fields", "customer.name,unpaid")
    assert fields.out.splitlines()[0] == "Ada\t890.00 NOK"


def test_the_manifest_fits_the_paper(staff: Booking, full: str) -> None:
    manifest = staff("departures", "manifest", full).json
    parts = ("2 Adult", "2 Dry suit", "2,080.00 NOK", "+47 900 00 000, grace@example.com", "pending: not paid yet")
    for width in (60, 80, 120):
        lines = list(manifests.lines(manifest, width))
        assert max(map(len, lines)) <= width
        text = " ".join(" ".join(lines).split())
        assert [part for part in (*parts, "Arlington", "comes before noon") if part not in text] == []
        assert "eve@example.com" not in text


def test_the_manifest_is_written_as_csv_and_as_a_page(stored_on_both: Booking, ops: Operations, full: str) -> None:
    evil = ops.book(full, customer=guest("eve@example.com", '=1+1 "Eve" <b>'), note="@SUM(1)\nsecond line")
    ops.act(lambda tx, actor: bookings.check_in(tx, actor, evil["id"]))
    header, *lines = csv.reader(stored_on_both("departures", "manifest", full, "--csv").out.splitlines(keepends=True))
    assert header[:3] == ["booking_number", "status", "name"]
    assert [line[2] for line in lines] == ['\'=1+1 "Eve" <b>', "Ada", "Bob", GRACE]
    assert lines[0][8] == "'@SUM(1)\nsecond line"
    assert lines[3][3:7] == ["2 Adult", "2 Dry suit", "2080.00 NOK", "+47 900 00 000"]
    assert [bool(line[9]) for line in lines] == [True, False, False, False]
    page = stored_on_both("departures", "manifest", full, "--html").out
    assert page.startswith("<!doctype html>")
    assert "&lt;b&gt;" in page
    assert '=1+1 "Eve"' not in page
    assert page.count("✓") == 1
    assert "x =1+1" in stored_on_both("departures", "manifest", full, "-o", "table").out
    for argv in (("--csv", "--html"), ("--csv", "-o", "json"), ("--html", "--fields", "note")):
        assert stored_on_both("departures", "manifest", full, *argv).code == ExitCode.USAGE


@pytest.mark.parametrize("beginning", "=+-@＝＋－＠\t\r\n")
def test_a_text_that_begins_as_a_formula_is_a_text_in_csv(beginning: str) -> None:
    note = f"{beginning}HYPERLINK(A1)"
    booking = {"booking_number": 1, "status": "confirmed", "customer": dict.fromkeys(("name", "phone", "email"))}
    booking |= {"guests": [], "add_ons": [], "unpaid": {"amount_minor": 0, "currency": "NOK"}, "note": note}
    written = io.StringIO(manifests.as_csv({"data": [booking]}), newline="")
    assert next(csv.DictReader(written))["note"] == f"'{note}"


def test_staff_checks_in_by_number_in_the_database(staff: Booking, full: str) -> None:
    present = staff("bookings", "check-in", "4", "--org", "fjord-tours").json
    assert present["checked_in_at"] == present["updated_at"]
    absent = staff("bookings", "no-show", "4", "--org", "fjord-tours").json
    assert (absent["checked_in_at"], bool(absent["no_show_at"])) == (None, True)
    assert staff("departures", "manifest", full).json["totals"]["no_shows"] == 1
    assert staff("bookings", "no-show", "4", "--org", "fjord-tours", "--undo").json["no_show_at"] is None
    assert staff("bookings", "check-in", "2", "--org", "fjord-tours").error["code"] == "conflict"  # pending
    entries = staff("audit", "list", "--org", "fjord-tours").json["data"]
    assert [entry["action"] for entry in entries[:2]] == ["bookings.no-show", "bookings.no-show"]


def test_an_empty_departure_says_so(stored_on_both: Booking, departure: str) -> None:
    result = stored_on_both("departures", "manifest", departure, "-o", "table")
    assert result.out.splitlines()[-1] == "There are no guests."
    assert SECRET not in result.out
