"""Requests: safe paths, parameters in the format of the API, and one body for all attempts."""

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from sdk_support.routed import KEY, OK, URL, WireOf, answered, play

from booking_sdk import BookingClient, GuestInput, GuestLineInput, NotFoundError
from booking_sdk.request import (
    body_fields,
    body_lines,
    comma_separated,
    custom_request,
    get,
    json_body,
    path_segment,
    query_value,
    utc_timestamp,
    without_none,
)


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a/b", "../webhooks", "a\\b", "a?x=1", "a#b", "%2e%2e", "a\nb", "a\x00", "\u2028"]
)
def test_an_id_that_could_lead_elsewhere_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        path_segment("booking_id", value)


def test_an_id_is_text_or_a_uuid() -> None:
    one = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
    assert path_segment("booking_id", UUID(one)) == path_segment("booking_id", one) == one
    for value in (17, None, b"x"):
        with pytest.raises(TypeError):
            path_segment("booking_id", value)  # type: ignore[arg-type]


def test_segments_and_parameters_are_quoted() -> None:
    assert get("bookings", "a b+ø&=").target == "/api/v1/bookings/a%20b%2B%C3%B8%26%3D"
    assert get("customers", query={"email": "a+b@c.no&x=1"}).target == "/api/v1/customers?email=a%2Bb%40c.no%26x%3D1"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "true"),
        (False, "false"),
        (25, "25"),
        (date(2026, 6, 1), "2026-06-01"),
        (datetime(2026, 6, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-06-01T10:00:00+00:00"),
        (datetime(2026, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC), "2026-06-01T12:00:00.250000+00:00"),
        ("x", "x"),
    ],
)
def test_a_parameter_has_the_apis_form(value: object, expected: str) -> None:
    assert query_value("x", value) == expected


def test_an_instant_has_a_timezone() -> None:
    with pytest.raises(TypeError, match="updated_since has no timezone"):
        utc_timestamp("updated_since", datetime(2026, 6, 1))
    with pytest.raises(TypeError):
        utc_timestamp("updated_since", date(2026, 6, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1.5, None, b"x", [1], {}, datetime(2026, 6, 1)])
def test_a_parameter_of_no_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        query_value("x", value)


def test_several_values_are_joined_and_one_text_is_not_taken_for_several() -> None:
    assert comma_separated("types", ["b", "a", "b"]) == "a,b"
    assert comma_separated("types", ()) is None
    with pytest.raises(TypeError):
        comma_separated("types", "booking.created")


def test_a_body_is_compact_json_without_what_is_none() -> None:
    lines = body_lines("guests", [{"tier_id": "adult", "count": 2}, GuestLineInput(tier_id="family", count=1)])
    guest = body_fields(GuestInput(name="Ada", email="ada@example.com"))
    assert json_body(without_none(guests=lines, customer=guest, note=None)) == (
        b'{"guests":[{"tier_id":"adult","count":2},{"tier_id":"family","count":1}],'
        b'"customer":{"name":"Ada","email":"ada@example.com"}}'
    )


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), {1, 2}], ids=["nan", "infinity", "object", "set"]
)
def test_a_body_that_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        json_body({"x": value})


def test_lines_are_a_list() -> None:
    with pytest.raises(TypeError):
        body_lines("guests", {"tier_id": "adult", "count": 2})
    with pytest.raises(TypeError):
        body_fields("Ada")


ELSEWHERE = ["", "api", "//elsewhere.example.com/api", "https://elsewhere"]


@pytest.mark.parametrize("path", [*ELSEWHERE, "/api/../x", "/a?b=1", "/a#b", "/a%2e", "/a\\b", "/\n"])
def test_a_path_of_the_callers_stays_on_the_service(path: str) -> None:
    with pytest.raises(ValueError):
        custom_request("GET", path, None, None, None, None)


GUESTS = [{"tier_id": "adult", "count": 2}]
OF_A_DEPARTURE: dict[str, Callable[..., Any]] = {
    "bookings": lambda client, **names: client.bookings.create(
        **names, guests=GUESTS, customer={"name": "Ada", "email": "ada@example.com"}, payment="invoice"
    ),
    "bookings/quote": lambda client, **names: client.bookings.quote(**names, guests=GUESTS),
    "holds": lambda client, **names: client.holds.create(**names, seats=2),
    "checkouts": lambda client, **names: client.checkouts.create(
        **names, guests=GUESTS, customer={"name": "Ada", "email": "ada@example.com"}
    ),
}


@pytest.mark.parametrize("path", OF_A_DEPARTURE)
def test_departure_has_two_names_and_one_body(path: str, wire: WireOf) -> None:
    service = wire([answered(404, "not_found")])
    for names in ({"departure_id": UUID(int=7)}, {"experience_date_id": str(UUID(int=7))}):
        with pytest.raises(NotFoundError):
            OF_A_DEPARTURE[path](service.client(), **names)
    first, second = service.requests
    assert first.url.path == f"/api/v1/{path}"
    assert first.content == second.content
    assert json.loads(first.content)["departure_id"] == str(UUID(int=7))


@pytest.mark.parametrize("names", [{}, {"departure_id": "a", "experience_date_id": "a"}, {"departure_id": None}])
@pytest.mark.parametrize("path", OF_A_DEPARTURE)
def test_both_names_of_a_departure_or_none_are_refused(path: str, names: dict[str, Any], wire: WireOf) -> None:
    service = wire([OK])
    with pytest.raises(TypeError, match="exactly one of departure_id and experience_date_id"):
        OF_A_DEPARTURE[path](service.client(), **names)
    assert service.requests == []


def test_every_request_has_key_user_agent_and_accept_headers() -> None:
    def me(client: BookingClient) -> object:
        return client.request("GET", "/api/v1/me", cast_to=dict)

    (sent,) = play(me, [OK], user_agent_suffix="shop/3", default_headers={"X-Team": "till"}).sent
    headers = sent.headers
    assert sent.url == f"{URL}/api/v1/me"
    assert (headers["authorization"], headers["accept"]) == (f"Bearer {KEY}", "application/json")
    assert headers["x-team"] == "till"
    assert re.fullmatch(r"booking-sdk/.* shop/3", headers["user-agent"])
    assert not {"content-type", "idempotency-key"} & set(headers)


def test_options_of_a_call_are_known_ones() -> None:
    with pytest.raises(TypeError, match="unknown options: retries"):
        get("me", options={"retries": 3})  # type: ignore[typeddict-unknown-key]
    assert get("bookings", query={"limit": 5}, options={"query": {"new": "1"}}).target == (
        "/api/v1/bookings?limit=5&new=1"
    )


@pytest.mark.parametrize(
    "headers", [{"Authorization": "x"}, {"idempotency-KEY": "x"}, {"a": "b\r\nc: d"}, {"": "x"}, {"é": "x"}]
)
def test_headers_that_are_not_the_callers_to_set_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        play(lambda client: client.me(options={"headers": headers}), [OK])
