"""The export of a guest's data: all of it, and nothing of other guests."""

import json

import pytest
from support.api import Api
from support.hooks import Hooks

from booking_core.base.context import Actor
from booking_core.base.errors import NotFound
from booking_core.customers import guest_data
from booking_core.db import tables
from booking_core.models.events import EventType

ADA = {"name": "Ada Canary", "email": "Ada@canary.example", "phone": "+47 11111111"}
EVE = {"name": "Eve Other", "email": "eve@other.example", "phone": None}


def actor_of(api: Api) -> Actor:
    world = api.world
    return Actor(installation=world.installation, organization=world.organization, at=world.clock())


def test_an_export_has_all_rows_about_the_guest_and_none_about_another(api: Api) -> None:
    hooks = Hooks(api.world)
    hooks.endpoint(EventType.BOOKING_CREATED)
    departure = api.world.departure(api.world.experience())
    booked = api.book(departure, customer=ADA, note="Canary note").json()
    api.book(departure, customer=EVE)
    api.cancel(booked["id"], reason="Canary reason")
    hooks.fail(*hooks.claim())
    customer_id = api.get("/customers", email=ADA["email"]).json()["data"][0]["id"]
    found = api.world.database.read(lambda tx: guest_data.export(tx, actor_of(api), customer_id))
    assert found["customer"] == api.get(f"/customers/{customer_id}").json()
    ((booking,),) = (found["bookings"],)
    assert (booking["guest_email"], booking["note"], booking["cancel_note"]) == (
        ADA["email"],
        "Canary note",
        "Canary reason",
    )
    assert [each["type"] for each in found["events"]] == [
        "customer.created",
        "booking.created",
        "booking.confirmed",
        "booking.cancelled",
    ]
    assert [each["kind"] for each in found["timeline"]][:1] == ["booking_created"]
    assert [each["response_excerpt"] for each in found["delivery_attempts"]] == ["said"]
    text = json.dumps(found)
    assert "eve@other.example" not in text
    assert "manage/" not in text


def test_gift_cards_are_found_by_address_and_shown_without_their_codes(api: Api) -> None:
    customer = api.post("/customers", {"email": ADA["email"], "name": ADA["name"]}).json()
    amounts = {"currency": "NOK", "initial_minor": 500, "balance_minor": 500}
    now = api.world.clock()
    for address, code in (("ada@CANARY.example", "KAYAK-7KQ2"), ("eve@other.example", "KAYAK-7KQ3")):
        columns = api.world.code_columns(code) | amounts | {"recipient_email": address}
        api.world.insert(tables.gift_cards, **columns, created_at=now, updated_at=now)
    found = api.world.database.read(lambda tx: guest_data.export(tx, actor_of(api), customer["id"]))
    (card,) = found["gift_cards"]
    assert card["recipient_email"] == "ada@CANARY.example"
    assert not [name for name in card if name.startswith("code_") and name != "code_last4"]


def test_mails_of_gift_cards_are_found_by_address(api: Api) -> None:
    world, now = api.world, api.world.clock()
    customer = api.post("/customers", {"email": ADA["email"], "name": ADA["name"]}).json()
    for number, address in enumerate(("ada@CANARY.example", "eve@other.example")):
        mail = {"effect_key": f"gift_card_mail:{number}", "kind": "gift_card_mail", "recipient": address}
        sent = {"message_id": f"{number}@x", "message": "", "status": "sent", "sent_at": now, "completed_at": now}
        world.insert(tables.mails, **mail, **sent, created_at=now)
    found = world.database.read(lambda tx: guest_data.export(tx, actor_of(api), customer["id"]))
    assert [each["recipient"] for each in found["mails"]] == ["ada@CANARY.example"]


def test_every_table_with_a_guest_is_exported_or_known_not_to_be() -> None:
    """A new table has to be looked at here."""
    without_guests = {
        *(
            "organizations",
            "counters",
            "api_keys",
            "experiences",
            "departures",
            "holds",
            "parked_work",
            "link_keys",
            "stripe_accounts",
        ),
        *("webhook_endpoints", "webhook_cursors", "webhook_subscriptions", "webhook_ranges", "webhook_recoveries"),
        *("webhook_secrets", "webhook_leases", "retention_clock", "audit", "workers", "erasures"),
    }
    repeating = {"idempotency", "effects"}
    exported = {part.table.name for part in (guest_data._BOOKINGS, guest_data._TIMELINE, guest_data._GIFT_CARDS)}
    exported |= {part.table.name for part in (guest_data._EVENTS, guest_data._DELIVERIES, guest_data._ATTEMPTS)}
    exported |= {part.table.name for part in guest_data._OF_BOOKINGS}
    assert set(tables.metadata.tables) == exported | without_guests | repeating | {"customers"}


def test_the_customer_of_another_organization_is_not_found(api: Api) -> None:
    with pytest.raises(NotFound):
        api.world.database.read(lambda tx: guest_data.export(tx, actor_of(api), "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"))
