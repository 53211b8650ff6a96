"""`booking bookings` in the database, for staff, agencies and assistants; and what both modes share."""

from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.serving.commands import Booking
from support.world.kayaks import ORG
from support.world.operations import Operations, guest
from support.world.world import DAY, World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.db import tables
from booking_core.models.bookings import Booking as WireBooking
from booking_core.models.bookings import PaymentMode

ADA = ("--guest", "adult=2", "--name", "Ada Lovelace", "--email", "ada@example.com")


@pytest.fixture
def staff(stored_on_both: Booking) -> Booking:
    """Return a function that runs `booking` on that database with JSON output."""
    return lambda *argv: stored_on_both("bookings", *argv, "-o", "json")


def create(staff: Booking, departure: str, source: str = "admin", *argv: str) -> Any:
    arguments = ("--departure", departure, *ADA, "--payment", "pay_on_site", *argv)
    return staff("create", *ORG, "--source", source, *arguments)


# Creating --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["admin", "agency", "ai"])
def test_a_booking_says_who_made_it(staff: Booking, ops: Operations, departure: str, source: str) -> None:
    result = create(staff, departure, source, "--add-on", "drysuit=1", "--note", "Late", "--phone", "+47 900")
    assert result.code == 0, result.err
    assert WireBooking.model_validate_json(result.out).source == source
    booked = result.json
    assert (booked["status"], booked["note"], booked["manage_url"]) == ("confirmed", "Late", None)
    assert booked["totals"]["total"]["amount_minor"] == 2 * 89000 + 15000
    assert ops.event_types(booked["id"]) == ["booking.created", "booking.confirmed"]
    assert {event["data"]["object"].get("source", source) for event in ops.events()} == {source}
    assert "booking_confirmation_mail" in ops.outbox_kinds(booked["id"])
    assert ops.world.examine() == []


def test_the_same_command_with_the_same_key_books_once(
    staff: Booking, stored_on_both: Booking, world: World, departure: str
) -> None:
    first = create(staff, departure, "agency", "--idempotency-key", "order-1017")
    again = create(staff, departure, "agency", "--idempotency-key", "order-1017")
    assert (again.code, again.json) == (0, first.json)
    assert len(world.rows(tables.bookings)) == 1
    arguments = ("--departure", departure, *ADA, "--payment", "pay_on_site", "--idempotency-key", "order-1017")
    result = stored_on_both("bookings", "create", *ORG, "--source", "agency", *arguments)
    assert "nothing was booked now" in result.err
    for source, argv in (("admin", ()), ("agency", ("--note", "another body"))):
        other = create(staff, departure, source, *argv, "--idempotency-key", "order-1017")
        assert other.refusal == (ExitCode.INVALID, "idempotency_key_reused")


def test_a_key_whose_booking_was_refused_may_be_used_again(staff: Booking, ops: Operations, departure: str) -> None:
    ops.set_seats(departure, 1)
    with nothing_changes(ops.world):
        refused = create(staff, departure, "admin", "--idempotency-key", "order-1017")
    assert refused.refusal == (ExitCode.CONFLICT, "insufficient_capacity")
    ops.set_seats(departure, 2)
    assert create(staff, departure, "admin", "--idempotency-key", "order-1017").code == 0


def test_what_is_typed_is_judged_as_the_api_judges_it(staff: Booking, world: World, departure: str) -> None:
    with nothing_changes(world):
        refused = create(staff, departure, "admin", "--email", "nowhere", "--phone", "1" * 201)
        assert refused.refusal == (ExitCode.INVALID, "validation_failed")
        assert [detail["field"] for detail in refused.error["details"]] == ["customer.email", "customer.phone"]
        assert create(staff, "no-id").code == ExitCode.INVALID
        assert create(staff, "00000000-0000-4000-8000-000000000000").code == ExitCode.NOT_FOUND
        assert create(staff, departure, "admin", "--guest", "nobody=1").code == ExitCode.INVALID


def test_the_organization_and_the_source_go_together(staff: Booking, world: World, departure: str) -> None:
    arguments = ("--departure", departure, *ADA, "--payment", "invoice")
    for alone in (ORG, ("--source", "admin")):
        refused = staff("create", *alone, *arguments)
        assert (refused.code, refused.error["hint"]) == (ExitCode.USAGE, "leave out both to use HTTP")
    assert staff("create", *ORG, "--source", "online", *arguments).code == ExitCode.USAGE


# Finding ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def bookings(ops: Operations, departure: str) -> list[dict[str, Any]]:
    """Return three bookings: the second on another departure, the third cancelled."""
    other = ops.world.departure(ops.world.experience())
    ada, eve = guest("ada@example.com", "Ada Lovelace"), guest("eve@example.com", "Ève Ångström")
    bookings = [ops.book(at, customer=person) for at, person in ((departure, ada), (other, eve), (departure, ada))]
    ops.cancel(bookings[2]["id"])
    return bookings


@pytest.mark.parametrize(
    ("argv", "numbers"),
    [
        ((), [3, 2, 1]),
        (("--number", "2"), [2]),
        (("--number", "4"), []),
        (("--email", "ADA@example.com"), [3, 1]),
        (("--email", "ada@example.com", "--status", "confirmed"), [1]),
        (("--name", "angstrom"), [2]),
        (("--name", "lovelace", "--order", "asc"), [1, 3]),
        (("--name", "ada", "--limit", "1"), [3]),
        (("--departure-from", "today"), [3, 2, 1]),
        (("--departure", "DEPARTURE"), [3, 1]),
        (("--updated-since", "1h"), [3, 2, 1]),
    ],
)
def test_bookings_are_found_in_the_database(
    staff: Booking, departure: str, bookings: list[dict[str, Any]], argv: tuple[str, ...], numbers: list[int]
) -> None:
    result = staff("list", *ORG, *(word.replace("DEPARTURE", departure.upper()) for word in argv))
    assert [entry["booking_number"] for entry in result.json["data"]] == numbers
    assert all(WireBooking.model_validate(entry) for entry in result.json["data"])


def test_a_list_goes_on_behind_its_cursor(staff: Booking, bookings: list[dict[str, Any]]) -> None:
    first = staff("list", *ORG, "--name", "a", "--limit", "2").json
    assert first["has_more"]
    rest = staff("list", *ORG, "--name", "a", "--starting-after", first["next_cursor"]).json
    assert [entry["booking_number"] for entry in (*first["data"], *rest["data"])] == [3, 2, 1]
    assert staff("list", *ORG, "--name", "b", "--starting-after", first["next_cursor"]).code == ExitCode.INVALID


def test_all_of_many_pages_are_shown(
    staff: Booking, ops: Operations, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("booking_cli.operator.staff_bookings._PAGE_SIZE_MAX", 2)
    for _ in range(5):
        ops.book(departure)
    assert len(staff("list", *ORG, "--all").json["data"]) == 5
    assert len(staff("list", *ORG, "--name", "ada", "--limit", "3").json["data"]) == 3


def test_a_booking_is_shown_by_its_number(staff: Booking, bookings: list[dict[str, Any]]) -> None:
    for name, booking in (("2", bookings[1]), (bookings[0]["id"], bookings[0])):
        details = staff("get", name, *ORG).json
        assert details == booking | {"cancellation": details["cancellation"]}
    refused = staff("get", "4", *ORG)
    assert (refused.code, refused.error["message"]) == (ExitCode.NOT_FOUND, "There is no booking '4' of fjord-tours.")


# Cancelling ------------------------------------------------------------------------------------------------------


def paid(ops: Operations, *, starts_in: int = 2 * DAY) -> dict[str, Any]:
    """Return a booking that was paid by card."""
    departure = ops.world.departure(ops.world.experience(), starts_at=ops.world.clock() + starts_in)
    return ops.pay(ops.check_out(departure)["id"])


@pytest.mark.parametrize("code", ["admin", "agent"])
def test_a_cancellation_by_staff_or_agent_reports_money(stored_on_both: Booking, ops: Operations, code: str) -> None:
    booked = paid(ops)
    result = stored_on_both("bookings", "cancel", booked["id"], "--reason-code", code, "--reason", "Storm", "--yes")
    assert result.code == 0, result.err
    assert "The refund of 890.00 NOK is queued" in result.err
    row = ops.booking(booked["id"])
    assert (row["status"], row["cancel_reason"], row["cancel_note"]) == ("cancelled", code, "Storm")
    assert ops.events()[-1]["data"]["reason"] == code
    with nothing_changes(ops.world, leaving_out={"audit"}):
        again = stored_on_both("bookings", "cancel", booked["id"], "--reason-code", code, "--yes")
    assert "It was cancelled before" in again.err


@pytest.mark.parametrize(("refund", "amount"), [("auto", 44500), ("none", None), ("full", 89000)])
def test_staff_decides_what_goes_back_after_a_dry_run_without_effect(
    staff: Booking, ops: Operations, refund: str, amount: int | None
) -> None:
    booked = paid(ops, starts_in=DAY // 24)
    cancel = ("cancel", str(booked["booking_number"]), *ORG, "--refund", refund)
    with nothing_changes(ops.world):
        preview = staff(*cancel, "--dry-run").json
    assert (preview["status"], preview["dry_run"]) == ("cancelled", True)
    report = staff(*cancel, "--yes").json
    assert preview["refund"] == (report["refund"] and report["refund"] | {"refund_id": None})
    assert (report["refund"] and report["refund"]["amount"]["amount_minor"]) == amount
    assert [row["amount_minor"] for row in ops.world.rows(tables.refunds)] == ([amount] if amount else [])
    assert ops.world.examine() == []


def test_a_number_alone_names_no_booking_of_any_organization(staff: Booking, ops: Operations, departure: str) -> None:
    ops.book(departure)
    for argv in (("cancel", "1", "--reason-code", "admin", "--yes"), ("confirm", "1")):
        refused = staff(*argv)
        assert (refused.code, refused.error["hint"]) == (ExitCode.USAGE, "pass --org, or the booking's id")
    assert staff("confirm", "1", *ORG).json["status"] == "confirmed"


def test_a_reason_longer_than_the_api_takes_is_refused(staff: Booking, ops: Operations, departure: str) -> None:
    booked = ops.book(departure)
    with nothing_changes(ops.world):
        refused = staff("cancel", booked["id"], "--reason-code", "admin", "--reason", "x" * 201, "--yes")
    assert (refused.code, refused.error["details"][0]["field"]) == (ExitCode.INVALID, "reason")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (PaymentMode.PAY_ON_SITE, "No payment was received, so nothing is returned."),
        (PaymentMode.EXTERNAL_PAID, "It was paid outside this service"),
    ],
)
def test_what_no_card_paid_is_reported_too(
    stored_on_both: Booking, ops: Operations, departure: str, mode: PaymentMode, message: str
) -> None:
    ops.book(departure, payment=mode)
    assert message in stored_on_both("bookings", "cancel", "1", *ORG, "--yes").err


# Moving ----------------------------------------------------------------------------------------------------------


def test_a_move_is_tried_before_it_is_made(
    staff: Booking, stored_on_both: Booking, ops: Operations, departure: str
) -> None:
    booked = ops.book(departure, 2)
    target = ops.world.departure(ops.world.experience(), seats=3, starts_at=ops.world.clock() + 3 * DAY)
    move = ("reschedule", "1", *ORG, "--departure", target)
    with nothing_changes(ops.world):
        tried = staff(*move, "--dry-run").json
        result = stored_on_both("bookings", *move, "--dry-run")
    assert (tried["departure"]["id"], tried["previous_departure"]["id"]) == (target, departure)
    assert (tried["seats_available"], tried["dry_run"]) == (1, True)
    assert "would have 1 seat left" in result.err
    assert "Nothing was written" in result.err
    ops.set_seats(target, 1)
    with nothing_changes(ops.world):
        assert staff(*move, "--dry-run").error["code"] == "insufficient_capacity"
    ops.set_seats(target, 3)
    moved = staff(*move).json
    changed = {name: tried[name] for name in ("departure", "experience", "cancellation")}
    assert moved == booked | changed | {"updated_at": moved["updated_at"]}


# Late money ------------------------------------------------------------------------------------------------------


def test_a_payment_of_a_cancelled_booking_says_what_it_did(
    stored_on_both: Booking, ops: Operations, departure: str
) -> None:
    booked = ops.check_out(departure)
    ops.cancel(booked["id"])
    result = stored_on_both("storefront", "pay", booked["id"], "--payment-intent", "pi_1")
    assert "stays cancelled" in result.err
    assert "The refund of 890.00 NOK is queued" in result.err
    again = stored_on_both("storefront", "pay", booked["id"], "--payment-intent", "pi_1", "-o", "json").json
    assert (again["status"], again["refund"]["amount"]["amount_minor"]) == ("cancelled", 89000)
    other = ops.check_out(departure)
    paid_in_time = stored_on_both("storefront", "pay", other["id"], "-q")
    assert (paid_in_time.code, paid_in_time.err) == (0, "")
