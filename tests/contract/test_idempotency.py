"""A request with an Idempotency-Key is carried out once, in spite of repetitions (API v1 section 4, decisions I1 to
I7).

Tests with a kill, several processes or a cut connection are in `tests/system`.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import orjson
import pytest
from starlette.testclient import TestClient
from support.api.api import Api, booking_body, error_of, fresh_key
from support.api.raw import call
from support.api.refusals import invalid_field
from support.databases.databases import connect, departure_held, is_sqlite
from support.faults.statements import failing_at
from support.world.world import HOUR, NOON, SECRET, World

from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.scopes import Scope
from booking_core.organizations import keys

REPLAYED = "idempotent-replayed"
CUSTOMER = {"email": "grace@example.com", "name": "Grace Hopper"}


def assert_replay(again: httpx.Response, first: httpx.Response) -> None:
    """Check for the first response: same status, bytes and content type, marked as a replay, with a new request id."""
    assert REPLAYED not in first.headers
    assert again.headers[REPLAYED] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


def stored(world: World) -> list[str]:
    """Return the keys with stored responses."""
    return sorted(row["key"] for row in world.rows(tables.idempotency))


# The key itself --------------------------------------------------------------------------------------------------


def test_a_booking_without_a_key_is_refused(api: Api, departure: str) -> None:
    for headers in ({}, {"Idempotency-Key": ""}):
        response = api.call("POST", "/bookings", json=booking_body(departure), headers=headers)
        assert error_of(response) == (400, "idempotency_key_required")
    assert api.world.rows(tables.bookings) == []


@pytest.mark.parametrize(
    "key",
    ["x" * 7, "x" * 201, "key with \x01", "key-é-key".encode("latin-1"), b"\xff\xfe\xff\xfe-key-", "\ttab-key\t1"],
)
def test_a_key_of_another_length_or_alphabet_is_refused(api: Api, departure: str, key: bytes) -> None:
    response = api.call("POST", "/bookings", json=booking_body(departure), headers={"Idempotency-Key": key})
    assert invalid_field(response) == "Idempotency-Key"
    assert api.world.rows(tables.bookings) == []


def test_a_key_that_is_sent_twice_is_refused(api: Api, departure: str) -> None:
    headers = [
        ("idempotency-key", "first-key"),
        ("idempotency-key", "second-key"),
        ("content-type", "application/json"),
    ]
    body = orjson.dumps(booking_body(departure))
    response = call(api.client, "POST", "/api/v1/bookings", key=api.key, headers=headers, pieces=[body])
    (detail,) = response.json()["details"]
    assert (response.status_code, detail["field"], detail["reason"]) == (400, "Idempotency-Key", "repeated")
    assert api.world.rows(tables.bookings) == []


@pytest.mark.parametrize("key", ["x" * 8, "y" * 200, "a key with spaces", "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"])
def test_any_printable_key_of_8_to_200_characters_will_do(api: Api, departure: str, key: str) -> None:
    assert api.book(departure, key=key).status_code == 201
    assert stored(api.world) == [key]


# Replay ----------------------------------------------------------------------------------------------------------


def test_white_space_and_the_order_of_fields_do_not_matter(api: Api, departure: str) -> None:
    body = booking_body(departure)
    first = api.post("/bookings", body, key="canonical-1")
    turned = dict(reversed([(name, _turned(value)) for name, value in body.items()]))
    spaced = orjson.dumps(turned, option=orjson.OPT_INDENT_2) + b"\n\n"
    headers = {"Idempotency-Key": "canonical-1", "Content-Type": "application/json; charset=utf-8"}
    assert_replay(api.call("POST", "/bookings", content=spaced, headers=headers), first)


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(reversed(value.items()))
    return [_turned(item) for item in value] if isinstance(value, list) else value


def test_an_escaped_character_is_the_character(api: Api, departure: str) -> None:
    first = api.post("/bookings", booking_body(departure, note="Blåbær"), key="escaped-1")
    escaped = orjson.dumps(booking_body(departure, note="Bl-b-r")).replace(b"Bl-b-r", b"Bl\\u00e5b\\u00e6r")
    headers = {"Idempotency-Key": "escaped-1", "Content-Type": "application/json"}
    assert_replay(api.call("POST", "/bookings", content=escaped, headers=headers), first)


def test_an_absent_body_and_an_empty_object_are_one_request(api: Api, departure: str) -> None:
    path = f"/bookings/{api.book(departure).json()['id']}/cancel"
    first = api.call("POST", path, headers={"Idempotency-Key": "no-body-at-all"})
    assert first.status_code == 200
    assert_replay(api.post(path, {}, key="no-body-at-all"), first)


def test_a_conflict_is_replayed_after_it_is_gone(api: Api, world: World) -> None:
    departure = world.departure(world.experience(), status="closed")
    first = api.book(departure, key="conflict-1")
    assert error_of(first) == (409, "conflict")
    world.change(tables.departures, departure, status="open")
    assert_replay(api.book(departure, key="conflict-1"), first)
    assert api.book(departure).status_code == 201


def test_an_unknown_booking_stays_unknown_for_its_key(api: Api) -> None:
    path = "/bookings/00000000-0000-4000-8000-000000000000/cancel"
    first = api.post(path, {}, key="unknown-booking")
    assert error_of(first) == (404, "not_found")
    assert_replay(api.post(path, {}, key="unknown-booking"), first)


def test_the_first_answer_outlives_every_change(api: Api, world: World, new_world: Callable[..., World]) -> None:
    experience = world.experience()
    departure = world.departure(experience)
    first = api.book(departure, key="outlives-it")
    api.cancel(first.json()["id"])
    world.change(tables.experiences, experience, price_tiers="[]", price_from_minor=1, title="Another tour")
    world.change(tables.departures, departure, status="cancelled", seats_total=0)
    world.change(tables.organizations, world.org, timezone="Asia/Kathmandu", add_ons_app=False)
    world.clock.advance(10 * 24 * HOUR)
    assert_replay(api.book(departure, key="outlives-it"), first)


def test_a_refusal_outlives_the_departure_itself(api: Api, world: World, shared_database_url: str) -> None:
    departure = world.departure(world.experience(), seats=1)
    refused = api.book(departure, count=2, key="departure-gone")
    with connect(shared_database_url) as connection:
        connection.execute(f"DELETE FROM departures WHERE id = '{departure}'")
    assert_replay(api.book(departure, count=2, key="departure-gone"), refused)
    assert error_of(api.book(departure)) == (404, "not_found")


def test_the_rotation_of_the_api_key_changes_nothing(api: Api, departure: str) -> None:
    first = api.book(departure, key="rotated-key")
    key_id = api.get("/me").json()["key"]["id"]
    cell = api.world.installation.cell
    _, successor, _ = api.world.database.write(lambda tx: keys.rotate(tx, key_id, overlap=0, cell=cell, now=NOON))
    assert error_of(api.book(departure, key="rotated-key")) == (401, "api_key_expired")
    assert_replay(Api(api.client, api.world, successor).book(departure, key="rotated-key"), first)


def test_the_secret_key_may_be_rotated_while_answers_are_kept(
    api: Api, departure: str, run_app: Callable[..., AbstractContextManager[TestClient]]
) -> None:
    first = api.book(departure, key="sealed-before")
    with run_app(secret_key=f"a new secret key, {SECRET}") as client:
        rotated = Api(client, api.world, api.key)
        assert_replay(rotated.book(departure, key="sealed-before"), first)
        assert rotated.book(departure).json()["manage_url"]


# Reuse -----------------------------------------------------------------------------------------------------------


def test_a_used_key_with_another_body_is_refused_without_storing_it(api: Api, departure: str) -> None:
    first = api.book(departure, key="reused-key")
    refusals = [api.book(departure, key="reused-key", **over) for over in ({"count": 2}, {"count": 2}, {"note": "!"})]
    for refusal in refusals:
        assert error_of(refusal) == (422, "idempotency_key_reused")
        assert REPLAYED not in refusal.headers
    assert len({refusal.json()["request_id"] for refusal in refusals}) == 3
    assert_replay(api.book(departure, key="reused-key"), first)
    assert len(api.world.rows(tables.bookings)) == 1


def test_two_api_keys_of_one_organization_share_their_idempotency_keys(api: Api, departure: str) -> None:
    first = api.book(departure, key="shared-key")
    colleague = api.with_scopes(Scope.BOOKINGS_WRITE)
    assert_replay(colleague.book(departure, key="shared-key"), first)
    assert error_of(colleague.book(departure, count=2, key="shared-key")) == (422, "idempotency_key_reused")


# Answers that are not stored -------------------------------------------------------------------------------------


def test_a_failure_at_any_statement_leaves_all_to_the_retry(api: Api, departure: str, statements: list[str]) -> None:
    api.book(departure)  # of a new customer, which takes one statement more
    statements.clear()
    api.book(departure)
    count = len(statements)
    assert count >= 6
    for number in range(count):
        key = fresh_key()
        with failing_at(api.world.database, number):
            assert error_of(api.book(departure, key=key)) == (500, "internal_error")
        assert key not in stored(api.world)
        retried = api.book(departure, key=key)
        assert (retried.status_code, REPLAYED in retried.headers) == (201, False)
        api.cancel(retried.json()["id"])
    assert len(api.world.rows(tables.bookings)) == count + 2
    assert api.world.examine() == []


def test_the_retry_completes_a_cancellation_that_failed_at_any_statement(
    api: Api, departure: str, database: Database, statements: list[str]
) -> None:
    api.cancel(api.book(departure).json()["id"])
    count = len(statements)
    booking, key = api.book(departure).json(), fresh_key()
    for number in range(count):
        with failing_at(database, number):
            response = api.cancel(booking["id"], key=key)
        if response.status_code == 200:
            break  # it took fewer statements than booking and cancelling together
        assert error_of(response) == (500, "internal_error")
        assert api.get(f"/bookings/{booking['id']}").json()["status"] == "confirmed"
        assert api.world.examine() == []
    assert number >= 5
    assert api.event_types().count("booking.cancelled") == 2
    assert api.world.examine() == []


def test_a_key_that_was_purged_is_new(api: Api, departure: str, shared_database_url: str) -> None:
    first = api.book(departure, key="purged-key")
    with connect(shared_database_url) as connection:
        connection.execute(f"DELETE FROM idempotency WHERE organization_id = '{api.world.org}'")
    second = api.book(departure, key="purged-key")
    assert (second.status_code, REPLAYED in second.headers) == (201, False)
    assert second.json()["id"] != first.json()["id"]


def test_a_key_being_purged_is_replayed_until_it_is_gone(api: Api, departure: str, shared_database_url: str) -> None:
    if is_sqlite(shared_database_url):
        pytest.skip("SQLite has one writer: a purge and a booking take turns")
    first = api.book(departure, key="being-purged")
    with connect(shared_database_url) as connection:
        connection.autocommit = False
        connection.execute(f"DELETE FROM idempotency WHERE organization_id = '{api.world.org}'")
        assert_replay(api.book(departure, key="being-purged"), first)
        connection.commit()
    fresh = api.book(departure, key="being-purged")
    assert (fresh.status_code, REPLAYED in fresh.headers) == (201, False)


# Customers: the header may be left out ---------------------------------------------------------------------------


def test_a_customer_without_a_key_is_created_and_then_found(api: Api) -> None:
    first, second = (api.call("POST", "/customers", json=CUSTOMER) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.content == second.content
    assert REPLAYED not in second.headers
    assert stored(api.world) == []
    assert api.event_types() == ["customer.created"]


def test_a_known_customer_is_replayed_as_known(api: Api) -> None:
    api.post("/customers", CUSTOMER)
    first, second = (api.post("/customers", CUSTOMER, key="grace-again") for _ in range(2))
    assert first.status_code == 200
    assert_replay(second, first)


def test_a_bad_key_of_a_customer_is_refused_all_the_same(api: Api) -> None:
    assert error_of(api.post("/customers", CUSTOMER, key="short")) == (400, "validation_failed")
    assert api.call("POST", "/customers", json=CUSTOMER, headers={"Idempotency-Key": ""}).status_code == 201


# In progress -----------------------------------------------------------------------------------------------------


@contextmanager
def stalled(api: Api, url: str, departure: str, key: str) -> Iterator["Future[httpx.Response]"]:
    """Start a booking that waits for a lock until the end of the block."""
    begun = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        with departure_held(url, departure):
            # From the look-up of the API key on, the idempotency key is in use.
            api.world.database.observer = lambda text: begun.set() if "api_keys" in text else None
            try:
                booking = beside.submit(api.book, departure, key=key)
                assert begun.wait(timeout=30)
                yield booking
                assert not booking.done()
            finally:
                api.world.database.observer = None
        assert booking.result().status_code == 201


def test_a_concurrent_request_is_refused_as_in_progress(api: Api, departure: str, shared_database_url: str) -> None:
    with stalled(api, shared_database_url, departure, "in-progress") as first:
        for count in (1, 2):  # another body is not looked at before the first has an answer to compare with
            refused = api.book(departure, count=count, key="in-progress")
            assert error_of(refused) == (409, "idempotency_in_progress")
            assert refused.headers["retry-after"] == "1"
            assert REPLAYED not in refused.headers
    assert_replay(api.book(departure, key="in-progress"), first.result())
    assert stored(api.world) == ["in-progress"]
    assert len(api.world.rows(tables.bookings)) == 1


def test_an_invalid_request_is_refused_with_a_key_in_use(api: Api, departure: str, shared_database_url: str) -> None:
    with stalled(api, shared_database_url, departure, "in-progress"):
        assert error_of(api.book(departure, count=0, key="in-progress")) == (400, "validation_failed")


def test_a_concurrent_request_with_another_api_key_is_refused_as_in_progress(
    api: Api, departure: str, shared_database_url: str
) -> None:
    if is_sqlite(shared_database_url):
        pytest.skip("SQLite has one writer: the second waits for its turn and is answered with a replay")
    colleague = api.with_scopes(Scope.BOOKINGS_WRITE)
    with connect(shared_database_url) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"{api.world.org}:held-elsewhere",))
        for caller in (api, colleague):
            refused = caller.book(departure, key="held-elsewhere")
            assert error_of(refused) == (409, "idempotency_in_progress")
            assert refused.headers["retry-after"] == "1"
        connection.execute("SELECT pg_advisory_unlock_all()")
    assert stored(api.world) == []
    assert colleague.book(departure, key="held-elsewhere").status_code == 201
