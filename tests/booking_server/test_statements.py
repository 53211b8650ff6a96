"""The number of statements of a request: statements, and locks held across round trips, are the cost of a service."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.api.api import Api, booking_body
from support.world.resources import LISTINGS, Listing
from support.world.world import NOON, World

from booking_core import bookings
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Database
from booking_core.models.bookings import BookingCreate
from booking_core.organizations import keys
from booking_core.records.idempotency import Answer, Once


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=100)


@pytest.fixture
def cost(api: Api, statements: list[str]) -> Callable[..., int]:
    """Return a function that counts the statements of a request, which has to succeed."""

    def count(act: Callable[..., Any], *arguments: Any, **keywords: Any) -> int:
        statements.clear()
        response = act(*arguments, **keywords)
        assert response.status_code in (200, 201), response.text
        return len(statements)

    return count


def test_asking_who_one_is_takes_the_look_up_of_the_key(api: Api, cost: Callable[..., int]) -> None:
    assert cost(api.get, "/me") == 1


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_a_page_or_a_row_takes_two_statements(
    api: Api, cost: Callable[..., int], listing: Listing, shared_database_url: str
) -> None:
    """The look-up of the key, and one more."""
    first, *_ = listing.filled(api.world, shared_database_url, [NOON, NOON + 1, NOON + 2])
    assert cost(api.get, listing.path) == cost(api.get, f"{listing.path}/{first}") == 2
    page = api.get(listing.path, limit=2, order="asc").json()
    assert cost(api.get, listing.path, limit=100, order="asc", starting_after=page["next_cursor"]) == 2


def test_availability_takes_two_however_wide(api: Api, departure: str, cost: Callable[..., int]) -> None:
    assert cost(api.get, "/availability", **{"from": "2026-11-20"}) == 2
    assert cost(api.get, "/availability", **{"from": "2026-11-20", "to": "2027-02-20"}) == 2
    assert cost(api.get, "/departures", date="2026-11-23") == cost(api.get, f"/departures/{departure}") == 2


def test_a_booking_takes_six_on_postgresql(api: Api, departure: str, cost: Callable[..., int]) -> None:
    """The key; the idempotency keys, the departures and all else that is read; the numbers; everything written."""
    expected = 6 if not api.world.database.is_sqlite else 11
    assert cost(api.book, departure, add_ons=[{"id": "drysuit", "count": 1}]) == expected
    assert cost(api.book, departure) <= expected
    assert cost(api.book, departure, key="a-replayed-key") <= expected
    assert cost(api.book, departure, key="a-replayed-key") <= 5  # nothing is written


def test_32_bookings_take_what_one_takes(world: World, statements: list[str]) -> None:
    """Of several departures, new customers and known ones, some refused."""
    experience = world.experience()
    departures = [world.departure(experience, starts_at=world.clock() + n * 10**9, seats=3) for n in range(1, 9)]
    texts = [world.key() for _ in range(4)]
    statements.clear()
    callers = world.database.read(lambda tx: keys.identify_many(tx, texts * 8, world.installation))
    creates = []
    for number, caller in enumerate(callers):
        guest = {"name": "A guest", "email": f"guest{number % 20}@example.com"}
        body = booking_body(departures[number % 8], customer=guest, payment="invoice")
        request = BookingCreate.model_validate_json(orjson.dumps(body))
        creates.append(CreateRequest(caller, request, Once(f"batch-{number:04}", "x"), lambda _: Answer(409, b"{}")))  # type: ignore[arg-type]
    answers = world.database.write(lambda tx: bookings.create_many(tx, creates))
    assert [answer.status for answer in answers if isinstance(answer, Answer)] == [201] * 24 + [409] * 8
    assert len(statements) == (6 if not world.database.is_sqlite else 11)


def test_a_cancellation_takes_eight_on_postgresql(api: Api, departure: str, cost: Callable[..., int]) -> None:
    """The key; the idempotency key twice, held and looked up; the booking twice, held and read; its departure; the
    numbers; everything written."""
    booking, other = (api.book(departure).json() for _ in range(2))
    assert cost(api.cancel, booking["id"]) == (8 if not api.world.database.is_sqlite else 12)
    assert cost(api.cancel, booking["id"]) <= 6  # it is cancelled already
    assert cost(api.cancel, other["id"], key="cancel-replayed") <= 12
    assert cost(api.cancel, other["id"], key="cancel-replayed") <= 3


def test_a_customer_takes_six_on_postgresql(api: Api, cost: Callable[..., int]) -> None:
    customer = {"name": "Grace Hopper", "email": "grace@example.com"}
    assert cost(api.post, "/customers", customer) == (6 if not api.world.database.is_sqlite else 7)
    assert cost(api.post, "/customers", customer) <= 5  # of a known address
    assert cost(api.call, "POST", "/customers", json=customer) == 2  # and without a key


def test_a_refusal_before_the_operation_takes_the_look_up_of_the_key(
    api: Api, departure: str, statements: list[str], database: Database
) -> None:
    statements.clear()
    assert api.book(departure, count=0).status_code == 400
    assert len(statements) == 1
    statements.clear()
    assert api.client.get("/api/v1/me").status_code == 401
    assert statements == []
