"""A customer is one e-mail address: created once, told of once, reused ever after."""

from functools import partial
from typing import Any

import orjson
import pytest
from support.serving.threads import together
from support.world.world import World

from booking_core import customers
from booking_core.db.paging import PageRequest
from booking_core.models.customers import Customer, CustomerCreate
from booking_core.models.pages import Order
from booking_core.records import events

KARI = CustomerCreate(email="Kari@Example.com", name="Kari Nordmann", phone="+47 900 00 000")


def create(world: World, request: CustomerCreate = KARI) -> tuple[dict[str, Any], bool]:
    return world.database.write(lambda tx: customers.create(tx, world.caller(), request))


def get(world: World, customer_id: str) -> dict[str, Any]:
    return world.database.read(lambda tx: customers.get(tx, world.caller(), customer_id))


def find(world: World, page: PageRequest = PageRequest(), **filters: Any) -> dict[str, Any]:  # noqa: B008
    return world.database.read(lambda tx: customers.find(tx, world.caller(), page, **filters))


def feed(world: World) -> list[dict[str, Any]]:
    """Return the feed of the organization, oldest first."""
    page = PageRequest(limit=100, order=Order.ASC)
    return orjson.loads(orjson.dumps(world.database.read(lambda tx: events.find(tx, world.caller(), page))))["data"]


def person(number: int) -> CustomerCreate:
    return CustomerCreate(email=f"guest{number}@example.com", name=f"Guest {number}")


# Creating --------------------------------------------------------------------------------------------------------


def test_a_new_customer_has_the_shape_of_the_model(world: World) -> None:
    shown, created = create(world)
    assert created
    assert Customer.model_validate(shown).to_json() == shown
    assert list(shown) == list(Customer.model_fields)
    assert shown == {
        "id": shown["id"],
        "name": "Kari Nordmann",
        "email": "Kari@Example.com",
        "phone": "+47 900 00 000",
        "tags": [],
        "email_subscription": False,
        "created_at": "2026-11-21T13:00:00+01:00",
    }
    assert get(world, shown["id"]) == shown


def test_the_event_of_a_new_customer_shows_it_as_the_response_does(world: World) -> None:
    shown, _ = create(world)
    (event,) = feed(world)
    assert event["type"] == "customer.created"
    assert event["data"] == {"object": shown}
    assert (event["resource_type"], event["resource_id"]) == ("customer", shown["id"])


COMPOSED = "j\u00f8rgen.\u00e5s@example.com"


@pytest.mark.parametrize(
    ("email", "again"),
    [
        *((KARI.email, again) for again in ("kari@example.com", "KARI@EXAMPLE.COM", "Kari@Example.com")),
        pytest.param(COMPOSED, "J\u00d8RGEN.A\u030as@example.com", id="two spellings of a letter"),
    ],
)
def test_an_address_in_any_case_is_the_customer_it_belongs_to(world: World, email: str, again: str) -> None:
    shown, _ = create(world, CustomerCreate(email=email, name="Kari Nordmann"))
    other = CustomerCreate(email=again, name="Someone Else", phone="1", email_subscription=True)
    assert create(world, other) == (shown, False)
    assert len(feed(world)) == 1


def test_consent_has_its_time_and_a_blank_phone_is_no_phone(world: World) -> None:
    shown, _ = create(world, CustomerCreate(email="ola@example.com", name="Ola", email_subscription=True, phone=""))
    assert (shown["email_subscription"], shown["phone"]) == (True, None)
    assert get(world, shown["id"])["email_subscription"] is True


def test_concurrent_creations_of_one_address_make_one_customer_and_one_event(world: World) -> None:
    outcomes = together(*[partial(create, world)] * 8)
    assert sorted(created for _, created in outcomes) == [False] * 7 + [True]
    assert len({shown["id"] for shown, _ in outcomes}) == 1
    assert len(find(world)["data"]) == 1
    assert len(feed(world)) == 1


# Reading ---------------------------------------------------------------------------------------------------------


def test_the_email_filter_finds_the_one_customer_in_any_case(world: World) -> None:
    shown, _ = create(world)
    create(world, person(1))
    assert find(world, email="KARI@example.COM")["data"] == [shown]
    assert find(world, email="kari@example.co")["data"] == []


def test_creating_takes_a_look_a_lock_and_a_write(world: World, statements: list[str]) -> None:
    create(world)
    assert len(statements) == (4 if world.database.is_sqlite else 3)
    statements.clear()
    create(world)
    assert len(statements) == 1
