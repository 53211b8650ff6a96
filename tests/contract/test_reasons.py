"""One fault has one reason in a body, a query and a header, and each fault of a request is named (decision R3)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.api.api import Api, booking_body, fresh_key
from support.api.raw import call
from support.api.refusals import refused

Send = Callable[[Api], Any]
pytestmark = pytest.mark.one_database
DEPARTURE = "7a1c9e54-3b0d-4f6a-9d3e-1c5b8a2f4e60"
GUEST = {"name": "Ada Lovelace", "email": "ada@example.com"}
ENDPOINT = {"url": "https://hooks.example/", "event_types": ["booking.created"]}
ANOTHER_LIST = f"AQ{'A' * 54}"
"""A cursor of the right form, with the signature of no list."""
JSON = {"content-type": "application/json"}


def query(path: str, text: str) -> Send:
    return lambda api: api.call("GET", f"/{path}?{text}")


def header(key: str) -> Send:
    return lambda api: api.book(DEPARTURE, key=key)


def body(**fields: Any) -> Send:
    return lambda api: api.book(DEPARTURE, **fields)


def line(**fields: Any) -> Send:
    return body(guests=[{"tier_id": "adult", "count": 1, **fields}])


def guest(**fields: Any) -> Send:
    return body(customer={**GUEST, **fields})


def endpoint(**fields: Any) -> Send:
    return lambda api: api.post("/webhooks", {**ENDPOINT, **fields})


def content(text: bytes) -> Send:
    return lambda api: api.post("/bookings", content=text, headers=JSON)


def two_keys(api: Api) -> Any:
    keys = [("idempotency-key", fresh_key()), ("idempotency-key", fresh_key())]
    content = json.dumps(booking_body(DEPARTURE)).encode()
    headers = [*JSON.items(), *keys]
    return call(api.client, "POST", "/api/v1/bookings", key=api.key, headers=headers, pieces=[content])


def two_names(api: Api) -> Any:
    return api.post("/bookings", booking_body(DEPARTURE) | {"departure_id": DEPARTURE})


PLACES: dict[str, list[Send]] = {
    "required": [query("availability", "to=2026-12-01"), body(guests=[{"count": 1}]), content(b"")],
    "wrong_type": [
        *(query("bookings", "limit=x"), query("bookings", "booking_number=1.0"), query("experiences", "published=1")),
        *(line(count="1"), line(count=True), line(count=1.5), body(notify_staff="true"), body(guests={}), body(note=1)),
        content(b"[]"),
    ],
    "out_of_range": [
        *(query("bookings", "limit=0"), query("bookings", "limit=101"), query("bookings", f"limit={'9' * 30}")),
        *(query("bookings", "booking_number=0"), line(count=0), line(count=2**31), line(count=10**30)),
        endpoint(url="https://hooks.example:65536/"),
    ],
    "wrong_format": [
        *(query("bookings", "experience_id=abc"), query("bookings", "departure_from=2026-02-30")),
        *(query("bookings", "updated_since=soon"), query("customers", "email=%FF")),
        *(endpoint(url="https://ada@hooks.example/"), endpoint(url="https://127.1/")),
        *(body(experience_date_id="abc"), guest(email="nobody"), body(metadata={"a b": "c"})),
        lambda api: api.post("/sandbox/clock/advance", {"to": "soon"}),
    ],
    "unknown_value": [
        *(query("bookings", "status=paid"), query("bookings", "order=up"), query("events", "type=booking.never")),
        *(body(payment="card"), endpoint(event_types=["booking.never"])),
    ],
    "too_short": [
        *(query("bookings", "limit="), query("customers", "email"), header("short")),
        *(line(tier_id=""), guest(name=" "), body(guests=[]), endpoint(url="")),
    ],
    "too_long": [
        *(query("customers", f"email={'a' * 3_000}"), query("events", f"type={'booking.created,' * 60}booking.*")),
        *(header("k" * 201), guest(name="a" * 201), line(tier_id="a" * 201)),
        body(guests=[{"tier_id": "adult", "count": 1}] * 101),
    ],
    "forbidden_character": [
        *(query("customers", "email=a%00"), header("a-key-of-\x07"), guest(name="a\nb"), body(note="a\x00")),
    ],
    "repeated": [
        *(query("bookings", "limit=1&limit=1"), two_keys),
        *(endpoint(event_types=["booking.created"] * 2), endpoint(headers={"X-A": "1", "x-a": "2"})),
    ],
    "not_https": [endpoint(url="http://hooks.example/"), endpoint(url="hooks.example")],
    "invalid_cursor": [query("bookings", "starting_after=x"), query("bookings", f"starting_after={ANOTHER_LIST}")],
    "invalid_json": [content(b"{"), content(b'{"note": "\\ud800"}'), content(b"\xff")],
    "exactly_one": [two_names],
    "at_least_one": [lambda api: api.post(f"/bookings/{api.world.org}/guest", {})],
}


@pytest.mark.parametrize("reason", PLACES)
def test_one_fault_has_one_reason_in_every_place(api: Api, reason: str) -> None:
    for send in PLACES[reason]:
        answer = send(api)
        assert {detail["reason"] for detail in refused(answer, 400, "validation_failed")["details"]} == {reason}


def faults(answer: Any) -> dict[str | None, str]:
    details = refused(answer, 400, "validation_failed")["details"]
    assert len({detail["field"] for detail in details}) == len(details)
    return {detail["field"]: detail["reason"] for detail in details}


def test_each_fault_of_a_query_is_named(api: Api) -> None:
    wrong = {
        "limit": ("0&limit=1", "repeated"),
        "order": ("up", "unknown_value"),
        "starting_after": ("x", "invalid_cursor"),
        "status": ("", "too_short"),
        "experience_id": ("x", "wrong_format"),
        "departure_from": ("x", "wrong_format"),
        "updated_since": ("x", "wrong_format"),
        "booking_number": ("x", "wrong_type"),
    }
    text = "&".join(f"{name}={value}" for name, (value, _) in wrong.items())
    assert faults(api.call("GET", f"/bookings?{text}")) == {name: reason for name, (_, reason) in wrong.items()}


def test_each_fault_of_a_query_of_the_feed_is_named(api: Api) -> None:
    wrong = {"type": "unknown_value", "limit": "out_of_range", "starting_after": "invalid_cursor"}
    assert faults(api.call("GET", "/events?type=booking.never&limit=0&starting_after=x")) == wrong


def test_a_cursor_of_another_list_is_named_once_the_list_is_known(api: Api) -> None:
    another = f"/bookings?starting_after={ANOTHER_LIST}"
    assert faults(api.call("GET", another)) == {"starting_after": "invalid_cursor"}
    assert faults(api.call("GET", f"{another}&status=paid")) == {"status": "unknown_value"}


def test_the_url_of_an_endpoint_is_named_beside_other_faults(api: Api) -> None:
    wrong = {"url": "not_https", "event_types": "too_short", "max_per_second": "out_of_range"}
    fields = {"url": "http://hooks.example/", "event_types": [], "max_per_second": 0}
    assert faults(api.post("/webhooks", fields)) == wrong
    changed = api.call("PATCH", f"/webhooks/{DEPARTURE}", json=fields)
    assert faults(changed) == wrong


def test_a_required_parameter_with_a_fault_is_named_once(api: Api) -> None:
    assert faults(api.call("GET", "/availability?from=&to=x")) == {"from": "too_short", "to": "wrong_format"}


def test_faults_of_a_header_and_of_a_body_are_named_together(api: Api) -> None:
    expected = {"Idempotency-Key": "too_short", "payment": "unknown_value", "guests": "too_short"}
    assert faults(api.book(DEPARTURE, key="short", payment="card", guests=[])) == expected
    assert faults(api.post("/bookings", content=b"{", headers=JSON, key="short")) == {
        "Idempotency-Key": "too_short",
        None: "invalid_json",
    }
