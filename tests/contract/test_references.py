"""External references and metadata of bookings: kept as sent, found by, and unique where a request asks for that."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.api.api import Api, booking_body, error_of
from support.api.refusals import conflict_reason

NOTES = {"channel": "acme", "order": "A-1042", "remarks": "two lines\nof text"}


def test_a_booking_and_its_events_have_reference_with_metadata(api: Api, departure: str) -> None:
    booking = api.book(departure, external_reference="A-1042", metadata=NOTES).json()
    assert (booking["external_reference"], booking["metadata"]) == ("A-1042", NOTES)
    shown = api.get(f"/bookings/{booking['id']}").json()
    assert (shown["external_reference"], shown["metadata"]) == ("A-1042", NOTES)
    api.cancel(booking["id"])
    for event in api.get("/events", type="booking.*").json()["data"]:
        assert (event["data"]["object"]["external_reference"], event["data"]["object"]["metadata"]) == ("A-1042", NOTES)
    assert api.world.examine() == []


def test_a_booking_without_them_has_null_and_an_empty_object(api: Api, departure: str) -> None:
    for booking in (api.book(departure).json(), api.book(departure, metadata={}, external_reference=None).json()):
        assert (booking["external_reference"], booking["metadata"]) == (None, {})


def test_bookings_are_found_by_their_reference_exactly(api: Api, departure: str) -> None:
    ids = [api.book(departure, external_reference=each).json()["id"] for each in ("A-1", "A-1", "a-1", "A-10")]
    found = api.get("/bookings", external_reference="A-1", order="asc").json()["data"]
    assert [each["id"] for each in found] == ids[:2]
    page = api.get("/bookings", external_reference="A-1", order="asc", limit=1).json()
    after = page["next_cursor"]
    following = api.get("/bookings", external_reference="A-1", order="asc", limit=1, starting_after=after).json()
    assert [each["id"] for each in page["data"] + following["data"]] == ids[:2]
    assert api.get("/bookings", external_reference="A-1", status="cancelled").json()["data"] == []
    assert api.get("/bookings", external_reference="unknown").json()["data"] == []
    elsewhere = api.get("/bookings", external_reference="A-10", order="asc", limit=1, starting_after=after)
    assert error_of(elsewhere) == (400, "validation_failed")


def test_a_reference_is_unique_only_where_a_request_asks_for_that(api: Api, departure: str) -> None:
    assert api.book(departure, external_reference="A-1").status_code == 201
    assert api.book(departure, external_reference="A-1", external_reference_unique=False).status_code == 201
    refused = api.book(departure, external_reference="A-1", external_reference_unique=True)
    assert conflict_reason(refused) == "external_reference_taken"
    assert refused.json()["details"][0]["field"] == "external_reference"
    assert api.book(departure, external_reference="A-2", external_reference_unique=True).status_code == 201
    assert api.book(departure, external_reference="A-2").status_code == 201
    unique = {"external_reference": "A-3", "external_reference_unique": True}
    api.cancel(api.book(departure, **unique).json()["id"])  # it keeps its reference
    api.book(departure, count=8)
    assert conflict_reason(api.book(departure, count=12, **unique)) == "external_reference_taken"  # before the seats


def test_another_organization_s_reference_does_not_count(api: Api, theirs: Api, departure: str) -> None:
    wanted = {"external_reference": "A-1", "external_reference_unique": True}
    api.book(departure, **wanted)
    there = theirs.world.departure(theirs.world.experience())
    assert theirs.book(there, **wanted).status_code == 201
    assert len(theirs.get("/bookings", external_reference="A-1").json()["data"]) == 1


def test_a_replay_of_a_unique_booking_is_its_first_answer(api: Api, departure: str) -> None:
    body = booking_body(departure, external_reference="A-1", external_reference_unique=True)
    first = api.post("/bookings", body, key="order-A-1")
    again = api.post("/bookings", body, key="order-A-1")
    assert (again.status_code, again.json()) == (201, first.json())
    refused = [api.post("/bookings", body, key="order-A-1-again") for _ in range(2)]
    assert [error_of(each) for each in refused] == [(409, "conflict")] * 2
    assert refused[1].headers["Idempotent-Replayed"] == "true"


def test_of_requests_at_the_same_moment_one_has_the_reference(api: Api, departure: str) -> None:
    body = booking_body(departure, external_reference="A-1", external_reference_unique=True)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: api.post("/bookings", body, key=f"racing-{n:03}"), range(8)))
    assert sorted(each.status_code for each in answers) == [201] + [409] * 7
    assert len(api.get("/bookings", external_reference="A-1").json()["data"]) == 1
    assert api.world.examine() == []


TOO_MANY = {f"key{n}": "" for n in range(51)}
TOO_LONG = {f"key{n}": "x" * 500 for n in range(17)}
MALFORMED: list[tuple[str, str, list[object]]] = [
    ("external_reference", "external_reference", ["", "x" * 201, "two\nlines", 7]),
    ("external_reference_unique", "external_reference_unique", [True]),
    ("metadata.a", "metadata", [{"a": value} for value in (1, None, "x" * 501, "nul\0")]),
    ("metadata", "metadata", [{name: "x"} for name in ("", "k" * 41, "with space", "line\n")]),
    ("metadata", "metadata", [[], TOO_MANY, TOO_LONG]),
]
"""The field that an error names, the field that is sent, and its malformed values."""


@pytest.mark.parametrize(("named", "field", "values"), MALFORMED, ids=["reference", "unique", "value", "name", "size"])
def test_what_is_out_of_bounds_is_refused_by_its_field(
    api: Api, departure: str, named: str, field: str, values: list[object]
) -> None:
    for value in values:
        refused = api.book(departure, **{field: value})
        assert error_of(refused) == (400, "validation_failed")
        assert [each["field"] for each in refused.json()["details"]] == [named]


def test_the_largest_metadata_is_kept(api: Api, departure: str) -> None:
    notes = {f"k{n:02}": "ü" * 157 for n in range(50)}
    assert sum(len(key) + len(text) for key, text in notes.items()) == 8_000
    assert api.book(departure, metadata=notes).json()["metadata"] == notes
