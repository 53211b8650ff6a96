"""Holds over HTTP: seats that are kept for some minutes, and bookings that take them over."""

from datetime import datetime
from typing import Any

import httpx
import pytest
from support.api.api import Api, body_of, booking_body, error_of
from support.api.refusals import conflict_reason, invalid_field, reason_of
from support.world.operations import Operations
from support.world.world import DAY, NOON

from booking_core.base.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_core.models.holds import Hold

SEATS = 5  # of the fixture `departure`
ADULT = {"tier_id": "adult", "count": 1}


def hold(api: Api, departure_id: str, seats: int = 2, *, key: str | None = None, **over: Any) -> httpx.Response:
    return api.post("/holds", {"experience_date_id": departure_id, "seats": seats, **over}, key=key)


def new_hold(api: Api, departure_id: str, seats: int = 2, **over: Any) -> str:
    """Hold seats, and return the id of the hold."""
    return str(hold(api, departure_id, seats, **over).json()["id"])


def seats_left(api: Api, departure_id: str) -> int:
    return int(api.get(f"/departures/{departure_id}").json()["seats_available"])


# Held and released -----------------------------------------------------------------------------------------------


def test_held_seats_are_missing_everywhere_until_they_are_released(api: Api, departure: str) -> None:
    body = body_of(hold(api, departure, 3), 201)
    assert Hold.model_validate(body).to_json() == body
    assert body == {
        "id": body["id"],
        "departure_id": departure,
        "seats": 3,
        "status": "live",
        "created_at": "2026-11-21T13:00:00+01:00",
        "expires_at": "2026-11-21T13:10:00+01:00",
        "booking_id": None,
        "guests": None,
        "totals": None,
    }
    assert api.get(f"/holds/{body['id']}").json() == body
    (entry,) = api.get("/availability", **{"from": "2026-11-20"}).json()["data"]
    assert (seats_left(api, departure), entry["seats_available"]) == (2, 2)
    assert api.book(departure, count=3).json()["seats_available"] == 2
    assert hold(api, departure, 3).json()["seats_available"] == 2
    assert api.event_types() == []
    released = api.call("DELETE", f"/holds/{body['id']}")
    assert (released.status_code, released.content) == (204, b"")
    assert api.get(f"/holds/{body['id']}").json()["status"] == "released"
    assert seats_left(api, departure) == 5
    assert api.call("DELETE", f"/holds/{body['id']}").status_code == 204
    assert api.world.examine() == []


def test_a_hold_expires_without_a_worker(api: Api, departure: str) -> None:
    hold_id = new_hold(api, departure, 5, expires_in_seconds=60)
    api.world.clock.advance(60 * SECOND - 1)
    assert seats_left(api, departure) == 0
    api.world.clock.advance(1)
    assert seats_left(api, departure) == 5
    assert api.get(f"/holds/{hold_id}").json()["status"] == "expired"
    assert api.call("DELETE", f"/holds/{hold_id}").status_code == 204
    assert api.book(departure, count=5).status_code == 201


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("seats", (0, 2**31, "2", None)),
        ("expires_in_seconds", (0, 1801, 60.5)),
        ("experience_date_id", ("no-id",)),
        ("guests", ([], "adult", [{}] * 101)),
        ("guests.0.count", ([ADULT | {"count": 0}], [ADULT | {"count": 2**31}], [ADULT | {"count": "2"}])),
        ("guests.0.tier_id", ([ADULT | {"tier_id": ""}], [ADULT | {"tier_id": None}])),
    ],
)
def test_a_field_out_of_its_bounds_is_refused(api: Api, departure: str, field: str, values: tuple[object, ...]) -> None:
    of_party = {} if "guests" in field else {"seats": 2}
    for value in values:
        body = {"experience_date_id": departure, **of_party, field.partition(".")[0]: value}
        assert (value, invalid_field(api.post("/holds", body))) == (value, field)


@pytest.mark.parametrize("value", [0, -1, 1801, 60.5, "60", True, []])
def test_an_extension_out_of_its_bounds_is_refused(api: Api, departure: str, value: object) -> None:
    body = hold(api, departure).json()
    answer = api.post(f"/holds/{body['id']}/extend", {"expires_in_seconds": value})
    assert invalid_field(answer) == "expires_in_seconds"
    assert api.get(f"/holds/{body['id']}").json() == body


# For a party, and extended ------------------------------------------------------------------------------------------


def test_a_hold_for_a_party_has_the_totals_of_a_quote(api: Api, departure: str) -> None:
    order = {"departure_id": departure, "guests": [{"tier_id": "adult", "count": 1}, {"tier_id": "family", "count": 1}]}
    quote = api.call("POST", "/bookings/quote", json=order).json()
    body = api.post("/holds", order).json()
    assert Hold.model_validate(body).to_json() == body
    same = ("seats", "guests", "totals")
    assert [body[name] for name in same] == [quote[name] for name in same]
    assert seats_left(api, departure) == SEATS - quote["seats"]
    assert api.get(f"/holds/{body['id']}").json() == body
    assert api.post("/bookings", booking_body(departure, hold_id=body["id"])).status_code == 201
    assert api.world.examine() == []


def test_a_party_is_refused_as_a_booking_is(api: Api, departure: str) -> None:
    unknown = api.post("/holds", {"departure_id": departure, "guests": [{"tier_id": "horse", "count": 1}]})
    assert (error_of(unknown), reason_of(unknown)) == ((422, "validation_failed"), "unknown_tier")
    many = api.post("/holds", {"departure_id": departure, "guests": [{"tier_id": "adult", "count": SEATS + 1}]})
    assert (error_of(many), many.json()["seats_available"]) == ((409, "insufficient_capacity"), SEATS)
    both = {"seats": 1, "guests": [{"tier_id": "adult", "count": 1}]}
    for body in (both, {}):
        answer = api.post("/holds", {"departure_id": departure, **body})
        assert (invalid_field(answer), reason_of(answer)) == ("seats", "exactly_one")


@pytest.mark.parametrize(
    ("waited_s", "asked_s", "lasts_s"),
    [(60, 600, 660), (60, None, 660), (60, 1, 600), (599, 1800, 1800), (0, 1800, 1800), (0, 600, 600)],
)
def test_an_extension_counts_from_now_within_half_an_hour_in_all(
    api: Api, departure: str, waited_s: int, asked_s: int | None, lasts_s: int
) -> None:
    body = hold(api, departure).json()
    api.world.clock.advance(waited_s * SECOND)
    extension = {} if asked_s is None else {"expires_in_seconds": asked_s}
    longer = body_of(api.post(f"/holds/{body['id']}/extend", extension))
    assert longer == api.get(f"/holds/{body['id']}").json()
    created, expires = (datetime.fromisoformat(longer[name]) for name in ("created_at", "expires_at"))
    assert (expires - created).total_seconds() == lasts_s
    assert api.world.examine() == []


def test_a_hold_that_has_ended_is_not_extended(api: Api, departure: str, ops: Operations) -> None:
    expired, released, booked, closed = (new_hold(api, departure, 1, expires_in_seconds=60) for _ in range(4))
    api.call("DELETE", f"/holds/{released}")
    api.book(departure, hold_id=booked)
    ops.close(departure)
    extend = lambda hold_id: conflict_reason(api.post(f"/holds/{hold_id}/extend", {}))  # noqa: E731
    reasons = [extend(hold_id) for hold_id in (released, booked, closed)]
    assert reasons == ["hold_released", "hold_booked", "departure_closed"]
    ops.reopen(departure)
    api.world.clock.advance(60 * SECOND)
    assert extend(expired) == "hold_expired"


# Permissions and tenants -----------------------------------------------------------------------------------------


def test_another_organization_s_hold_cannot_be_booked(api: Api, departure: str, other_api: Api) -> None:
    hold_id = new_hold(api, departure)
    refused = other_api.book(other_api.world.departure(other_api.world.experience()), hold_id=hold_id)
    assert (error_of(refused), reason_of(refused)) == ((404, "not_found"), "unknown_hold")
    assert api.get(f"/holds/{hold_id}").json()["status"] == "live"


# Taken over ------------------------------------------------------------------------------------------------------


def test_a_booking_takes_over_the_seats_of_its_hold(api: Api, departure: str) -> None:
    hold_id = new_hold(api, departure, 5)
    booking = body_of(api.book(departure, count=5, hold_id=hold_id.upper()), 201)
    body = api.get(f"/holds/{hold_id}").json()
    assert (body["status"], body["booking_id"]) == ("booked", booking["id"])
    assert seats_left(api, departure) == 0
    assert conflict_reason(api.call("DELETE", f"/holds/{hold_id}")) == "hold_booked"
    api.cancel(booking["id"])
    assert seats_left(api, departure) == 5
    assert api.world.examine() == []


def test_a_party_of_another_size_than_its_hold_adjusts_the_seats(api: Api, departure: str) -> None:
    hold(api, departure, 2)
    hold_id = new_hold(api, departure, 1)
    refused = api.book(departure, count=4, hold_id=hold_id)
    assert (error_of(refused), refused.json()["seats_available"]) == ((409, "insufficient_capacity"), 3)
    assert api.get(f"/holds/{hold_id}").json()["status"] == "live"
    assert api.book(departure, count=3, hold_id=hold_id).status_code == 201
    assert seats_left(api, departure) == 0
    other = api.world.departure(api.world.row(tables.departures, departure)["experience_id"], starts_at=NOON + 7 * DAY)
    assert api.book(other, count=1, hold_id=new_hold(api, other, 4)).status_code == 201
    assert seats_left(api, other) == api.get(f"/departures/{other}").json()["seats_total"] - 1
    assert api.world.examine() == []


def test_a_hold_that_is_over_or_elsewhere_is_refused_with_its_reason(api: Api, departure: str) -> None:
    booked, released, expired = (new_hold(api, departure, 1) for _ in range(3))
    api.book(departure, hold_id=booked)
    api.call("DELETE", f"/holds/{released}")
    experience = api.world.row(tables.departures, departure)["experience_id"]
    elsewhere = new_hold(api, api.world.departure(experience, starts_at=NOON + 7 * DAY), 1, expires_in_seconds=1800)
    api.world.clock.advance(10 * MINUTE)
    answers = {
        hold_id: api.book(departure, hold_id=hold_id, key=f"late-{hold_id}")
        for hold_id in (booked, released, expired, elsewhere)
    }
    reasons = ["hold_booked", "hold_released", "hold_expired", "hold_of_another_departure"]
    assert [conflict_reason(answer) for answer in answers.values()] == reasons
    assert {answer.json()["details"][0]["field"] for answer in answers.values()} == {"hold_id"}
    unknown = api.book(departure, hold_id="00000000-0000-4000-8000-000000000000")
    assert (error_of(unknown), reason_of(unknown)) == ((404, "not_found"), "unknown_hold")
    again = api.book(departure, hold_id=expired, key=f"late-{expired}")
    assert (again.json(), again.headers["Idempotent-Replayed"]) == (answers[expired].json(), "true")
    assert api.world.examine() == []


# Statements ------------------------------------------------------------------------------------------------------


def test_a_take_over_takes_two_statements_more_than_a_booking(api: Api, departure: str, statements: list[str]) -> None:
    plain = booking_body(departure)
    with_hold = booking_body(departure, hold_id=new_hold(api, departure, 1))
    unique = booking_body(departure, external_reference="A-1", external_reference_unique=True)
    api.post("/bookings", plain)  # the first booking makes the customer
    counts = []
    for body in (plain, booking_body(departure, external_reference="A-2", metadata={"a": "b"}), with_hold, unique):
        statements.clear()
        assert api.post("/bookings", body).status_code == 201
        counts.append(len(statements))
    plain_count, noted, taking_over, asking = counts
    assert noted == plain_count
    more = (1, 1) if api.world.database.is_sqlite else (1, 2)  # SQLite needs no lock for a reference
    assert (taking_over - plain_count, asking - plain_count) == (1 + more[0] + api.world.database.is_sqlite, more[1])


def test_a_hold_takes_as_many_statements_however_many_there_are(
    api: Api, departure: str, statements: list[str]
) -> None:
    counts = []
    for _ in range(3):
        statements.clear()
        assert hold(api, departure, 1).status_code == 201
        counts.append(len(statements))
    assert len(set(counts)) == 1
    assert counts[0] <= 8


def test_a_party_and_an_extension_take_no_more_statements_than_seats(
    api: Api, departure: str, statements: list[str]
) -> None:
    is_sqlite, counts = api.world.database.is_sqlite, []
    for body in ({"seats": 1}, {"guests": [{"tier_id": "adult", "count": 1}]}):
        statements.clear()
        created = api.post("/holds", {"departure_id": departure, **body}).json()
        counts.append(len(statements))
    statements.clear()
    assert api.post(f"/holds/{created['id']}/extend", {}).status_code == 200
    assert (*counts, len(statements)) == ((8, 8, 6) if is_sqlite else (7, 7, 7))
