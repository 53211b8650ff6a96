"""Creating and cancelling bookings over HTTP (API v1 sections 3 and 4)."""

import pytest
from support.api.api import Api, booking_body, error_of
from support.world.operations import Operations, as_published
from support.world.world import DAY

from booking_core.models.bookings import Booking
from booking_core.models.scopes import Scope


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


@pytest.mark.parametrize(
    ("flags", "mails"),
    [
        ({}, ["booking_confirmation_mail", "staff_booking_mail"]),
        ({"send_confirmation_email": False}, ["staff_booking_mail"]),
        ({"notify_staff": False}, ["booking_confirmation_mail"]),
        ({"send_confirmation_email": False, "notify_staff": False}, []),
    ],
    ids=["default", "no-confirmation", "no-staff", "neither"],
)
def test_a_flag_suppresses_one_mail(api: Api, departure: str, flags: dict[str, bool], mails: list[str]) -> None:
    booking = api.book(departure, **flags).json()
    assert sorted(Operations(api.world).outbox_kinds(booking["id"])) == mails


def test_get_returns_the_created_booking(api: Api, departure: str) -> None:
    created = api.book(departure).json()
    assert created["cancellation"]["allowed"] is True
    assert api.get(f"/bookings/{created['id']}").json() == created
    assert api.get("/bookings").json()["data"] == [created]
    reader = api.with_scopes(Scope.BOOKINGS_READ)
    assert reader.get(f"/bookings/{created['id']}").json() == {**created, "manage_url": None}


def test_the_seats_of_a_tier_count(api: Api, departure: str) -> None:
    family = [{"tier_id": "family", "count": 2}, {"tier_id": "adult", "count": 3}]
    assert api.post("/bookings", booking_body(departure, guests=family)).status_code == 201
    refused = api.book(departure, count=2)
    assert error_of(refused) == (409, "insufficient_capacity")
    assert refused.json()["seats_available"] == 1


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


def test_a_past_departure_can_be_cancelled(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    api.world.clock.advance(10 * DAY)
    cancelled = api.cancel(booking["id"])
    assert cancelled.json()["status"] == "cancelled"
    assert cancelled.json()["manage_url"] is None
