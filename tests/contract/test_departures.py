"""Departures: lists of a day, and single departures."""

from support.api.api import Api, booking_body
from support.api.refusals import conflict_reason, field_of, refused
from support.world.world import DAY, NOON

from booking_core.base.clock import HOUR


def test_a_departure_is_shown_as_availability_shows_it(api: Api) -> None:
    departure = api.world.departure(api.world.experience(), prices='{"adult":99000}')
    api.book(departure)
    (listed,) = api.get("/availability", **{"from": "2026-11-20"}).json()["data"]
    body = api.get(f"/departures/{departure}").json()
    assert body == listed
    assert (body["starts_at"], body["starts_at_local"]) == ("2026-11-23T13:00:00+01:00", "2026-11-23T13:00:00")
    assert (body["timezone"], body["seats_available"]) == ("Europe/Oslo", 11)
    assert [tier["price"]["amount_minor"] for tier in body["price_tiers"]] == [99000, 250000]
    assert api.get(f"/departures/{departure.upper()}").json() == body


def test_the_departures_of_a_day_are_those_of_the_organizations_day(api: Api) -> None:
    experience, other = api.world.experience(), api.world.experience()
    late = api.world.departure(experience, starts_at=NOON + 11 * HOUR - 1)  # one microsecond before midnight in Oslo
    early = api.world.departure(experience, starts_at=NOON - 13 * HOUR)
    there = api.world.departure(other, starts_at=NOON, status="cancelled")
    api.world.departure(experience, starts_at=NOON + 11 * HOUR)
    api.world.departure(experience, starts_at=NOON - 13 * HOUR - 1)
    page = api.get("/departures", date="2026-11-21").json()
    assert [departure["id"] for departure in page["data"]] == [early, there, late]
    assert (page["has_more"], page["next_cursor"]) == (False, None)
    page = api.get("/departures", date="2026-11-21", experience_id=other).json()
    assert [departure["id"] for departure in page["data"]] == [there]
    assert api.get("/departures", date="2031-01-01").json()["data"] == []


def test_the_day_is_required_and_a_date(api: Api) -> None:
    for query in ({}, {"date": "today"}, {"date": "2026-1-1"}, {"date": ""}, {"date": "2026-11-31"}):
        assert field_of(refused(api.get("/departures", **query), 400, "validation_failed")) == "date"


def test_the_add_ons_of_an_experience_can_be_booked(api: Api) -> None:
    departure = api.world.departure(experience := api.world.experience())
    (add_on,) = api.get(f"/experiences/{experience}").json()["add_ons"]
    assert add_on == {"id": "drysuit", "name": "Dry suit", "price": {"amount_minor": 15000, "currency": "NOK"}}
    (line,) = api.book(departure, add_ons=[{"id": add_on["id"], "count": 1}]).json()["add_ons"]
    assert (line["label"], line["unit_price"]) == (add_on["name"], add_on["price"])


def test_a_booking_is_found_by_departure_customer_number_and_address(api: Api) -> None:
    experience = api.world.experience()
    soon, later = api.world.departure(experience), api.world.departure(experience, starts_at=NOON + 3 * DAY)
    grace = {"name": "Grace", "email": "Grace@Example.com"}
    first, second, third = (
        api.book(departure, **over).json() for departure, over in ((soon, {}), (later, {}), (soon, {"customer": grace}))
    )

    def find(**filters: object) -> list[str]:
        return [booking["id"] for booking in api.get("/bookings", order="asc", **filters).json()["data"]]

    owner = api.get("/customers", email="grace@example.com").json()["data"][0]["id"]
    assert find(departure_id=soon) == [first["id"], third["id"]]
    assert find(customer_id=owner) == find(email="GRACE@example.COM") == [third["id"]]
    assert find(booking_number=2) == [second["id"]]
    assert find(booking_number=2, departure_id=soon) == []
    assert find(email="ada@example.com", departure_id=later) == [second["id"]]
    assert find(booking_number=4) == find(email="nobody@example.com") == []


def test_a_number_is_plain_digits(api: Api) -> None:
    for number in ("0", "-1", "01", "1.0", "x", "1" * 19, "１"):
        body = refused(api.get("/bookings", booking_number=number), 400, "validation_failed")
        assert field_of(body) == "booking_number"


def test_a_departure_without_a_price_is_closed_everywhere(api: Api) -> None:
    experience = api.world.experience(price_tiers="[]", price_from_minor=None)
    departure = api.world.departure(experience)
    (listed,) = api.get("/availability", **{"from": "2026-11-21"}).json()["data"]
    assert api.get(f"/departures/{departure}").json() == listed
    assert (listed["status"], listed["price"], listed["price_tiers"]) == ("closed", None, [])
    body = booking_body(departure)
    quoted = api.call("POST", "/bookings/quote", json=body).json()
    assert quoted["refusals"][0]["reason"] == "departure_closed"
    assert conflict_reason(api.post("/bookings", body)) == "departure_closed"
    assert conflict_reason(api.post("/holds", {"departure_id": departure, "seats": 1})) == "departure_closed"
