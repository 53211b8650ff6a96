"""Commands that work over HTTP and in the database: a key chooses the API, --org or no key the database."""

from pathlib import Path

import pytest
from support.serving.commands import Booking, Environment
from support.world.operations import Operations
from support.world.world import DAY, World

from booking_cli.framework.exit_codes import ExitCode

UNKNOWN = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
GUEST = ("--name", "Ada", "--email", "ada@example.com")
ONE_BOOKING: tuple[tuple[str, ...], ...] = (
    *(("bookings", verb) for verb in ("get", "check-in", "no-show")),
    ("bookings", "cancel", "--yes"),
    ("bookings", "change-party", "--guest", "adult=1"),
    ("bookings", "set-guest", "--name", "Ada"),
)


def of(command: tuple[str, ...], reference: str, *argv: str) -> tuple[str, ...]:
    return (*command[:2], reference, *command[2:], *argv)


@pytest.fixture
def number(shop: World) -> str:
    """Return the number of a booking of the organization."""
    return str(Operations(shop).book(shop.departure(shop.experience()))["booking_number"])


def is_in_the_database(err: str) -> bool:
    return "database: " in err


@pytest.mark.parametrize("command", ONE_BOOKING, ids=" ".join)
def test_a_key_chooses_the_api_and_org_the_database(
    booking: Booking, shop: World, number: str, command: tuple[str, ...]
) -> None:
    over_http = booking(*of(command, number))
    assert (over_http.code, is_in_the_database(over_http.err)) == (ExitCode.OK, False), over_http.err
    in_database = booking(*of(command, number, "--org", shop.organization.slug))
    assert (in_database.code, is_in_the_database(in_database.err)) == (ExitCode.OK, True), in_database.err


def test_a_number_moves_a_booking_with_a_key_or_with_org(booking: Booking, shop: World, number: str) -> None:
    target = shop.departure(shop.experience(), starts_at=shop.clock() + 3 * DAY)
    moved = booking("bookings", "reschedule", number, "--departure", target, "-o", "json").json
    assert (moved["departure"]["id"], moved["change"]["money"]["settlement"]) == (target, "price_kept")
    again = booking("bookings", "reschedule", number, "--departure", target, "--org", shop.organization.slug)
    assert (again.code, is_in_the_database(again.err)) == (ExitCode.OK, True)


def test_a_departure_and_its_guests_are_shown_by_either_half(booking: Booking, shop: World) -> None:
    departure = shop.departure(shop.experience())
    for verb in ("get", "manifest"):
        over_http = booking("departures", verb, departure)
        assert (over_http.code, is_in_the_database(over_http.err)) == (ExitCode.OK, False)
        in_database = booking("departures", verb, departure, "--org", shop.organization.slug)
        assert (in_database.code, is_in_the_database(in_database.err)) == (ExitCode.OK, True)


@pytest.mark.parametrize("command", ONE_BOOKING, ids=" ".join)
def test_without_a_key_a_configured_database_is_used(
    booking: Booking, shop: World, number: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.delenv("BOOKING_API_KEY")
    booked = Operations(shop).book(shop.departure(shop.experience()))
    result = booking(*of(command, booked["id"]))
    assert (result.code, is_in_the_database(result.err)) == (ExitCode.OK, True), result.err
    refused = booking(*of(command, number, "-o", "json"))
    assert (refused.code, refused.error["hint"]) == (ExitCode.USAGE, "pass --org, or the booking's id")


def test_with_neither_a_key_nor_a_database_one_is_not_logged_in(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_BASE_URL", "http://127.0.0.1:1")
    for command in (*ONE_BOOKING, ("bookings", "reschedule", "--departure", UNKNOWN), ("departures", "manifest")):
        assert booking(*of(command, "170", "-o", "json")).refusal == (ExitCode.AUTH, "not_logged_in")


def test_an_overridden_profile_is_noted_once(booking: Booking, shop: World, number: str, tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / "config.toml"
    file.write_text('current = "shop"\n[profiles.shop]\nbase_url = "https://booking.example.com"\n')
    file.chmod(0o600)
    assert booking("bookings", "get", number).err.count("note: BOOKING_BASE_URL overrides") == 1


def test_a_hold_is_made_and_released_by_either_half(booking: Booking, shop: World) -> None:
    departure = shop.departure(shop.experience())
    for org in ((), ("--org", shop.organization.slug)):
        hold = booking("holds", "create", "--departure", departure, "--guest", "adult=2", *org, "-o", "json").json
        assert (hold["status"], hold["seats"], hold["totals"]["total"]["currency"]) == ("live", 2, "NOK")
        released = booking("holds", "delete", hold["id"], *org, "-o", "json").json
        assert released == hold | {"status": "released"}
    late = booking("holds", "create", "--departure", departure, "--seats", "1", "--for", "24h")
    assert late.code == ExitCode.USAGE
    held_for_a_day = booking("holds", "create", "--departure", departure, "--seats", "1", "--for", "24h", *org)
    assert (held_for_a_day.code, is_in_the_database(held_for_a_day.err)) == (ExitCode.OK, True)


def test_the_storefront_uses_the_database_also_with_a_key(booking: Booking, shop: World) -> None:
    departure = shop.departure(shop.experience())
    hold = booking("storefront", "hold", "--org", shop.organization.slug, "--departure", departure, "--seats", "1")
    assert (hold.code, is_in_the_database(hold.err)) == (ExitCode.OK, True), hold.err
    released = booking("storefront", "release", hold.out.split("\t")[1].split("\n")[0])
    assert (released.code, is_in_the_database(released.err)) == (ExitCode.OK, True), released.err


@pytest.mark.parametrize(
    "command",
    [
        ("bookings", "list"),
        ("bookings", "create", "--departure", UNKNOWN, "--guest", "adult=1", *GUEST, "--payment", "invoice"),
        ("departures", "list"),
    ],
    ids=" ".join,
)
def test_a_list_in_the_database_needs_org(
    booking: Booking, shop: World, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.delenv("BOOKING_API_KEY")
    refused = booking(*command)
    assert (refused.code, "hint: pass --org SLUG" in refused.err) == (ExitCode.USAGE, True), refused.err
