"""The export of a guest's data: all of it, and nothing of other guests."""

import json
from typing import Any

import pytest
from sqlalchemy import Text
from support.api.api import Api
from support.world.hooks import Hooks
from support.world.operations import Operations

from booking_core.base.errors import NotFound
from booking_core.customers import guest_data
from booking_core.customers.erasures.store import columns
from booking_core.db import tables
from booking_core.db.tables import Personal
from booking_core.models.events import EventType

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
    found = export(api, customer_id)
    assert found["customer"] == api.get(f"/customers/{customer_id}").json()
    (booking,) = found["bookings"]
    assert (booking["guest_email"], booking["note"]) == (ADA["email"], "Canary note")
    assert booking["cancel_note"] == "Canary reason"
    types = ["customer.created", "booking.created", "booking.confirmed", "booking.cancelled"]
    assert [each["type"] for each in found["events"]] == types
    assert [each["kind"] for each in found["timeline"]][:1] == ["booking_created"]
    assert [each["response_excerpt"] for each in found["delivery_attempts"]] == ["said"]
    text = json.dumps(found)
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
    found = export(api, customer["id"])
    (card,) = found["gift_cards"]
    assert card["recipient_email"] == "ada@CANARY.example"
    assert not [name for name in card if name.startswith("code_") and name != "code_last4"]
    assert [each["recipient"] for each in found["mails"]] == ["ada@CANARY.example"]


def test_every_text_column_of_a_personal_table_is_classified() -> None:
    """A new table has to be looked at here, and a new column has to be erased."""
    unclassified = {
        f"{table.name}.{column.name}"
        for table in TABLES
        for column in table.c
        if isinstance(column.type, Text) and "personal" not in column.info
    }
    assert {each for each in unclassified if each.partition(".")[0] not in tables.WITHOUT_PERSONAL_DATA} == set()
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
