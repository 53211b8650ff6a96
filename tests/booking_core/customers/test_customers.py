"""A customer is one e-mail address: created once, told of once, reused ever after, changed and exported by staff."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest
from sqlalchemy import Text
from support.api.api import Api
from support.api.refusals import nothing_changes
from support.serving.threads import together
from support.world.hooks import Hooks
from support.world.operations import Operations
from support.world.world import World

from booking_core import customers
from booking_core.base.clock import MINUTE
from booking_core.base.errors import NotFound
from booking_core.customers import guest_data
from booking_core.customers.erasures.store import columns
from booking_core.db import tables
from booking_core.db.paging import PageRequest
from booking_core.db.tables import Personal
from booking_core.models.customers import Customer, CustomerCreate
from booking_core.models.events import EventType
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
    customer, created = create(world)
    assert created
    assert Customer.model_validate(customer).to_json() == customer
    assert list(customer) == list(Customer.model_fields)
    assert customer == {
        "id": customer["id"],
        "name": "Kari Nordmann",
        "email": "Kari@Example.com",
        "phone": "+47 900 00 000",
        "tags": [],
        "email_subscription": False,
        "created_at": "2026-11-21T13:00:00+01:00",
    }
    assert get(world, customer["id"]) == customer


def test_the_event_of_a_new_customer_shows_it_as_the_response_does(world: World) -> None:
    customer, _ = create(world)
    (event,) = feed(world)
    assert event["type"] == "customer.created"
    assert event["data"] == {"object": customer}
    assert (event["resource_type"], event["resource_id"]) == ("customer", customer["id"])


COMPOSED = "j\u00f8rgen.\u00e5s@example.com"


@pytest.mark.parametrize(
    ("email", "again"),
    [
        *((KARI.email, again) for again in ("kari@example.com", "KARI@EXAMPLE.COM", "Kari@Example.com")),
        pytest.param(COMPOSED, "J\u00d8RGEN.A\u030as@example.com", id="two spellings of a letter"),
    ],
)
def test_an_address_in_any_case_is_the_customer_it_belongs_to(world: World, email: str, again: str) -> None:
    customer, _ = create(world, CustomerCreate(email=email, name="Kari Nordmann"))
    other = CustomerCreate(email=again, name="Someone Else", phone="1", email_subscription=True)
    assert create(world, other) == (customer, False)
    assert len(feed(world)) == 1


def test_consent_has_its_time_and_a_blank_phone_is_no_phone(world: World) -> None:
    customer, _ = create(world, CustomerCreate(email="ola@example.com", name="Ola", email_subscription=True, phone=""))
    assert (customer["email_subscription"], customer["phone"]) == (True, None)
    assert get(world, customer["id"])["email_subscription"] is True


def test_concurrent_creations_of_one_address_make_one_customer_and_one_event(world: World) -> None:
    outcomes = together(*[partial(create, world)] * 8)
    assert sorted(created for _, created in outcomes) == [False] * 7 + [True]
    assert len({customer["id"] for customer, _ in outcomes}) == 1
    assert len(find(world)["data"]) == 1
    assert len(feed(world)) == 1


# Reading ---------------------------------------------------------------------------------------------------------


def test_the_email_filter_finds_the_one_customer_in_any_case(world: World) -> None:
    customer, _ = create(world)
    create(world, person(1))
    assert find(world, email="KARI@example.COM")["data"] == [customer]
    assert find(world, email="kari@example.co")["data"] == []


def test_creating_takes_a_look_a_lock_and_a_write(world: World, statements: list[str]) -> None:
    create(world)
    assert len(statements) == (4 if world.database.is_sqlite else 3)
    statements.clear()
    create(world)
    assert len(statements) == 1


# Changes -------------------------------------------------------------------------------------------------------------


UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def ada(ops: Operations) -> str:
    """Ada, who has a booking."""
    booking = ops.book(ops.world.departure(ops.world.experience()))
    return str(ops.booking(booking["id"])["customer_id"])


def test_only_given_fields_of_the_customer_change_and_none_of_the_bookings(
    ops: Operations, world: World, ada: str
) -> None:
    world.clock.advance(MINUTE)
    body = ops.update_customer(ada, name="  Ada King ", email="countess@example.com")
    row = world.row(tables.customers, ada)
    assert (body["name"], body["email"], body["phone"]) == ("Ada King", "countess@example.com", "+47 900 00 000")
    assert (row["name"], row["email_key"], row["updated_at"]) == ("Ada King", "countess@example.com", world.clock())
    changes = {"name": "Ada Lovelace", "email": "ada@example.com"}
    assert ops.events()[-1]["data"] == {"object": body, "changes": changes}
    assert ops.event_types(ada) == ["customer.created", "customer.updated"]
    assert ops.noted(None) == ["customer_updated"]
    (booking,) = world.rows(tables.bookings)
    assert (booking["guest_name"], booking["guest_email"]) == ("Ada Lovelace", "ada@example.com")
    assert ops.update_customer(ada, phone="")["phone"] is None
    assert world.examine() == []


def test_equal_values_are_no_change(ops: Operations, world: World, ada: str) -> None:
    with nothing_changes(world):
        ops.update_customer(ada)
        ops.update_customer(ada, name="Ada Lovelace", email="ada@example.com", phone="+47 900 00 000")


def test_another_case_of_the_address_is_a_change_of_the_same_customer(ops: Operations, world: World, ada: str) -> None:
    assert ops.update_customer(ada, email="ADA@example.com")["email"] == "ADA@example.com"
    assert world.row(tables.customers, ada)["email_key"] == "ada@example.com"
    assert ops.event_types(ada) == ["customer.created", "customer.updated"]


def test_an_address_that_another_customer_has_is_refused(ops: Operations, world: World, ada: str) -> None:
    ops.book(world.departure(world.experience()), email="grace@example.com")
    with nothing_changes(world):
        refusal = ops.refusal(ops.update_customer, ada, email="GRACE@example.com")
    assert refusal == ("conflict", "email_taken")


@pytest.mark.parametrize(
    "changes",
    [{"name": "  "}, {"name": "x" * 201}, {"name": "a\nb"}, {"email": "nobody"}, {"email": ""}, {"phone": "1" * 201}],
)
def test_a_change_is_validated_like_a_create(ops: Operations, world: World, ada: str, changes: dict[str, Any]) -> None:
    with nothing_changes(world):
        assert ops.refusal(ops.update_customer, ada, **changes)[0] == "validation_failed"


def test_an_unknown_customer_or_one_of_another_organization_is_not_found(
    ops: Operations, ada: str, new_world: Callable[..., World]
) -> None:
    stranger = Operations(new_world())
    with nothing_changes(ops.world):
        assert stranger.refusal(stranger.update_customer, ada, name="Mallory")[0] == "not_found"
        assert ops.refusal(ops.update_customer, UNKNOWN, name="Nobody")[0] == "not_found"


# The data of a guest -------------------------------------------------------------------------------------------------


ADA = {"name": "Ada Canary", "email": "Ada@canary.example", "phone": "+47 11111111"}
EVE = {"name": "Eve Other", "email": "eve@other.example", "phone": None}


TABLES = tuple(tables.metadata.tables.values())


def export(api: Api, customer_id: str) -> dict[str, Any]:
    return Operations(api.world).act(lambda tx, actor: guest_data.export(tx, actor, customer_id))


def test_an_export_has_all_rows_about_the_guest_and_none_about_another(api: Api) -> None:
    hooks = Hooks(api.world)
    hooks.endpoint(EventType.BOOKING_CREATED)
    departure = api.world.departure(api.world.experience())
    booked = api.book(departure, customer=ADA, note="Canary note").json()
    api.book(departure, customer=EVE)
    api.cancel(booked["id"], reason="Canary reason")
    hooks.fail(*hooks.claim())
    customer_id = api.get("/customers", email=ADA["email"]).json()["data"][0]["id"]
    personal_data = export(api, customer_id)
    assert personal_data["customer"] == api.get(f"/customers/{customer_id}").json()
    (booking,) = personal_data["bookings"]
    assert (booking["guest_email"], booking["note"]) == (ADA["email"], "Canary note")
    assert booking["cancel_note"] == "Canary reason"
    types = ["customer.created", "booking.created", "booking.confirmed", "booking.cancelled"]
    assert [event["type"] for event in personal_data["events"]] == types
    assert [entry["kind"] for entry in personal_data["timeline"]][:1] == ["booking_created"]
    assert [attempt["response_excerpt"] for attempt in personal_data["delivery_attempts"]] == ["said"]
    text = json.dumps(personal_data)
    assert "eve@other.example" not in text
    assert "manage/" not in text


def test_gift_cards_without_their_codes_and_their_mails_are_found_by_address(api: Api) -> None:
    world, now = api.world, api.world.clock()
    customer = api.post("/customers", {"email": ADA["email"], "name": ADA["name"]}).json()
    for number, address in enumerate(("ada@CANARY.example", "eve@other.example")):
        Operations(world).issue(500, recipient_email=address)
        mail = {"effect_key": f"gift_card_mail:{number}", "kind": "gift_card_mail", "recipient": address}
        sent = {"message_id": f"{number}@x", "message": "", "status": "sent", "sent_at": now, "completed_at": now}
        world.insert(tables.mails, **mail, **sent, created_at=now)
    personal_data = export(api, customer["id"])
    (card,) = personal_data["gift_cards"]
    assert card["recipient_email"] == "ada@CANARY.example"
    assert not [name for name in card if name.startswith("code_") and name != "code_last4"]
    assert [mail["recipient"] for mail in personal_data["mails"]] == ["ada@CANARY.example"]


def test_every_text_column_of_a_personal_table_is_classified() -> None:
    """A new table has to be looked at here, and a new column has to be erased."""
    unclassified = {
        f"{table.name}.{column.name}"
        for table in TABLES
        for column in table.c
        if isinstance(column.type, Text) and "personal" not in column.info
    }
    assert {column for column in unclassified if column.partition(".")[0] not in tables.WITHOUT_PERSONAL_DATA} == set()
    personal = {table.name for table in TABLES if columns(table, *set(Personal) - {Personal.NONE})}
    assert personal | tables.WITHOUT_PERSONAL_DATA == {table.name for table in TABLES}
    assert personal & tables.WITHOUT_PERSONAL_DATA == set()


def test_every_table_with_personal_data_is_exported_but_for_what_repeats_it() -> None:
    exported = {table.name for table, _ in guest_data._PARTS.values()}
    repeating = {"idempotency", "erasures"}
    personal = {table.name for table in TABLES} - tables.WITHOUT_PERSONAL_DATA
    assert personal - exported == repeating | {"customers"}


def test_the_customer_of_another_organization_is_not_found(api: Api) -> None:
    with pytest.raises(NotFound):
        export(api, "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07")
