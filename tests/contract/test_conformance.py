"""`booking conformance`: the service keeps the contract, and each planted deviation of a proxy in front is noticed."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.api.api import Api
from support.api.refusals import nothing_changes
from support.world.world import DAY, NOON

from booking_cli.client.conformance import CHECKS, Missing, Outcome, examine
from booking_core.models.scopes import Scope

Answer = httpx.Response
Change = Callable[[httpx.Request, Answer], Answer | None]
"""Changes an answer; None leaves it as it is."""


class Proxy(httpx.BaseTransport):
    """A proxy in front of the service, which changes its answers."""

    def __init__(self, api: Api, change: Change) -> None:
        self.api = api
        self.change = change

    def handle_request(self, request: httpx.Request) -> Answer:
        answer = self.api.client.request(
            request.method,
            str(request.url),
            content=request.read(),
            headers=dict(request.headers),
            follow_redirects=False,
        )
        headers = [(name, value) for name, value in answer.headers.items() if name != "content-length"]
        plain = Answer(answer.status_code, headers=headers, content=answer.content, request=request)
        return self.change(request, plain) or plain


def outcomes(api: Api, change: Change = lambda request, answer: None) -> list[Outcome]:
    with httpx.Client(base_url="http://testserver", transport=Proxy(api, change)) as client:
        return list(examine(client, api.key))


@pytest.fixture
def shop(sandbox: Api) -> Api:
    """A sandbox with a departure and some bookings."""
    departure = sandbox.world.departure(sandbox.world.experience(), seats=40, starts_at=NOON + 10 * DAY)
    for _ in range(2):
        assert sandbox.book(departure).status_code == 201
    return sandbox


def test_the_service_keeps_the_whole_contract(shop: Api) -> None:
    results = outcomes(shop)
    assert [(outcome.check, outcome.reason) for outcome in results if outcome.status != "kept"] == []
    assert [outcome.check for outcome in results] == [check.sentence for check in CHECKS]


def test_only_a_sandbox_is_examined(api: Api) -> None:
    with nothing_changes(api.world), pytest.raises(Missing, match="The organization of the key is not a sandbox"):
        outcomes(api)


def test_a_key_that_is_not_accepted_is_named(shop: Api) -> None:
    with pytest.raises(Missing, match="The key is not accepted"):
        outcomes(Api(shop.client, shop.world, "svc_unknown"))


def test_a_check_whose_scope_is_missing_is_skipped(shop: Api) -> None:
    skipped = {one.reason for one in outcomes(shop.with_scopes(Scope.BOOKINGS_READ)) if one.status == "skipped"}
    assert "the key lacks availability:read, bookings:write" in skipped
    assert "the key lacks webhooks:manage" in skipped


# Planted deviations --------------------------------------------------------------------------------------------------


def status(path: str, old: int, new: int) -> Change:
    def change(request: httpx.Request, answer: Answer) -> None:
        if re.search(path, request.url.path) and answer.status_code == old:
            answer.status_code = new

    return change


def body(pattern: str, replacement: str, path: str = "") -> Change:
    def change(request: httpx.Request, answer: Answer) -> Answer:
        content = answer.text if not re.search(path, request.url.path) else re.sub(pattern, replacement, answer.text)
        return Answer(answer.status_code, headers=answer.headers, text=content, request=request)

    return change


def without(name: str, path: str = "") -> Change:
    """Drop a header."""

    def change(request: httpx.Request, answer: Answer) -> None:
        if re.search(path, request.url.path) and name in answer.headers:
            del answer.headers[name]

    return change


def added(name: str, value: str) -> Change:
    def change(request: httpx.Request, answer: Answer) -> None:
        answer.headers[name] = value

    return change


def edited(path: str, edit: Callable[[Any], object]) -> Change:
    """Edit the JSON of successful answers to GET."""

    def change(request: httpx.Request, answer: Answer) -> Answer | None:
        if request.method != "GET" or answer.status_code != 200 or not re.search(path, request.url.path):
            return None
        value = answer.json()
        edit(value)
        headers = {**answer.headers, "content-type": "application/json"}
        return Answer(200, headers=headers, content=json.dumps(value), request=request)

    return change


def cached(path: str) -> Change:
    """Answer each GET of a path as the first time."""
    answers: dict[str, bytes] = {}

    def change(request: httpx.Request, answer: Answer) -> Answer | None:
        if request.method != "GET" or not re.search(path, request.url.path):
            return None
        content = answers.setdefault(str(request.url), answer.content)
        return Answer(answer.status_code, headers=answer.headers, content=content, request=request)

    return change


DEVIATIONS: dict[str, Change] = {
    "a created booking is 200": status("/bookings$", 201, 200),
    "a cancellation is 202": status("/cancel$", 200, 202),
    "a new customer is 200": status("/customers$", 201, 200),
    "unknown is 410": status("/bookings/", 404, 410),
    "too few seats is 400": status("/bookings$", 409, 400),
    "a reused key is 409": status("/bookings$", 422, 409),
    "no key is 403": status("/me$", 401, 403),
    "a wide window is 400": status("/availability$", 422, 400),
    "a deleted endpoint is 200": status("/webhooks/", 204, 200),
    "a wrong method is 404": status("/me$", 405, 404),
    "codes in capitals": body(r'"code":"([a-z_]+)"', lambda match: f'"code":"{match[1].upper()}"'),  # type: ignore[arg-type]
    "refusals without a code": body(r',?"code":"[a-z_]+"', ""),
    "refusals without a text": body(r'"error":"[^"]+"', '"error":""'),
    "seats of a refusal are dropped": body(r',"seats_available":\d+', "", "/bookings$"),
    "amounts as texts": body(r'"amount_minor":(-?\d+)', r'"amount_minor":"\1"'),
    "amounts in major units": body(r'"amount_minor":(\d+)00\b', r'"amount_minor":\1', "/bookings"),
    "timestamps in UTC": body(r"T(\d\d):(\d\d:\d\d)\+01:00", r"T\1:\2+00:00"),
    "booking numbers are dropped": body(r'"booking_number":\d+,', ""),
    "the source is another": body(r'"source":"api"', '"source":"online"'),
    "statuses in capitals": body(r'"status":"confirmed"', '"status":"CONFIRMED"'),
    "no link is absent": body(r',"manage_url":null', ""),
    "the version is another": body("2026-09-09", "2026-09-01"),
    "the prefix is cut": body(r'"prefix":"svc_\w+"', '"prefix":"svc_"', "/me$"),
    "links in events": body(r'"manage_url":null', '"manage_url":"https://example.com/x"', "/events"),
    "secrets in lists": body(r'"url":"https://receiver', '"secret":"whsec_x","url":"https://receiver', "/webhooks$"),
    "the secret has no prefix": body(r'"secret":"whsec_', '"secret":"', "/webhooks$"),
    "no request id": without("x-request-id"),
    "the request id is another": added("x-request-id", "0123456789abcdef"),
    "replays are not marked": without("idempotent-replayed"),
    "every answer is a replay": added("idempotent-replayed", "true"),
    "answers may be stored": added("cache-control", "public, max-age=60"),
    "answers as HTML": added("content-type", "text/html"),
    "a sunset": added("sunset", "Sat, 01 Jan 2028 00:00:00 GMT"),
    "no list of methods": without("allow"),
    "departures are cached": cached("/departures/"),
    "bookings are cached": cached("/bookings/"),
    "one row is lost": edited("/bookings$", lambda page: page["data"][:1] and page["data"].pop()),
    "a list in one order": edited("/bookings$", lambda page: page["data"].sort(key=lambda item: item["id"])),
    "the feed oldest first": edited("/events$", lambda page: page["data"].reverse()),
    "pages never end": edited("/availability$", lambda page: page.update(has_more=True)),
    "filters are ignored": edited(
        "/customers$", lambda page: page["data"].append(page["data"][0] | {"email": "x@y.z"})
    ),
    "an event type is renamed": edited(
        "/events", lambda page: [event.update(type="booking.made") for event in page.get("data", ())]
    ),
    "events without a resource": edited(
        "/events", lambda page: [event.pop("resource_id") for event in page.get("data", ())]
    ),
}


def test_at_least_thirty_deviations_are_planted() -> None:
    assert len(DEVIATIONS) >= 30


def test_a_failure_that_checks_share_makes_one_booking(shop: Api) -> None:
    before = len(shop.get("/bookings").json()["data"])
    broken = [one for one in outcomes(shop, status("/bookings$", 201, 200)) if one.status == "broken"]
    shared = [one for one in broken if one.reason == "the status of POST /api/v1/bookings is 200 and not 201"]
    assert len(shared) > 2
    assert len(shop.get("/bookings", limit=100).json()["data"]) - before < len(shared)


@pytest.mark.one_database
@pytest.mark.exhaustive(but=("a created booking is 200", "bookings are cached"))
@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_a_planted_deviation_is_noticed(shop: Api, deviation: str) -> None:
    broken = [one for one in outcomes(shop, DEVIATIONS[deviation]) if one.status == "broken"]
    assert broken
    assert all(one.reason for one in broken)
