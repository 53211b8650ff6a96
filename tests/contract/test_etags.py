"""ETag and If-None-Match on experiences, availability, departures and single resources."""

import json
import uuid
from typing import Any

import pytest
from support.api.api import Api
from support.api.endpoints import DOCUMENT, OPERATIONS
from support.api.refusals import refused
from support.world.operations import Operations

from booking_core.db import tables
from booking_core.models.scopes import Scope

pytestmark = pytest.mark.one_database

TAGGED = {
    *("list_experiences", "get_experience", "list_availability", "list_departures", "get_departure"),
    *("get_booking", "get_checkout", "get_hold", "get_customer", "get_gift_card", "get_event"),
}


@pytest.fixture
def paths(api: Api) -> dict[str, str]:
    departure = api.world.departure(api.world.experience())
    booking = api.book(departure).json()
    return {
        "list_experiences": "/experiences?published=true",
        "get_experience": f"/experiences/{booking['experience']['id']}",
        "list_availability": "/availability?from=2026-11-20",
        "list_departures": "/departures?date=2026-11-23",
        "get_departure": f"/departures/{departure}",
        "get_booking": f"/bookings/{booking['id']}",
        "get_hold": f"/holds/{api.post('/holds', {'experience_date_id': departure, 'seats': 1}).json()['id']}",
        "get_checkout": f"/checkouts/{Operations(api.world).check_out(departure)['id']}",
        "get_customer": f"/customers/{api.get('/customers').json()['data'][0]['id']}",
        "get_gift_card": f"/gift-cards/{Operations(api.world).issue(50_000)[0]}?include=code",
        "get_event": f"/events/{api.get('/events').json()['data'][0]['id']}",
    }


def ask(api: Api, path: str, *tags: str) -> Any:
    return api.call("GET", path, headers={"If-None-Match": ", ".join(tags)} if tags else {})


def test_the_description_names_each_operation_with_a_tag() -> None:
    declared = {
        operation.id
        for operation in OPERATIONS
        if "304" in DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    }
    assert declared == TAGGED


@pytest.mark.parametrize("operation", sorted(TAGGED))
def test_a_body_that_the_client_has_is_not_sent_again(
    api: Api, paths: dict[str, str], statements: list[str], operation: str
) -> None:
    path = paths[operation]
    first = ask(api, path)
    etag = first.headers["etag"]
    assert etag.startswith('"')
    statements.clear()
    for tags in ((etag,), (f"W/{etag}",), ('"another"', etag), ("*",)):
        again = ask(api, path, *tags)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert not {"content-type", "content-length"} & again.headers.keys()
        assert again.headers["cache-control"] == "no-store"
        assert "x-request-id" in again.headers
    assert len(statements) == 4 * (4 if operation == "get_checkout" else 2)  # the key, and the data of the body
    for tags in ((), ('"another"',), ("nonsense", ",")):
        again = ask(api, path, *tags)
        assert (again.status_code, again.content, again.headers["etag"]) == (200, first.content, etag)


def test_a_tag_changes_with_the_body(api: Api, paths: dict[str, str]) -> None:
    before = {name: ask(api, path).headers["etag"] for name, path in paths.items()}
    api.book(paths["get_departure"].rpartition("/")[2])
    after = {name: ask(api, path, before[name]).status_code for name, path in paths.items()}
    changed = {"list_availability", "list_departures", "get_departure"}
    assert after == {name: 200 if name in changed else 304 for name in paths}
    reader = api.with_scopes(Scope.BOOKINGS_READ)  # gets another body, without the guest's link
    assert ask(reader, paths["get_booking"], before["get_booking"]).status_code == 200


def test_the_key_and_the_scope_are_checked_first(api: Api, paths: dict[str, str]) -> None:
    nobody = Api(api.client, api.world, "svc_" + "a" * 40)
    refused(ask(nobody, paths["get_booking"], "*"), 401, "api_key_invalid")
    blind = api.with_scopes(Scope.CUSTOMERS_READ)
    refused(ask(blind, paths["get_booking"], "*"), 403, "insufficient_scope")
    refused(ask(api, f"/bookings/{uuid.uuid4()}", "*"), 404, "not_found")


def test_lists_of_people_and_their_bookings_have_no_tag(api: Api, paths: dict[str, str]) -> None:
    for path in ("/bookings", "/customers", "/gift-cards", "/events", "/me"):
        assert "etag" not in ask(api, path, "*").headers


def test_an_experience_has_one_body_and_one_tag_for_every_language(api: Api) -> None:
    experience = api.world.experience()
    paths = (f"/experiences/{experience}", "/experiences")
    before = [ask(api, path).headers["etag"] for path in paths]
    texts = {"de": {"title": "Fjordkajak", "price_tiers": {"adult": "Erwachsene"}}}
    api.world.change(tables.experiences, experience, translations=json.dumps(texts))
    for path, former in zip(paths, before, strict=True):
        first = ask(api, path, former)
        assert (first.status_code, first.headers["etag"] != former) == (200, True)
        body = first.json()
        body = body["data"][0] if "data" in body else body
        assert body["title"] == "Fjord kayak"
        assert body["translations"]["de"]["title"] == "Fjordkajak"
        assert body["translations"]["de"]["price_tiers"] == {"adult": "Erwachsene"}
        for accepted in ("de", "fr;q=0.8, de", "*"):
            for tags, status in (({}, 200), ({"If-None-Match": first.headers["etag"]}, 304)):
                again = api.call("GET", path, headers={"Accept-Language": accepted, **tags})
                assert (again.status_code, again.headers["etag"]) == (status, first.headers["etag"])
                assert again.content == (first.content if status == 200 else b"")
