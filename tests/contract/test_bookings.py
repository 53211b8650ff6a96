"""Bookings over HTTP (API v1 sections 3 and 4), their external references and their metadata."""

from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from support.api.api import Api, body_of, booking_body, error_of
from support.api.refusals import conflict_reason
from support.databases.databases import is_sqlite, numbers_held
from support.world.operations import Operations, as_published
from support.world.world import DAY

from booking_core.models.bookings import Booking
from booking_core.models.scopes import Scope


def seats_available(api: Api, departure_id: str) -> int:
    page = api.get("/availability", **{"from": "2026-11-20"}).json()
    (departure,) = [entry for entry in page["data"] if entry["id"] == departure_id]
    return int(departure["seats_available"])


def test_a_booking_is_confirmed_numbered_priced_and_published(api: Api, departure: str) -> None:
    fields = {"note": "Window seats\nplease", "add_ons": [{"id": "drysuit", "count": 2}]}
    booking = body_of(api.book(departure, count=2, **fields), 201)
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
    first = body_of(api.cancel(booking["id"], reason="The guest is ill"))
    assert (first["status"], first["manage_url"]) == ("cancelled", booking["manage_url"])
    assert body_of(api.cancel(booking["id"])) == first
    assert seats_available(api, departure) == 12
    assert api.event_types()[-1] == "booking.cancelled"
    assert api.event_types().count("booking.cancelled") == 1
    event = api.get("/events").json()["data"][0]
    assert event["data"]["reason"] == "api"
    assert event["data"]["object"] == as_published(first)
    assert api.world.examine() == []


def test_a_past_departure_can_be_cancelled(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    api.world.clock.advance(10 * DAY)
    cancelled = api.cancel(booking["id"])
    assert cancelled.json()["status"] == "cancelled"
    assert cancelled.json()["manage_url"] is None


# Put off -------------------------------------------------------------------------------------------------------------


def test_a_deferred_booking_is_answered_when_the_counters_are_free(
    api: Api, other_api: Api, shared_database_url: str
) -> None:
    if is_sqlite(shared_database_url):
        pytest.skip("SQLite has one writer: no other transaction has numbers while it writes")
    free = api.world.departure(api.world.experience(), seats=9)
    waited_for = other_api.world.departure(other_api.world.experience(), seats=9)
    creations = api.client.app.state.service.creations  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as clients:
        with numbers_held(shared_database_url, other_api.world.org):
            put_off: Future[httpx.Response] = clients.submit(other_api.book, waited_for)
            while not creations.locked.count(other_api.world.org):
                pass
            assert api.book(free).status_code == 201
            assert not put_off.done()
        answer = put_off.result(timeout=30)
    assert (answer.status_code, answer.json()["booking_number"]) == (201, 1)


# References ----------------------------------------------------------------------------------------------------------


NOTES = {"channel": "acme", "order": "A-1042", "remarks": "two lines\nof text"}


def test_a_booking_and_its_events_have_reference_with_metadata(api: Api, departure: str) -> None:
    booking = api.book(departure, external_reference="A-1042", metadata=NOTES).json()
    assert (booking["external_reference"], booking["metadata"]) == ("A-1042", NOTES)
    body = api.get(f"/bookings/{booking['id']}").json()
    assert (body["external_reference"], body["metadata"]) == ("A-1042", NOTES)
    api.cancel(booking["id"])
    published = [event["data"]["object"] for event in api.get("/events", type="booking.*").json()["data"]]
    assert [(body["external_reference"], body["metadata"]) for body in published] == [("A-1042", NOTES)] * 3
    assert api.world.examine() == []


def test_a_booking_without_them_has_null_and_an_empty_object(api: Api, departure: str) -> None:
    for booking in (api.book(departure).json(), api.book(departure, metadata={}, external_reference=None).json()):
        assert (booking["external_reference"], booking["metadata"]) == (None, {})


def test_bookings_are_found_by_their_reference_exactly(api: Api, departure: str) -> None:
    ids = [api.book(departure, external_reference=text).json()["id"] for text in ("A-1", "A-1", "a-1", "A-10")]
    bookings = api.get("/bookings", external_reference="A-1", order="asc").json()["data"]
    assert [booking["id"] for booking in bookings] == ids[:2]
    page = api.get("/bookings", external_reference="A-1", order="asc", limit=1).json()
    after = page["next_cursor"]
    following = api.get("/bookings", external_reference="A-1", order="asc", limit=1, starting_after=after).json()
    assert [booking["id"] for booking in page["data"] + following["data"]] == ids[:2]
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


def test_another_organization_s_reference_does_not_count(api: Api, other_api: Api, departure: str) -> None:
    reference = {"external_reference": "A-1", "external_reference_unique": True}
    api.book(departure, **reference)
    there = other_api.world.departure(other_api.world.experience())
    assert other_api.book(there, **reference).status_code == 201
    assert len(other_api.get("/bookings", external_reference="A-1").json()["data"]) == 1


def test_a_replay_of_a_unique_booking_is_its_first_answer(api: Api, departure: str) -> None:
    body = booking_body(departure, external_reference="A-1", external_reference_unique=True)
    first = api.post("/bookings", body, key="order-A-1")
    again = api.post("/bookings", body, key="order-A-1")
    assert (again.status_code, again.json()) == (201, first.json())
    refused = [api.post("/bookings", body, key="order-A-1-again") for _ in range(2)]
    assert [error_of(answer) for answer in refused] == [(409, "conflict")] * 2
    assert refused[1].headers["Idempotent-Replayed"] == "true"


def test_of_requests_at_the_same_moment_one_has_the_reference(api: Api, departure: str) -> None:
    body = booking_body(departure, external_reference="A-1", external_reference_unique=True)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: api.post("/bookings", body, key=f"racing-{n:03}"), range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
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


@pytest.mark.parametrize(("name", "field", "values"), MALFORMED, ids=["reference", "unique", "value", "name", "size"])
def test_what_is_out_of_bounds_is_refused_by_its_field(
    api: Api, departure: str, name: str, field: str, values: list[object]
) -> None:
    for value in values:
        refused = api.book(departure, **{field: value})
        assert error_of(refused) == (400, "validation_failed")
        assert [detail["field"] for detail in refused.json()["details"]] == [name]


def test_the_largest_metadata_is_kept(api: Api, departure: str) -> None:
    notes = {f"k{n:02}": "ü" * 157 for n in range(50)}
    assert sum(len(key) + len(text) for key, text in notes.items()) == 8_000
    assert api.book(departure, metadata=notes).json()["metadata"] == notes
