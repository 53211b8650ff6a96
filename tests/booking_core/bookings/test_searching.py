"""Staff finds a booking by its number, the guest's name or address, or its departure, in its own organization alone."""

from collections.abc import Callable
from typing import Any

import pytest
from support.world.operations import Operations, guest
from support.world.world import World

from booking_core import bookings
from booking_core.base.clock import SECOND
from booking_core.base.errors import Malformed, NotFound
from booking_core.bookings import Search
from booking_core.bookings.store import lists
from booking_core.db import tables
from booking_core.db.paging import PageRequest
from booking_core.models.bookings import BookingStatus
from booking_core.models.pages import Order


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=50)


def numbers(ops: Operations, page: PageRequest | None = None, **wanted: Any) -> list[int]:
    """Return the numbers of the bookings that are found, on one page."""
    return [each["booking_number"] for each in found(ops, page, **wanted)["data"]]


def found(ops: Operations, page: PageRequest | None = None, **wanted: Any) -> dict[str, Any]:
    request = page or PageRequest()
    return ops.world.database.read(lambda tx: bookings.search(tx, ops.actor, request, Search(**wanted)))


def after_a_second(
    ops: Operations, departure: str, name: str = "Ada", email: str = "ada@example.com"
) -> dict[str, Any]:
    """Create a booking later than those before it: bookings of one instant are in the order of their random ids."""
    ops.world.clock.advance(SECOND)
    return ops.book(departure, customer=guest(email, name))


def test_a_booking_is_found_by_its_number_in_its_own_organization(
    ops: Operations, departure: str, new_world: Callable[..., World]
) -> None:
    made = [ops.book(departure) for _ in range(3)]
    stranger = Operations(new_world())
    stranger.book(stranger.world.departure(stranger.world.experience()))
    assert found(ops, number=2)["data"][0]["id"] == made[1]["id"]
    assert numbers(ops, number=4) == []
    assert numbers(stranger, number=2) == []


def test_a_number_or_an_id_refers_to_a_booking(ops: Operations, departure: str) -> None:
    made = [ops.book(departure) for _ in range(2)]

    def refer(text: str) -> str:
        return ops.world.database.read(lambda tx: bookings.resolve_id(tx, ops.actor.organization, text))

    assert (refer("2"), refer("0002"), refer(made[0]["id"].upper())) == (made[1]["id"], made[1]["id"], made[0]["id"])
    for text in ("3", "-1", "2.0", "two", "", "²", "9" * 18, "9" * 40):
        with pytest.raises(NotFound):
            refer(text)


def test_a_booking_is_found_by_its_guest_s_address_in_any_case(ops: Operations, departure: str) -> None:
    after_a_second(ops, departure, "Ada", "Ada@Example.com")
    after_a_second(ops, departure, "Eve", "eve@example.com")
    after_a_second(ops, departure, "Ada", "ada@example.com")
    assert numbers(ops, email="ADA@example.com ") == [3, 1]
    assert numbers(ops, email="nobody@example.com") == []


def test_an_address_that_was_changed_finds_what_was_booked_under_both(ops: Operations, departure: str) -> None:
    ops.book(departure, email="old@example.com")
    (customer,) = ops.world.rows(tables.customers)
    ops.update_customer(customer["id"], email="new@example.com")
    after_a_second(ops, departure, email="new@example.com")
    assert numbers(ops, email="new@example.com") == [2, 1]
    assert numbers(ops, email="OLD@example.com") == [1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lovelace", [1]),
        ("LOVE ada", [1]),
        ("Lovelace, Ada", [1]),
        ("jose", [2]),
        ("José", [2]),
        ("øyvind", [3]),
        ("strasse", [4]),
        ("nobody", []),
    ],
)
def test_a_booking_is_found_by_words_of_the_guest_s_name(
    ops: Operations, departure: str, name: str, expected: list[int]
) -> None:
    for number, guest_name in enumerate(("Ada Lovelace", "Jose\u0301 Pérez", "ØYVIND Ås", "Straße")):
        after_a_second(ops, departure, guest_name, f"guest{number}@example.com")
    assert numbers(ops, name=name) == expected


def test_a_name_of_blanks_is_refused(ops: Operations) -> None:
    with pytest.raises(Malformed):
        found(ops, name="  ")


def test_conditions_are_met_together(ops: Operations, world: World, departure: str) -> None:
    other = world.departure(world.experience(), seats=5)
    after_a_second(ops, departure)
    after_a_second(ops, other)
    gone = after_a_second(ops, other)
    ops.cancel(gone["id"])
    after_a_second(ops, other, "Eve", "eve@example.com")
    assert numbers(ops, departure_id=other) == [4, 3, 2]
    assert numbers(ops, departure_id=other, status=BookingStatus.CONFIRMED) == [4, 2]
    assert numbers(ops, departure_id=other, status=BookingStatus.CONFIRMED, email="ada@example.com") == [2]
    assert numbers(ops, departure_id=other, status=BookingStatus.CANCELLED, name="ada") == [3]
    assert numbers(ops, number=2, name="eve") == []


@pytest.mark.parametrize("wanted", [{"name": "ada"}, {"email": "ada@example.com"}, {}], ids=["name", "email", "none"])
@pytest.mark.parametrize("order", list(Order))
def test_pages_repeat_and_skip_nothing_also_across_slices(
    ops: Operations, departure: str, wanted: dict[str, str], order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SLICE", 3)
    lists._texts.cache_clear()
    for _ in range(8):  # all at one instant
        ops.book(departure)
    walked, cursor = [], None
    while True:
        page = found(ops, PageRequest(3, order, cursor), **wanted)
        walked += [each["id"] for each in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    lists._texts.cache_clear()
    assert walked == sorted((row["id"] for row in ops.world.rows(tables.bookings)), reverse=order is Order.DESC)


def test_a_cursor_belongs_to_its_search(ops: Operations, departure: str) -> None:
    for _ in range(2):
        ops.book(departure)
    cursor = found(ops, PageRequest(1), name="ada")["next_cursor"]
    for wanted in ({"name": "eve"}, {"name": "ada", "number": 1}, {}):
        with pytest.raises(Malformed):
            found(ops, PageRequest(1, starting_after=cursor), **wanted)
