"""The order of refusals, their content, and data that they never show or change (decisions R1, R3, B4, I3)."""

import itertools
import json
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.api.api import Api, booking_body, fresh_key
from support.api.raw import RawAnswer, call
from support.api.refusals import CODES, nothing_changes, refused, rows_of
from support.world.world import DAY, NOON, World

from booking_core.base.errors import BookingError, Unavailable
from booking_core.base.settings import RateLimit
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.models.errors import ErrorCode
from booking_core.models.scopes import Scope
from booking_server.api.errors import STATUS

pytestmark = pytest.mark.one_database


CANARY = "Zq7canary"
LIMIT = RateLimit(50, 3600)
NOBODY = "00000000-0000-4000-8000-000000000000"
TOO_WIDE = "from=2026-01-01&to=2027-01-01"
FIRST_ADDRESS = int(IPv4Address("10.0.0.1"))
_addresses = itertools.count()
"""Each attempt comes from another address: one address may fail 60 times a minute."""


@dataclass
class Attempt:
    """A request to book that would succeed, until something is done to it or to the world around it."""

    client: TestClient
    world: World
    method: str = "POST"
    path: str = "/api/v1/bookings"
    departure: str = ""
    key: str = ""
    authorization: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    padding: int = 0
    is_cut: bool = False
    is_running: bool = False

    def __post_init__(self) -> None:
        self.departure = self.world.departure(self.world.experience(), seats=12)
        self.key = self.world.key()
        self.authorization = [f"Bearer {self.key}"]
        self.headers = {"content-type": "application/json", "idempotency-key": fresh_key()}
        self.body = booking_body(self.departure)
        self.address = str(IPv4Address(FIRST_ADDRESS + next(_addresses)))

    @property
    def service(self) -> Any:
        return self.client.app.state.service  # type: ignore[attr-defined]

    def key_row(self) -> dict[str, Any]:
        (row,) = self.world.rows(tables.api_keys)
        return row

    def change_key(self, **columns: Any) -> None:
        self.world.change(tables.api_keys, self.key_row()["id"], **columns)

    def change_organization(self, **columns: Any) -> None:
        self.world.change(tables.organizations, self.world.org, **columns)

    def change_departure(self, **columns: Any) -> None:
        self.world.change(tables.departures, self.departure, **columns)

    def send(self) -> RawAnswer:
        headers = [*self.headers.items(), *(("authorization", value) for value in self.authorization)]
        content = json.dumps(self.body).encode().ljust(self.padding)
        pieces = [content[: len(content) // 2] if self.is_cut else content]
        # The mark of a request of this process that has not been answered yet.
        sent = {name: value.encode() for name, value in headers}
        mark = (sent.get("authorization"), sent.get("idempotency-key"))
        with self.service.key_in_use(mark) if self.is_running else nullcontext():
            return call(self.client, self.method, self.path, headers=headers, pieces=pieces, address=self.address)


def use_up_the_limit(attempt: Attempt) -> None:
    for _ in range(LIMIT.requests):
        attempt.service.authenticator.limiter.take(f"key:{attempt.key_row()['id']}", LIMIT)


def use_the_key_for_something_else(attempt: Attempt) -> None:
    other = attempt.world.departure(attempt.world.experience())
    good = booking_body(other, note="the first request with this key")
    headers = [*attempt.headers.items(), ("authorization", attempt.authorization[0])]
    first = call(attempt.client, "POST", "/api/v1/bookings", headers=headers, pieces=[json.dumps(good).encode()])
    assert first.status_code == 201


@dataclass(frozen=True)
class Fault:
    """A fault in a request, and the response to it."""

    name: str
    status: int
    code: str
    commit: Callable[[Attempt], object]
    excludes: tuple[str, ...] = ()
    """Faults that cannot be committed in the same request."""


def book_99(tier: str) -> Callable[[Attempt], object]:
    return lambda attempt: attempt.body.update(guests=[{"tier_id": tier, "count": 99}])


FAULTS = [
    Fault("no-path", 404, "not_found", lambda a: setattr(a, "path", "/api/v1/booking")),
    Fault("no-method", 405, "method_not_allowed", lambda a: setattr(a, "method", "PUT")),
    Fault("key-missing", 401, "api_key_missing", lambda a: a.authorization.clear(), ("key-invalid",)),
    Fault("key-invalid", 401, "api_key_invalid", lambda a: a.authorization.append("Bearer svc_another")),
    Fault("key-revoked", 401, "api_key_revoked", lambda a: a.change_key(revoked_at=NOON)),
    Fault("key-expired", 401, "api_key_expired", lambda a: a.change_key(expires_at=NOON)),
    Fault("rate-limited", 429, "rate_limited", use_up_the_limit),
    Fault("app-off", 403, "app_not_enabled", lambda a: a.change_organization(api_app=False)),
    Fault("plan-without", 403, "plan_upgrade_required", lambda a: a.change_organization(plan_api=False)),
    Fault("no-scope", 403, "insufficient_scope", lambda a: a.change_key(scopes=json.dumps([Scope.BOOKINGS_READ]))),
    Fault(
        "no-idempotency-key",
        400,
        "idempotency_key_required",
        lambda a: a.headers.pop("idempotency-key"),
        ("short-idempotency-key",),
    ),
    Fault("short-idempotency-key", 400, "validation_failed", lambda a: a.headers.update({"idempotency-key": "short"})),
    Fault("too-large", 413, "payload_too_large", lambda a: setattr(a, "padding", 300_000), ("no-json",)),
    Fault("no-json-said", 415, "unsupported_media_type", lambda a: a.headers.update({"content-type": "text/plain"})),
    Fault("no-json", 400, "validation_failed", lambda a: setattr(a, "is_cut", True)),
    Fault("bad-field", 400, "validation_failed", lambda a: a.body.update(payment="card")),
    Fault("in-progress", 409, "idempotency_in_progress", lambda a: setattr(a, "is_running", True)),
    Fault("key-reused", 422, "idempotency_key_reused", use_the_key_for_something_else),
    Fault("no-departure", 404, "not_found", lambda a: a.body.update(experience_date_id=str(uuid.uuid4()))),
    Fault("cancelled", 409, "conflict", lambda a: a.change_departure(status="cancelled"), ("closed",)),
    Fault("closed", 409, "conflict", lambda a: a.change_departure(status="closed")),
    Fault("started", 409, "conflict", lambda a: a.change_departure(starts_at=NOON - DAY)),
    Fault("no-tier", 422, "validation_failed", book_99("none"), ("no-seats",)),
    Fault("no-add-on", 422, "validation_failed", lambda a: a.body.update(add_ons=[{"id": "none", "count": 1}])),
    Fault("no-seats", 409, "insufficient_capacity", book_99("adult")),
]
"""Everything that can be wrong with a request to book, in the order of the checks."""

REASONS = {
    "cancelled": "departure_cancelled",
    "closed": "departure_closed",
    "started": "departure_started",
    "no-tier": "unknown_tier",
    "no-add-on": "unknown_add_on",
}
STORED = {"no-departure", "cancelled", "closed", "started", "no-tier", "no-add-on", "no-seats"}
"""Refusals that were reached by executing, and so are kept for the idempotency key."""

PAIRS = [
    pytest.param(earlier, later, id=f"{earlier.name}-before-{later.name}")
    for place, earlier in enumerate(FAULTS, start=1)
    for later in [fault for fault in FAULTS[place:] if fault.name not in earlier.excludes][:3]
]
"""Each fault with the next three: a check in another place is in the wrong order with one of its neighbours."""


def check(answer: RawAnswer, fault: Fault) -> None:
    body = refused(answer, fault.status, fault.code)
    if reason := REASONS.get(fault.name):
        assert body["details"][0]["reason"] == reason


@pytest.mark.parametrize(("earlier", "later"), PAIRS)
def test_of_two_faults_the_first_one_checked_is_reported(
    limited_app: TestClient, world: World, earlier: Fault, later: Fault
) -> None:
    attempt = Attempt(limited_app, world)
    later.commit(attempt)
    earlier.commit(attempt)
    check(attempt.send(), earlier)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_an_error_changes_no_row_and_is_stored_only_after_execution(
    limited_app: TestClient, world: World, fault: Fault
) -> None:
    attempt = Attempt(limited_app, world)
    fault.commit(attempt)
    before = rows_of(world)
    with nothing_changes(world, leaving_out={"idempotency"}):
        answer = attempt.send()
    check(answer, fault)
    stored = len(rows_of(world)["idempotency"]) - len(before["idempotency"])
    assert stored == (fault.name in STORED)
    if fault.name in STORED:
        again = attempt.send()
        check(again, fault)
        assert again.content == answer.content
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["x-request-id"] != answer.headers["x-request-id"]


def test_without_a_fault_the_request_succeeds(limited_app: TestClient, world: World) -> None:
    assert Attempt(limited_app, world).send().status_code == 201


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.name != "key-reused"], ids=lambda fault: fault.name
)
def test_a_stored_response_is_returned_after_the_checks_and_before_the_operation(
    limited_app: TestClient, world: World, fault: Fault
) -> None:
    attempt = Attempt(limited_app, world)
    first, body = attempt.send(), dict(attempt.body)
    fault.commit(attempt)
    answer = attempt.send()
    if fault.name not in STORED:
        check(answer, fault)
    elif attempt.body == body:
        assert (answer.status_code, answer.content) == (201, first.content)
        assert answer.headers["idempotent-replayed"] == "true"
    else:
        refused(answer, 422, "idempotency_key_reused")


CANCELLING = [
    ("no-idempotency-key", 400, "idempotency_key_required"),
    ("bad-id", 404, "not_found"),
    ("too-large", 413, "payload_too_large"),
    ("no-json-said", 415, "unsupported_media_type"),
    ("bad-field", 400, "validation_failed"),
    ("no-booking", 404, "not_found"),
]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [pair for pair in itertools.combinations(CANCELLING, 2) if {pair[0][0], pair[1][0]} != {"bad-id", "no-booking"}],
    ids=lambda fault: fault[0],
)
def test_cancelling_looks_at_header_path_and_body_in_this_order(
    api: Api, earlier: tuple[str, int, str], later: tuple[str, int, str]
) -> None:
    faults = {earlier[0], later[0]}
    booking = api.book(api.world.departure(api.world.experience())).json()["id"]
    row_id = "abc" if "bad-id" in faults else str(uuid.uuid4()) if "no-booking" in faults else booking
    headers = {} if "no-idempotency-key" in faults else {"Idempotency-Key": fresh_key()}
    headers["Content-Type"] = "text/plain" if "no-json-said" in faults else "application/json"
    content = (b'{"refund":"AUTO"}' if "bad-field" in faults else b"{}").ljust(300_000 if "too-large" in faults else 0)
    answer = api.call("POST", f"/bookings/{row_id}/cancel", content=content, headers=headers)
    refused(answer, earlier[1], earlier[2])


@pytest.mark.parametrize(
    ("scope", "path", "status", "code"),
    [
        (Scope.BOOKINGS_READ, "/gift-cards/abc?include=", 403, "insufficient_scope"),
        (Scope.GIFT_CARDS_READ, "/gift-cards/abc?include=", 404, "not_found"),
        (Scope.GIFT_CARDS_READ, f"/gift-cards/{NOBODY}?include=", 400, "validation_failed"),
        (Scope.BOOKINGS_READ, "/availability?from=x", 403, "insufficient_scope"),
        (Scope.EXPERIENCES_READ, "/events?limit=0", 403, "insufficient_scope"),
        (Scope.EXPERIENCES_READ, "/events/abc", 403, "insufficient_scope"),
        (Scope.BOOKINGS_READ, "/events/abc", 404, "not_found"),
        (Scope.BOOKINGS_READ, "/events?type=customer.created&starting_after=x", 403, "insufficient_scope"),
        (Scope.BOOKINGS_READ, "/events?type=customer.created,unknown", 403, "insufficient_scope"),
        (Scope.AVAILABILITY_READ, f"/availability?{TOO_WIDE}&experience_id=x", 400, "validation_failed"),
        (Scope.AVAILABILITY_READ, f"/availability?{TOO_WIDE}", 422, "validation_failed"),
    ],
    ids=str,
)
def test_reads_check_scope_path_and_query_in_order(api: Api, scope: Scope, path: str, status: int, code: str) -> None:
    refused(api.with_scopes(scope).call("GET", path), status, code)


def places(departure: str) -> dict[str, Callable[[Api], Any]]:
    """Yield every place of a request that can contain invalid text."""
    body, json_headers = booking_body(departure), {"content-type": "application/json"}
    guest = body["customer"]
    return {
        "path": lambda api: api.get(f"/{CANARY}"),
        "path-id": lambda api: api.get(f"/bookings/{CANARY}"),
        "method": lambda api: api.call(CANARY, "/me"),
        "key": lambda api: Api(api.client, api.world, f"svc_{CANARY}").get("/me"),
        "scheme": lambda api: call(api.client, "GET", "/api/v1/me", headers=[("authorization", CANARY)]),
        "query-name": lambda api: api.call("GET", f"/availability?{CANARY}=1"),
        "query-number": lambda api: api.get("/bookings", limit=CANARY),
        "query-word": lambda api: api.get("/bookings", status=CANARY),
        "query-id": lambda api: api.get("/bookings", experience_id=CANARY),
        "query-date": lambda api: api.get("/bookings", departure_from=CANARY),
        "query-instant": lambda api: api.get("/bookings", updated_since=CANARY),
        "query-cursor": lambda api: api.get("/bookings", starting_after=CANARY),
        "query-email": lambda api: api.get("/customers", email=f"{CANARY}\x00"),
        "query-type": lambda api: api.get("/events", type=f"booking.{CANARY}"),
        "query-flag": lambda api: api.get("/experiences", published=CANARY),
        "idempotency-key": lambda api: api.book(departure, key=f"{CANARY}{'x' * 200}"),
        "content-type": lambda api: api.call("POST", "/customers", content=b"{}", headers={"content-type": CANARY}),
        "content-encoding": lambda api: api.call("POST", "/customers", json={}, headers={"content-encoding": CANARY}),
        "no-json": lambda api: api.call("POST", "/customers", content=CANARY, headers=json_headers),
        "broken-json": lambda api: api.call("POST", "/customers", content=f'{{"{CANARY}', headers=json_headers),
        "array": lambda api: api.post("/bookings", [CANARY]),
        "field-name": lambda api: api.post("/bookings", {CANARY: CANARY}),
        "id": lambda api: api.post("/bookings", {**body, "experience_date_id": CANARY}),
        "word": lambda api: api.post("/bookings", {**body, "payment": CANARY}),
        "flag": lambda api: api.post("/bookings", {**body, "notify_staff": CANARY}),
        "lines": lambda api: api.post("/bookings", {**body, "guests": CANARY}),
        "line": lambda api: api.post("/bookings", {**body, "guests": [CANARY]}),
        "count": lambda api: api.post("/bookings", {**body, "guests": [{"tier_id": "adult", "count": CANARY}]}),
        "customer": lambda api: api.post("/bookings", {**body, "customer": CANARY}),
        "name": lambda api: api.post("/bookings", {**body, "customer": {**guest, "name": f"{CANARY}\n"}}),
        "email": lambda api: api.post("/bookings", {**body, "customer": {**guest, "email": CANARY}}),
        "phone": lambda api: api.post("/bookings", {**body, "customer": {**guest, "phone": CANARY * 100}}),
        "note": lambda api: api.post("/bookings", {**body, "note": CANARY * 1_000}),
        "tier": lambda api: api.post("/bookings", {**body, "guests": [{"tier_id": CANARY, "count": 1}]}),
        "add-on": lambda api: api.post("/bookings", {**body, "add_ons": [{"id": CANARY, "count": 1}]}),
        "tag-in-name": lambda api: api.post("/bookings", {**body, "customer": {CANARY: CANARY}}),
    }


STATUSES = {
    "key": 401,
    "scheme": 401,
    "path": 404,
    "path-id": 404,
    "method": 405,
    "content-type": 415,
    "content-encoding": 415,
    "tier": 422,
    "add-on": 422,
}
"""The status of the answer by the place of the word, where it is not 400."""


@pytest.mark.parametrize("place", places(""))
def test_nothing_that_was_sent_is_repeated_in_a_refusal(api: Api, place: str) -> None:
    departure = api.world.departure(api.world.experience())
    answer = places(departure)[place](api)
    body = refused(answer, STATUSES.get(place, 400), answer.json()["code"])
    assert CANARY not in json.dumps(body)
    assert CANARY.lower() not in answer.content.decode().lower()
    assert CANARY not in repr(dict(answer.headers))


def test_every_error_has_one_status_and_a_code_of_the_contract() -> None:
    kinds = set(BookingError.__subclasses__())
    assert kinds == set(STATUS)
    for kind, status in STATUS.items():
        assert kind.code in CODES[status]
    assert {code for codes in CODES.values() for code in codes} == set(ErrorCode)


def test_an_unreachable_database_is_reported_as_unavailable(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Unavailable

    monkeypatch.setattr(departures, "render_available", fail)
    answer = api.get("/availability", **{"from": "2026-11-20"})
    refused(answer, 503, "service_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_detail_names_the_place_in_the_body(api: Api) -> None:
    departure = api.world.departure(api.world.experience())
    lines = [{"tier_id": "adult", "count": 1}, {"tier_id": "adult", "count": 0}, {"count": 1}]
    customer = {"name": "", "email": "nobody"}
    answer = api.post("/bookings", booking_body(departure, guests=lines, customer=customer, payment=None))
    fields = [detail["field"] for detail in refused(answer, 400, "validation_failed")["details"]]
    assert fields == ["guests.1.count", "guests.2.tier_id", "customer.name", "customer.email", "payment"]
