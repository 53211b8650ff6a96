"""Creating and cancelling bookings over HTTP (API v1 sections 3 and 4)."""

import pytest
from support.api import Api, booking_body, error_of
from support.operations import as_published
from support.world import DAY, HOUR, World

from booking_core.db import tables
from booking_core.models.bookings import Booking
from booking_core.models.scopes import Scope


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=12)


def seats_available(api: Api, departure_id: str) -> int:
    page = api.get("/availability", **{"from": "2026-11-20"}).json()
    (found,) = [entry for entry in page["data"] if entry["id"] == departure_id]
    return int(found["seats_available"])


def test_a_booking_is_confirmed_numbered_priced_and_published(api: Api, departure: str) -> None:
    response = api.book(departure, count=2, note="Window seats\nplease", add_ons=[{"id": "drysuit", "count": 2}])
    assert response.status_code == 201
    booking = response.json()
    assert Booking.model_validate(booking).to_json().keys() == booking.keys()
    assert (booking["booking_number"], booking["status"], booking["source"]) == (1, "confirmed", "api")
    assert booking["totals"]["total"] == {"amount_minor": 2 * 89000 + 2 * 15000, "currency": "NOK"}
    assert booking["payment"] == {"method": "pay_on_site", "source": "on_site", "status": "unpaid"}
    assert booking["created_at"] == "2026-11-21T13:00:00+01:00"
    assert booking["departure"]["starts_at"] == "2026-11-23T13:00:00+01:00"
    assert booking["departure"]["ends_at"] == "2026-11-23T15:30:00+01:00"
    assert booking["note"] == "Window seats\nplease"
    assert api.event_types() == ["customer.created", "booking.created", "booking.confirmed"]
    assert seats_available(api, departure) == 10
    assert api.world.examine() == []


def test_get_returns_the_created_booking(api: Api, departure: str) -> None:
    created = api.book(departure).json()
    assert created["cancellation"]["allowed"] is True
    assert api.get(f"/bookings/{created['id']}").json() == created
    assert api.get("/bookings").json()["data"] == [created]
    reader = api.with_scopes(Scope.BOOKINGS_READ)
    assert reader.get(f"/bookings/{created['id']}").json() == {**created, "manage_url": None}


@pytest.mark.parametrize(
    ("mode", "method", "source", "status"),
    [
        ("pay_on_site", "pay_on_site", "on_site", "unpaid"),
        ("invoice", "invoice", "external", "unpaid"),
        ("external_paid", "external_paid", "external", "paid"),
    ],
)
def test_each_payment_mode_is_shown_as_decided(
    api: Api, departure: str, mode: str, method: str, source: str, status: str
) -> None:
    booking = api.book(departure, payment=mode).json()
    assert booking["payment"] == {"method": method, "source": source, "status": status}
    assert world_row(api, booking["id"])["invoice_due"] == (mode == "invoice")


def world_row(api: Api, booking_id: str) -> dict[str, object]:
    return api.world.row(tables.bookings, booking_id)


def test_the_seats_of_a_tier_count(api: Api, departure: str) -> None:
    family = [{"tier_id": "family", "count": 2}, {"tier_id": "adult", "count": 3}]
    assert api.post("/bookings", booking_body(departure, guests=family)).status_code == 201
    refused = api.book(departure, count=2)
    assert error_of(refused) == (409, "insufficient_capacity")
    assert refused.json()["seats_available"] == 1


def test_a_hold_counts_until_it_expires(api: Api, departure: str) -> None:
    world = api.world
    world.insert(tables.holds, departure_id=departure, seats=11, expires_at=world.clock() + HOUR, created_at=0)
    assert api.book(departure, count=2).json()["seats_available"] == 1
    world.clock.advance(HOUR)
    assert api.book(departure, count=12).status_code == 201


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"status": "cancelled"}, "departure_cancelled"),
        ({"status": "closed"}, "departure_closed"),
        ({"starts_at": 1}, "departure_started"),
    ],
)
def test_a_closed_departure_is_refused_with_the_reason(
    api: Api, world: World, columns: dict[str, object], reason: str
) -> None:
    departure = world.departure(world.experience(), **columns)
    response = api.book(departure)
    assert error_of(response) == (409, "conflict")
    assert response.json()["details"][0]["reason"] == reason


def test_booking_closes_the_lead_time_before_the_start(api: Api, world: World) -> None:
    departure = world.departure(world.experience(hours_before_booking_closes=47))
    assert api.book(departure).status_code == 201
    world.clock.advance(HOUR)
    assert api.book(departure).json()["details"][0]["reason"] == "departure_closed"


def test_an_unknown_tier_or_add_on_is_named(api: Api, departure: str) -> None:
    tier = api.post("/bookings", booking_body(departure, guests=[{"tier_id": "senior", "count": 1}]))
    assert error_of(tier) == (422, "validation_failed")
    assert tier.json()["details"][0]["field"] == "guests.0.tier_id"
    add_on = api.book(departure, add_ons=[{"id": "drysuit", "count": 1}, {"id": "yacht", "count": 1}])
    assert add_on.json()["details"][0]["field"] == "add_ons.1.id"


def test_add_ons_need_their_app(api: Api, departure: str) -> None:
    api.world.change(tables.organizations, api.world.org, add_ons_app=False)
    refused = api.book(departure, add_ons=[{"id": "drysuit", "count": 1}])
    assert error_of(refused) == (422, "validation_failed")
    assert refused.json()["details"][0]["reason"] == "add_ons_app_disabled"
    assert api.book(departure, add_ons=[]).status_code == 201


def test_a_known_customer_is_reused_and_not_overwritten(api: Api, departure: str) -> None:
    api.book(departure)
    other_case = {"name": "Somebody Else", "email": "ADA@example.com"}
    booking = api.book(departure, customer=other_case).json()
    assert booking["customer"] == {"name": "Somebody Else", "email": "ADA@example.com", "phone": None}
    customers = api.get("/customers").json()["data"]
    assert [customer["name"] for customer in customers] == ["Ada Lovelace"]
    assert api.event_types().count("customer.created") == 1


def test_cancelling_releases_the_seats_and_publishes_one_event(api: Api, departure: str) -> None:
    booking = api.book(departure, count=5).json()
    first = api.cancel(booking["id"], reason="The guest is ill")
    assert first.status_code == 200
    assert first.json()["status"] == "cancelled"
    assert first.json()["manage_url"] == booking["manage_url"]
    again = api.cancel(booking["id"])
    assert (again.status_code, again.json()) == (200, first.json())
    assert seats_available(api, departure) == 12
    assert api.event_types()[-1] == "booking.cancelled"
    assert api.event_types().count("booking.cancelled") == 1
    event = api.get("/events").json()["data"][0]
    assert event["data"]["reason"] == "api"
    assert event["data"]["object"] == as_published(first.json())
    assert api.world.examine() == []


def test_cancelling_needs_no_body(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    response = api.call("POST", f"/bookings/{booking['id']}/cancel", headers={"Idempotency-Key": "no-body-1"})
    assert response.status_code == 200


def test_a_past_departure_can_be_cancelled(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    api.world.clock.advance(10 * DAY)
    cancelled = api.cancel(booking["id"])
    assert cancelled.json()["status"] == "cancelled"
    assert cancelled.json()["manage_url"] is None


def test_mails_are_enqueued_and_the_timeline_is_written_as_requested(api: Api, departure: str) -> None:
    api.book(departure)
    api.book(departure, send_confirmation_email=False, notify_staff=False)
    kinds = sorted(effect["kind"] for effect in api.world.rows(tables.effects))
    assert kinds == ["booking_confirmation_mail", "staff_booking_mail"]
    assert len(api.world.rows(tables.timeline)) == 2


def test_an_organization_that_switched_the_notice_off_gets_none(api: Api, departure: str) -> None:
    api.world.change(tables.organizations, api.world.org, notify_staff=False)
    api.book(departure, notify_staff=True)
    assert [effect["kind"] for effect in api.world.rows(tables.effects)] == ["booking_confirmation_mail"]


def test_a_booking_of_nothing_to_pay_is_free(api: Api, world: World) -> None:
    tier = '[{"id":"adult","name":"Adult","price":{"amount_minor":0,"currency":"NOK"},"seats_per_unit":1}]'
    booking = api.book(world.departure(world.experience(price_tiers=tier))).json()
    assert booking["payment"] == {"method": "free", "source": "external", "status": "paid"}


def test_the_on_site_fee_is_accrued(api: Api, departure: str) -> None:
    api.world.change(tables.organizations, api.world.org, on_site_fee_percent=2.5)
    on_site, external = api.book(departure).json(), api.book(departure, payment="external_paid").json()
    assert world_row(api, on_site["id"])["on_site_fee_minor"] == 2225
    assert world_row(api, external["id"])["on_site_fee_minor"] == 0
