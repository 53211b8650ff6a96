"""The seller of examples/channel_manager: an order is sold once, even if the seller is killed at any point."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.api.api import Api
from support.world.world import DAY, NOON, World

from booking_core.base.clock import MINUTE
from booking_core.db import tables
from booking_sdk import BookingClient
from booking_sdk.testing import make_event

pytestmark = pytest.mark.one_database
SCRIPT = Path(__file__).parents[2] / "examples" / "channel_manager" / "sell.py"
LINES_MAX = 150
ADA: Any = {"name": "Ada Lovelace", "email": "ada@example.com"}


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("channel_manager_sell", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


sell = _load()


class Killed(BaseException):
    """The end of the process."""


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=3)


def seller(api: Api) -> Any:
    client = BookingClient(api.key, base_url="http://testserver", http_client=api.client)
    return sell.Seller(client, "acme")


def order(departure: str, number: str = "A-1", count: int = 2) -> Any:
    return sell.Order(number, departure, [{"tier_id": "adult", "count": count}], ADA)


def seats_available(api: Api, departure: str) -> int:
    return int(api.get(f"/departures/{departure}").json()["seats_available"])


def test_an_order_is_quoted_held_and_booked(api: Api, departure: str) -> None:
    selling, new_order = seller(api), order(departure)
    quote, hold = selling.offer(new_order)
    assert (quote.totals.total.amount_minor, hold.seats, seats_available(api, departure)) == (2 * 89000, 2, 1)
    booking = selling.book(new_order, hold)
    assert (booking.external_reference, booking.metadata) == ("acme:A-1", {"channel": "acme", "order": "A-1"})
    assert api.get(f"/holds/{hold.id}").json()["booking_id"] == booking.id
    assert seats_available(api, departure) == 1
    assert selling.sell(new_order).id == booking.id
    assert api.world.examine() == []


def test_an_order_that_is_not_paid_gives_its_seats_back(api: Api, departure: str) -> None:
    selling = seller(api)
    _, hold = selling.offer(order(departure))
    selling.withdraw(hold)
    assert seats_available(api, departure) == 3


def test_an_order_that_is_paid_late_is_booked_while_there_are_seats(api: Api, departure: str) -> None:
    selling, first, second = seller(api), order(departure), order(departure, "A-2")
    _, late = selling.offer(first)
    api.world.clock.advance(15 * MINUTE)
    booking = selling.book(first, late)
    assert (booking.status, seats_available(api, departure)) == ("confirmed", 1)
    assert selling.book(first, late).id == booking.id
    with pytest.raises(sell.Refused, match="only 1 seats"):
        selling.offer(second)
    with pytest.raises(sell.Refused, match="no such price tier"):
        selling.offer(sell.Order("A-3", departure, [{"tier_id": "senior", "count": 1}], ADA))


def test_a_sold_order_is_moved_once_and_the_calendar_has_the_seats(api: Api, departure: str) -> None:
    selling, new_order = seller(api), order(departure)
    experience = api.world.row(tables.departures, departure)["experience_id"]
    other = api.world.departure(experience, seats=2, starts_at=NOON + 7 * DAY)
    booking = selling.sell(new_order)
    moved = [selling.move(new_order, other) for _ in range(2)]
    assert {(result.id, result.departure.id) for result in moved} == {(booking.id, other)}
    assert (seats_available(api, departure), seats_available(api, other)) == (3, 0)
    full = order(departure, "A-2", count=3)
    selling.sell(full)
    with pytest.raises(sell.Refused, match="Not enough seats"):
        selling.move(full, other)
    fake = make_event("departure.updated")
    selling.notice(fake)
    assert selling.calendar == {fake.data.object.id: fake.data.object.seats_available}


@pytest.mark.parametrize("step", ["quote", "hold", "book"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_seller_that_is_killed_sells_the_order_once(
    api: Api, departure: str, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    selling, new_order = seller(api), order(departure, count=3)
    resource, verb = {
        "quote": (selling._client.bookings, "quote"),
        "hold": (selling._client.holds, "create"),
        "book": (selling._client.bookings, "create"),
    }[step]
    with monkeypatch.context() as patched:
        patched.setattr(resource, verb, _killed(getattr(resource, verb), when))
        with pytest.raises(Killed):
            selling.sell(new_order)
    booking = seller(api).sell(new_order)
    assert (booking.status, seats_available(api, departure)) == ("confirmed", 0)
    assert [row["id"] for row in api.get("/bookings").json()["data"]] == [booking.id]
    assert api.world.examine() == []


def _killed(call: Callable[..., Any], when: str) -> Callable[..., Any]:
    def die(*arguments: Any, **keywords: Any) -> Any:
        if when == "after":
            call(*arguments, **keywords)
        raise Killed

    return die


def test_the_example_is_read_in_one_sitting() -> None:
    assert len(SCRIPT.read_text().splitlines()) < LINES_MAX
