"""Over HTTP a booking is found by the API's filters, and by name in a search that is bounded and says so."""

from typing import Any

import pytest
from support.serving.commands import Booking
from support.world.operations import Operations, guest
from support.world.world import World

from booking_cli.client import api_bookings
from booking_cli.framework.exit_codes import ExitCode


@pytest.fixture
def ops(shop: World) -> Operations:
    return Operations(shop)


@pytest.fixture
def booked(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return seven bookings in pages of two: even numbers are Ada's, the others Eve's; the fourth has another
    departure."""
    monkeypatch.setattr(api_bookings, "PAGE", 2)
    departure, other = (ops.world.departure(ops.world.experience()) for _ in range(2))
    bookings = []
    for number in range(1, 8):
        person = guest("Ada@example.com", "Ada Lovelace") if number % 2 == 0 else guest("eve@example.com", "Ève")
        bookings.append(ops.book(other if number == 4 else departure, customer=person))
        ops.world.clock.advance(1_000_000)
    return bookings


def numbers(result: Any) -> list[int]:
    return [entry["booking_number"] for entry in result.json["data"]]


def find(booking: Booking, *argv: str) -> Any:
    return booking("bookings", "list", *argv, "-o", "json")


def test_bookings_are_found_by_number_address_name_and_departure(booking: Booking, booked: list[Any]) -> None:
    assert [numbers(find(booking, "--number", str(number))) for number in (1, 4, 7, 8)] == [[1], [4], [7], []]
    assert numbers(find(booking, "--email", "ada@EXAMPLE.com")) == [6, 4, 2]
    assert numbers(find(booking, "--name", "eve", "--order", "asc")) == [1, 3, 5, 7]
    assert numbers(find(booking, "--departure", booked[3]["departure"]["id"])) == [4]
    assert numbers(find(booking, "--email", "ada@example.com", "--number", "3")) == []
    assert find(booking, "--email", "nobody@example.com").code == ExitCode.OK
    assert find(booking, "--name", " ").code == ExitCode.USAGE


def test_as_many_are_shown_as_are_wanted(booking: Booking, booked: list[Any]) -> None:
    for by in (("--email", "ada@example.com"), ("--name", "Lovelace")):
        result = find(booking, *by, "--limit", "2")
        assert (numbers(result), result.json["has_more"]) == ([6, 4], True)
        assert numbers(find(booking, *by, "--all")) == [6, 4, 2]


def test_a_search_by_name_says_that_it_reads_the_list(booking: Booking, booked: list[Any]) -> None:
    result = booking("bookings", "list", "--name", "ada", "--number", "2")
    assert "The API has no such filter: searching its list." in result.err
    assert booked[1]["id"] in result.out
    assert "searching" not in booking("bookings", "list", "--number", "2").err


def test_the_walk_ends_at_its_bound_and_says_how_to_go_on(
    booking: Booking, booked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_bookings, "PAGES", 2)
    result = find(booking, "--name", "ada")
    assert (result.code, numbers(result)) == (ExitCode.PARTIAL, [6, 4])
    assert result.error["message"] == "Searched 4 bookings, and there are more."
    rest = find(booking, "--name", "ada", "--starting-after", result.json["next_cursor"])
    assert (rest.code, numbers(rest)) == (ExitCode.OK, [2])
    assert result.json["next_cursor"] in result.error["hint"]
    assert numbers(find(booking, "--name", "ada", "--all")) == [6, 4, 2]


def test_a_number_names_a_booking_that_is_shown_or_cancelled(booking: Booking, booked: list[Any]) -> None:
    assert booking("bookings", "get", "4", "-o", "json").json["id"] == booked[3]["id"]
    unknown = booking("bookings", "get", "8", "-o", "json")
    assert (unknown.code, unknown.error["message"]) == (ExitCode.NOT_FOUND, "There is no booking 8.")
    cancelled = booking("bookings", "cancel", "4", "--yes", "-o", "json").json
    assert (cancelled["id"], cancelled["status"]) == (booked[3]["id"], "cancelled")


def test_a_dry_run_shows_the_booking_and_what_would_be_asked(booking: Booking, booked: list[Any]) -> None:
    result = booking("bookings", "cancel", "7", "--refund", "none", "--reason", "ill", "--dry-run", "-o", "json").json
    assert (result["status"], result["dry_run"]) == ("confirmed", True)
    path = f"/api/v1/bookings/{booked[6]['id']}/cancel"
    assert result["request"] == {"method": "POST", "path": path, "body": {"refund": "none", "reason": "ill"}}
    assert "Nothing was sent" in booking("bookings", "cancel", "7", "--dry-run").err
    assert booking("bookings", "get", "7", "-o", "json").json["status"] == "confirmed"
    booking("bookings", "cancel", "7", "--yes")
    assert "It is cancelled already" in booking("bookings", "cancel", "7", "--dry-run").err


def test_what_only_the_operator_may_say_is_refused(booking: Booking, booked: list[Any]) -> None:
    refused = booking("bookings", "cancel", "7", "--refund", "full", "--yes", "-o", "json")
    assert (refused.code, refused.error["hint"]) == (ExitCode.USAGE, "add --org")
