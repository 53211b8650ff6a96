"""`POST /bookings/quote`: the price, the seats, and each reason why the booking would be refused; nothing is held."""

from typing import Any

import httpx
from support.api.api import Api, booking_body, error_of
from support.api.refusals import nothing_changes
from support.world.world import HOUR, World

from booking_core.db import tables
from booking_core.models.bookings import BookingQuote

SEATS = 5  # of the fixture `departure`


def quote(api: Api, departure_id: str, count: int = 1, **over: Any) -> httpx.Response:
    guests = [{"tier_id": "adult", "count": count}]
    return api.call("POST", "/bookings/quote", json={"experience_date_id": departure_id, "guests": guests, **over})


def reasons(response: httpx.Response) -> list[tuple[str, str | None]]:
    return [(refusal["code"], refusal["reason"]) for refusal in response.json()["refusals"]]


def test_a_quote_has_the_totals_of_the_booking_and_holds_nothing(api: Api, departure: str) -> None:
    family = {"guests": [{"tier_id": "family", "count": 1}], "add_ons": [{"id": "drysuit", "count": 2}]}
    with nothing_changes(api.world):
        body = quote(api, departure, **family).json()
    assert BookingQuote.model_validate(body).to_json() == body
    booking = api.post("/bookings", booking_body(departure, **family)).json()
    for name in ("guests", "add_ons", "totals", "experience", "departure"):
        assert body[name] == booking[name]
    assert (body["allowed"], body["refusals"]) == (True, [])
    assert (body["seats"], body["seats_available"]) == (4, 5)
    assert body["booking_closes_at"] == booking["departure"]["starts_at"]


def test_a_quote_takes_the_body_of_a_booking(api: Api, departure: str) -> None:
    body = booking_body(departure, note="Window seats", metadata={"channel": "acme"}, external_reference="A-1")
    assert api.call("POST", "/bookings/quote", json=body).json()["allowed"] is True
    with_key = api.post("/bookings/quote", body, key="order-00000001")
    assert "Idempotent-Replayed" not in with_key.headers
    assert (with_key.json()["allowed"], with_key.json()["booking_id"]) == (True, None)
    booking = api.post("/bookings", body, key="order-00000001").json()
    again = api.post("/bookings/quote", body, key="order-00000001").json()
    assert (again["allowed"], again["refusals"], again["booking_id"]) == (True, [], booking["id"])
    assert error_of(api.call("POST", "/bookings/quote", json=body | {"guests": []})) == (400, "validation_failed")
    assert error_of(api.call("POST", "/bookings/quote", json={})) == (400, "validation_failed")


def test_every_reason_is_named_and_a_booking_is_refused_with_the_first(api: Api, world: World) -> None:
    departure = world.departure(world.experience(hours_before_booking_closes=100), seats=5)
    api.world.change(tables.departures, departure, status="closed")
    over: dict[str, Any] = {
        "guests": [
            {"tier_id": "adult", "count": 6},
            {"tier_id": "senior", "count": 1},
            {"tier_id": "baby", "count": 1},
        ],
        "add_ons": [{"id": "yacht", "count": 1}],
        "hold_id": "00000000-0000-4000-8000-000000000000",
    }
    response = quote(api, departure, **over)
    body = response.json()
    assert reasons(response) == [
        ("conflict", "departure_closed"),
        ("conflict", "departure_closed"),
        ("not_found", "unknown_hold"),
        ("validation_failed", "unknown_tier"),
        ("validation_failed", "unknown_tier"),
        ("validation_failed", "unknown_add_on"),
        ("insufficient_capacity", None),
    ]
    fields = [refusal["field"] for refusal in body["refusals"]]
    assert fields == [None, None, "hold_id", "guests.1.tier_id", "guests.2.tier_id", "add_ons.0.id", None]
    assert (body["allowed"], body["totals"], body["seats"]) == (False, None, 6)
    assert body["refusals"][-1]["seats_available"] == 5
    booked = api.post("/bookings", booking_body(departure, **over)).json()
    first = body["refusals"][0]
    assert (booked["code"], booked["error"]) == (first["code"], first["message"])


def test_amounts_beyond_64_bits_and_the_add_ons_app_are_reasons_too(api: Api, departure: str) -> None:
    huge = [{"tier_id": "adult", "count": 2**31 - 1}] * 100
    api.world.change(tables.organizations, api.world.org, add_ons_app=False)
    response = quote(api, departure, guests=huge, add_ons=[{"id": "drysuit", "count": 1}])
    assert response.status_code == 200
    assert ("validation_failed", "add_ons_app_disabled") in reasons(response)


def test_only_seats_of_the_own_hold_are_available(api: Api, departure: str) -> None:
    hold_id, other = (api.post("/holds", {"experience_date_id": departure, "seats": 2}).json()["id"] for _ in range(2))
    body = quote(api, departure, 3, hold_id=hold_id).json()
    assert (body["allowed"], body["seats_available"]) == (True, 3)
    assert reasons(quote(api, departure, 2)) == [("insufficient_capacity", None)]
    api.call("DELETE", f"/holds/{other}")
    api.world.clock.advance(HOUR)
    assert reasons(quote(api, departure, 5, hold_id=hold_id)) == [("conflict", "hold_expired")]


def test_a_taken_reference_is_a_reason_where_it_is_asked_for(api: Api, departure: str) -> None:
    api.book(departure, external_reference="A-1")
    assert reasons(quote(api, departure, external_reference="A-1")) == []
    unique = quote(api, departure, external_reference="A-1", external_reference_unique=True)
    assert reasons(unique) == [("conflict", "external_reference_taken")]


def test_each_reference_of_a_quote_adds_one_statement(api: Api, departure: str, statements: list[str]) -> None:
    hold_id = api.post("/holds", {"experience_date_id": departure, "seats": 1}).json()["id"]
    unique = {"external_reference": "A-1", "external_reference_unique": True}
    for over, count in (({}, 2), ({"hold_id": hold_id}, 3), ({"hold_id": hold_id, **unique}, 4)):  # with the key
        statements.clear()
        assert quote(api, departure, **over).status_code == 200
        assert len(statements) == count
