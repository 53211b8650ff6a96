"""A customer is one e-mail address: created once, told of once, reused ever after."""

import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from support.plans import Explained
from support.world import DAY, NOON, World

from booking_core import customers
from booking_core.base import tokens
from booking_core.base.context import Caller
from booking_core.base.errors import Malformed, NotFound
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.models.customers import Customer, CustomerCreate
from booking_core.models.events import EventType
from booking_core.models.pages import Order, Page
from booking_core.records import events
from booking_core.records.events import NewEvent

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
    found: list[dict[str, Any]] = orjson.loads(
        orjson.dumps(world.database.read(lambda tx: events.find(tx, world.caller(), page)))
    )["data"]
    return found


def names(page: dict[str, Any]) -> list[str]:
    return [item["name"] for item in page["data"]]


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


@pytest.mark.parametrize("email", ["kari@example.com", "KARI@EXAMPLE.COM", "Kari@Example.com"])
def test_an_address_in_any_case_is_the_customer_it_belongs_to(world: World, email: str) -> None:
    shown, _ = create(world)
    again = CustomerCreate(email=email, name="Someone Else", phone="1", email_subscription=True)
    assert create(world, again) == (shown, False)
    assert len(feed(world)) == 1


def test_two_spellings_of_one_letter_are_one_address(world: World) -> None:
    composed, _ = create(world, CustomerCreate(email="j\u00f8rgen.\u00e5s@example.com", name="Jørgen"))
    assert create(world, CustomerCreate(email="J\u00d8RGEN.A\u030as@example.com", name="Jørgen")) == (composed, False)


def test_consent_is_recorded_when_it_is_given(world: World) -> None:
    shown, _ = create(world, CustomerCreate(email="ola@example.com", name="Ola", email_subscription=True))
    assert shown["email_subscription"] is True
    assert get(world, shown["id"])["email_subscription"] is True


def test_a_blank_phone_is_no_phone(world: World) -> None:
    shown, _ = create(world, CustomerCreate(email="ola@example.com", name="Ola", phone=""))
    assert shown["phone"] is None


def test_the_same_address_in_two_organizations_is_two_customers(world: World, new_world: Callable[..., World]) -> None:
    other = new_world()
    (mine, _), (theirs, created) = create(world), create(other)
    assert created
    assert mine["id"] != theirs["id"]


def test_many_who_create_one_address_at_once_get_one_customer_and_one_event(world: World) -> None:
    barrier = threading.Barrier(8)
    outcomes: list[tuple[dict[str, Any], bool]] = []

    def work() -> None:
        barrier.wait()
        outcomes.append(create(world))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created for _, created in outcomes) == [False] * 7 + [True]
    assert len({shown["id"] for shown, _ in outcomes}) == 1
    assert len(find(world)["data"]) == 1
    assert len(feed(world)) == 1


def test_another_room_adds_a_customer_to_its_own_writes(world: World) -> None:
    def work(tx: Tx) -> bytes:
        customer_id = tokens.new_id()
        shown = customers.add(
            tx,
            world.organization,
            customer_id=customer_id,
            email="Ola@example.com",
            name="Ola",
            phone=None,
            email_subscription=False,
            at=world.clock(),
        )
        event = NewEvent(EventType.CUSTOMER_CREATED, customer_id, shown)
        events.publish(tx, world.organization, [event], at=world.clock())
        return shown

    shown = orjson.loads(world.database.write(work))
    assert get(world, shown["id"]) == shown
    assert create(world, CustomerCreate(email="ola@EXAMPLE.com", name="Ola")) == (shown, False)


# Reading ---------------------------------------------------------------------------------------------------------


def test_another_organizations_customer_does_not_exist(world: World, new_world: Callable[..., World]) -> None:
    shown, _ = create(new_world())
    with pytest.raises(NotFound):
        get(world, shown["id"])
    with pytest.raises(NotFound):
        get(world, tokens.new_id())
    assert find(world, email=shown["email"])["data"] == []


def test_a_page_has_the_shape_of_the_model(world: World) -> None:
    for i in range(3):
        create(world, person(i))
        world.clock.advance(DAY)
    page = find(world)
    assert Page[Customer].model_validate(page).to_json() == page
    assert names(page) == ["Guest 2", "Guest 1", "Guest 0"]
    assert names(find(world, PageRequest(order=Order.ASC))) == ["Guest 0", "Guest 1", "Guest 2"]


def test_customers_of_one_instant_are_each_seen_once(world: World) -> None:
    for i in range(9):
        create(world, person(i))
    seen, page = [], find(world, PageRequest(limit=2))
    while page["has_more"]:
        seen += names(page)
        page = find(world, PageRequest(limit=2, starting_after=page["next_cursor"]))
    seen += names(page)
    assert sorted(seen) == [f"Guest {i}" for i in range(9)]
    assert page["next_cursor"] is None


def test_the_email_filter_finds_the_one_customer_in_any_case(world: World) -> None:
    shown, _ = create(world)
    create(world, person(1))
    assert find(world, email="KARI@example.COM")["data"] == [shown]
    assert find(world, email="kari@example.co")["data"] == []


def test_a_cursor_opens_only_the_list_it_was_issued_for(world: World, new_world: Callable[..., World]) -> None:
    other = new_world()
    for each in (world, other):
        create(each, person(1))
        create(each, person(2))
    cursor = find(world, PageRequest(limit=1))["next_cursor"]
    for each, order, filters in [
        (other, Order.DESC, {}),
        (world, Order.ASC, {}),
        (world, Order.DESC, {"email": "guest1@example.com"}),
    ]:
        with pytest.raises(Malformed):
            find(each, PageRequest(order=order, starting_after=cursor), **filters)


def test_reading_takes_one_statement(world: World, statements: list[str]) -> None:
    shown, _ = create(world)
    statements.clear()
    get(world, shown["id"])
    assert len(statements) == 1
    find(world)
    assert len(statements) == 2


def test_creating_takes_a_look_a_lock_and_a_write(world: World, statements: list[str]) -> None:
    create(world)
    assert len(statements) == (4 if world.database.is_sqlite else 3)
    statements.clear()
    create(world)
    assert len(statements) == 1


def test_lists_and_look_ups_use_their_index_among_many_customers(world: World) -> None:
    with world.database.writing() as tx:
        for i in range(20_000):
            tx.insert(
                tables.customers,
                organization_id=world.org,
                id=tokens.new_id(),
                email=f"g{i}@example.com",
                email_key=f"g{i}@example.com",
                name="Guest",
                tags="[]",
                email_subscription=False,
                created_at=NOON + i,
                updated_at=NOON + i,
            )
    with world.database.reading() as tx:
        if not world.database.is_sqlite:
            tx.run(Statement(text("ANALYZE customers")))
        explained = Explained(world.database, tx._connection)
        for ask, index in questions(explained, world.caller()):
            ask()
            assert index in explained.plan
            assert "Seq Scan" not in explained.plan
            assert "SCAN customers" not in explained.plan
            assert "TEMP B-TREE" not in explained.plan


def questions(tx: Tx, caller: Caller) -> list[tuple[Callable[[], Any], str]]:
    page = customers.find(tx, caller, PageRequest())
    asc = customers.find(tx, caller, PageRequest(order=Order.ASC))
    by_date, by_email = "customers_organization_id_created_at_id", "email_key"
    return [
        (lambda: customers.find(tx, caller, PageRequest()), by_date),
        (lambda: customers.find(tx, caller, PageRequest(starting_after=page["next_cursor"])), by_date),
        (lambda: customers.find(tx, caller, PageRequest(order=Order.ASC, starting_after=asc["next_cursor"])), by_date),
        (lambda: customers.find(tx, caller, PageRequest(), email="g77@example.com"), by_email),
        (lambda: customers.create(tx, caller, CustomerCreate(email="g77@example.com", name="G")), by_email),
    ]
