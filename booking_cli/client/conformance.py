"""Black-box checks of the API: a service, or a proxy in front of it, keeps the contract.

Each check sends requests to a sandbox and compares status, headers and bodies with the contract. Expected values are
written here, as a client relies on them; shapes are the API's models, validated strictly.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import httpx
from pydantic import BaseModel, ValidationError

from booking_core.models.base import Resource
from booking_core.models.bookings import Booking
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.events import Event
from booking_core.models.experiences import Experience
from booking_core.models.organizations import Me
from booking_core.models.webhooks import WebhookEndpoint

VERSION = "2026-09-09"
UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"
RECEIVER = "https://receiver.example.com/conformance"
_SEATS = 3
"""The free seats of the departure that is booked."""
_DAYS_AHEAD = 92
_PREFIX_LENGTH = 12


class Deviation(Exception):
    """The service does not keep the contract."""


class Missing(Exception):
    """The sandbox lacks the data or the scope that a check needs."""


@dataclass(frozen=True, slots=True)
class ContractCheck:
    """A check of a sentence of the contract."""

    section: str
    sentence: str
    run: Callable[["Probe"], None]


class Outcome(NamedTuple):
    """The outcome of a check, in the order of the output."""

    status: str
    """`kept`, `broken` or `skipped`."""
    section: str
    check: str
    """The sentence of the contract."""
    reason: str | None


CHECKS: list[ContractCheck] = []
_NO_SANDBOX = {
    401: "The key is not accepted",
    403: "The organization may not use the API",
    409: "The organization of the key is not a sandbox",
}


def check(section: str, sentence: str) -> Callable[[Callable[["Probe"], None]], Callable[["Probe"], None]]:
    """Register a function that checks a sentence of the contract."""

    def register(function: Callable[["Probe"], None]) -> Callable[["Probe"], None]:
        CHECKS.append(ContractCheck(section, sentence, function))
        return function

    return register


def examine(client: httpx.Client, api_key: str) -> Iterator[Outcome]:
    """Run every check, and yield its outcome.

    Args:
        client: with the base URL of the service. It follows no redirects.

    Raises:
        Missing: the key is not accepted, or its organization is not a sandbox.
    """
    probe = Probe(client, api_key)
    answer = probe.call("GET", "/sandbox/clock")
    if answer.status_code != 200:
        raise Missing(_NO_SANDBOX.get(answer.status_code, f"GET /sandbox/clock answered {answer.status_code}"))
    for contract_check in CHECKS:
        status, reason = _outcome(contract_check, probe)
        yield Outcome(status, contract_check.section, contract_check.sentence, reason)


def _outcome(contract_check: ContractCheck, probe: "Probe") -> tuple[str, str | None]:
    try:
        contract_check.run(probe)
    except Missing as missing:
        return "skipped", str(missing)
    except Deviation as deviation:
        return "broken", str(deviation)
    except (KeyError, TypeError, ValueError, httpx.HTTPError) as error:
        return "broken", f"{type(error).__name__}: {error}"
    return "kept", None


# The probe -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Probe:
    """A client of a sandbox, and the resources that several checks share."""

    client: httpx.Client
    api_key: str
    resources: dict[str, Any] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None, **headers: str | None) -> httpx.Response:
        """Send a request with the key. A header that is None is left out; underscores stand for hyphens.

        Args:
            body: a value for JSON, or bytes that are sent as they are.
        """
        fields = {"authorization": f"Bearer {self.api_key}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None:
            sent["content-type"] = "application/json"
        return self.client.request(method, f"/api/v1{path}", content=content, headers=sent)

    def get(self, path: str) -> Any:
        """Return the body of a request that succeeds."""
        return read(self.call("GET", path), 200)

    def post(self, path: str, body: Any, key: str | None = None) -> httpx.Response:
        return self.call("POST", path, body, idempotency_key=key or new_key())

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the shared resource of that name, made by its first use. If that failed, it fails again in the same
        way: nothing more is made."""
        if name not in self.resources:
            try:
                self.resources[name] = make()
            except (Deviation, Missing) as failure:
                self.resources[name] = failure
        if isinstance(resource := self.resources[name], Exception):
            raise resource
        return resource

    def me(self) -> Any:
        return self.once("me", lambda: self.get("/me"))

    def require(self, *scopes: str) -> None:
        """Skip the check without these scopes."""
        missing = [scope for scope in scopes if scope not in self.me()["key"]["scopes"]]
        if missing:
            raise Missing(f"the key lacks {', '.join(missing)}")

    def departure(self) -> Any:
        """Return an open departure with free seats and a tier of one seat."""
        self.require("availability:read", "bookings:read", "bookings:write")
        return self.once("departure", self._find_departure)

    def _find_departure(self) -> Any:
        now = datetime.fromisoformat(self.get("/sandbox/clock")["now"])
        last = (now + timedelta(days=_DAYS_AHEAD)).date()
        departures = self.get(f"/availability?from={now.date()}&to={last}")["data"]
        for departure in departures:
            tiers = [tier for tier in departure["price_tiers"] if tier["seats_per_unit"] == 1]
            if departure["status"] == "open" and departure["seats_available"] >= _SEATS and tiers:
                return departure | {"tier": tiers[0]}
        raise Missing(f"no departure within {_DAYS_AHEAD} days has {_SEATS} free seats and a tier of one seat")

    def order(self, count: int = 1, **over: Any) -> dict[str, Any]:
        departure = self.departure()
        return {
            "experience_date_id": departure["id"],
            "guests": [{"tier_id": departure["tier"]["id"], "count": count}],
            "customer": {"name": "Conformance", "email": f"conformance-{uuid.uuid4().hex[:12]}@example.com"},
            "payment": "external_paid",
            "send_confirmation_email": False,
            "notify_staff": False,
        } | over

    def booking(self) -> tuple[Any, str, dict[str, Any], httpx.Response]:
        """Return a booking with its key, its order and its answer."""

        def make() -> Any:
            key, order = new_key(), self.order()
            answer = self.post("/bookings", order, key)
            return read(answer, 201), key, order, answer

        booking: tuple[Any, str, dict[str, Any], httpx.Response] = self.once("booking", make)
        return booking

    def seats_available(self) -> int:
        return int(self.get(f"/departures/{self.departure()['id']}")["seats_available"])


def new_key() -> str:
    return f"conformance-{uuid.uuid4()}"


def read(answer: httpx.Response, status: int) -> Any:
    """Return the JSON body of an answer with that status."""
    expect(answer.status_code, status, f"the status of {answer.request.method} {answer.request.url.path}")
    expect(answer.headers.get("content-type", "").partition(";")[0], "application/json", "the content type")
    return answer.json()


def expect(value: object, expected: object, name: str) -> None:
    if value != expected:
        raise Deviation(f"{name} is {value!r} and not {expected!r}")


def refused(answer: httpx.Response, status: int, code: str, **fields: object) -> None:
    """Compare a refusal: its status, its code, and fields beside them."""
    body = read(answer, status)
    expect(body.get("code"), code, f"the code of {answer.request.method} {answer.request.url.path}")
    if not isinstance(body.get("error"), str) or not body["error"]:
        raise Deviation("the refusal has no text in `error`")
    for name, expected in fields.items():
        expect(body.get(name), expected, f"`{name}` of the refusal")


def shape(model: type[BaseModel], value: Any) -> None:
    """Compare a resource with its model: each field of the contract, with its type."""
    try:
        model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise Deviation(f"{model.__name__}: {where}: {problem['msg']}") from error
    required = {name for name, info in model.model_fields.items() if info.is_required()}
    if absent := sorted(required - set(value)):
        raise Deviation(f"{model.__name__} has no {', '.join(absent)}")


# 1. Conventions and shapes -------------------------------------------------------------------------------------------


@check("1 Conventions", "Timestamps are ISO 8601 with the UTC offset of the organization's timezone")
def timestamps_have_the_offset_of_the_organization(probe: Probe) -> None:
    zone = ZoneInfo(probe.me()["organization"]["timezone"])
    booking, *_ = probe.booking()
    for text in (booking["created_at"], booking["updated_at"], booking["departure"]["starts_at"]):
        instant = datetime.fromisoformat(text)
        expect(instant.utcoffset(), instant.astimezone(zone).utcoffset(), f"the offset of {text}")


@check("1 Conventions", "A resource that does not exist is answered 404 `not_found`")
def an_unknown_resource_is_not_found(probe: Probe) -> None:
    for collection, scope in (("bookings", "bookings:read"), ("customers", "customers:read")):
        probe.require(scope)
        refused(probe.call("GET", f"/{collection}/{UNKNOWN_ID}"), 404, "not_found")


@check("2 Resources", "`GET /me` answers the organization and the key, and never the secret")
def the_key_and_its_organization_have_their_shape(probe: Probe) -> None:
    body = probe.get("/me")
    shape(Me, body)
    prefix = body["key"]["prefix"]
    if not (len(prefix) >= _PREFIX_LENGTH and probe.api_key.startswith(prefix)):
        raise Deviation(f"the prefix {prefix!r} is not the beginning of the key")
    if probe.api_key in json.dumps(body):
        raise Deviation("the answer contains the secret")


@check("2 Resources", "Each resource of a list has the fields of the contract")
def lists_have_resources_of_their_shape(probe: Probe) -> None:
    lists: Mapping[str, tuple[type[Resource], str]] = {
        "experiences": (Experience, "experiences:read"),
        "bookings": (Booking, "bookings:read"),
        "customers": (Customer, "customers:read"),
    }
    probe.booking()
    for name, (model, scope) in lists.items():
        probe.require(scope)
        page = probe.get(f"/{name}?limit=5")
        expect(set(page) >= {"data", "has_more", "next_cursor"}, True, f"the envelope of /{name}")
        for item in page["data"]:
            shape(model, item)


@check("2 Resources", "A departure has live seats, a price and the end of booking; availability is one page")
def departures_have_their_shape(probe: Probe) -> None:
    day = probe.departure()["starts_at"][:10]
    page = probe.get(f"/availability?from={day}&to={day}")
    expect((page["has_more"], page["next_cursor"]), (False, None), "the end of the page")
    for item in page["data"]:
        shape(Departure, item)


# 4. Endpoints: lists -------------------------------------------------------------------------------------------------


@check("4 Lists", "Pages of a list follow each other by `next_cursor`, in the order that was requested")
def a_walk_sees_each_row_once(probe: Probe) -> None:
    probe.booking()
    both = [probe.get(f"/bookings?limit=100&order={order}") for order in ("desc", "asc")]
    if not both[0]["has_more"]:
        ids = [[item["id"] for item in page["data"]] for page in both]
        expect(ids[0], ids[1][::-1], "the descending list")
    first = probe.get("/bookings?limit=1")
    expect(len(first["data"]), 1, "the size of a page of 1")
    expect(first["has_more"], first["next_cursor"] is not None, "`has_more`")
    if first["has_more"]:
        second = probe.get(f"/bookings?limit=1&starting_after={first['next_cursor']}")
        expect(second["data"][0]["id"], both[0]["data"][1]["id"], "the row of the second page")


@check("4 Lists", "`limit` is 1 to 100, and 25 by default")
def a_page_has_25_rows_by_default(probe: Probe) -> None:
    probe.require("bookings:read")
    expect(len(probe.get("/bookings")["data"]), len(probe.get("/bookings?limit=25")["data"]), "the default size")
    for limit in (0, 101):
        refused(probe.call("GET", f"/bookings?limit={limit}"), 400, "validation_failed")


@check("4 Lists", "A cursor that the service did not issue answers 400 `validation_failed`")
def a_forged_cursor_is_refused(probe: Probe) -> None:
    probe.require("bookings:read")
    refused(probe.call("GET", "/bookings?starting_after=forged"), 400, "validation_failed")


@check("4 Lists", "Filters select the rows with their value, and no others")
def a_filter_is_exact(probe: Probe) -> None:
    booking, *_ = probe.booking()
    for status in ("confirmed", "cancelled"):
        page = probe.get(f"/bookings?status={status}&limit=100")
        expect({item["status"] for item in page["data"]} <= {status}, True, f"a list of {status} bookings alone")
    customers = probe.get(f"/customers?email={booking['customer']['email']}")["data"]
    expect([item["email"] for item in customers], [booking["customer"]["email"]], "the customers with an address")


@check("4 Availability", "A window of more than 92 days answers 422 `validation_failed`; `from` is required")
def a_window_has_92_days_at_most(probe: Probe) -> None:
    probe.require("availability:read")
    first = date.fromisoformat(probe.get("/sandbox/clock")["now"][:10])
    read(probe.call("GET", f"/availability?from={first}&to={first + timedelta(days=92)}"), 200)
    wide = f"/availability?from={first}&to={first + timedelta(days=93)}"
    refused(probe.call("GET", wide), 422, "validation_failed")
    refused(probe.call("GET", "/availability"), 400, "validation_failed")


# 4. Endpoints: bookings and customers --------------------------------------------------------------------------------


@check(
    "4 Bookings",
    "A booking is answered 201, confirmed, with source `api` and the price of its tier, and takes its seats",
)
def a_booking_is_confirmed_and_takes_its_seats(probe: Probe) -> None:
    before = probe.seats_available()
    body = read(probe.post("/bookings", probe.order(count=2)), 201)
    shape(Booking, body)
    price = probe.departure()["tier"]["price"]
    expect((body["status"], body["source"]), ("confirmed", "api"), "status and source")
    total = {"amount_minor": 2 * price["amount_minor"], "currency": price["currency"]}
    expect(body["totals"]["total"], total, "the total")
    expect(probe.seats_available(), before - 2, "the free seats after it")
    expect(probe.get(f"/bookings/{body['id']}"), body, "the booking as it is read")
    read(probe.post(f"/bookings/{body['id']}/cancel", {}), 200)
    expect(probe.seats_available(), before, "the free seats after its cancellation")


@check("4 Bookings", "A booking without an `Idempotency-Key` answers 400 `idempotency_key_required`")
def a_key_is_required(probe: Probe) -> None:
    answer = probe.call("POST", "/bookings", probe.order())
    refused(answer, 400, "idempotency_key_required")


@check("4 Bookings", "Too many guests answer 409 `insufficient_capacity` with `seats_available`")
def seats_that_are_missing_are_counted(probe: Probe) -> None:
    free = probe.seats_available()
    answer = probe.post("/bookings", probe.order(count=free + 1))
    refused(answer, 409, "insufficient_capacity", seats_available=free)


@check("4 Bookings", "An unknown departure answers 404, an unknown tier 422, and a malformed field 400")
def an_invalid_order_books_nothing(probe: Probe) -> None:
    refused(probe.post("/bookings", probe.order(experience_date_id=UNKNOWN_ID)), 404, "not_found")
    tier = probe.order(guests=[{"tier_id": "no-such-tier", "count": 1}])
    refused(probe.post("/bookings", tier), 422, "validation_failed")
    overs: list[dict[str, Any]] = [{"payment": "card"}, {"note": "x" * 2001}, {"guests": []}]
    for over in overs:
        refused(probe.post("/bookings", probe.order(**over)), 400, "validation_failed")


@check("4 Bookings", "A cancelled booking stays cancelled, and is answered 200 unchanged")
def a_cancellation_may_be_repeated(probe: Probe) -> None:
    booking = read(probe.post("/bookings", probe.order()), 201)
    expect(probe.get(f"/bookings/{booking['id']}"), booking, "the booking before it")
    first = read(probe.post(f"/bookings/{booking['id']}/cancel", {"reason": "conformance"}), 200)
    expect(first["status"], "cancelled", "the status")
    expect(read(probe.post(f"/bookings/{booking['id']}/cancel", {}), 200), first, "the second answer")
    expect(probe.get(f"/bookings/{booking['id']}"), first, "the booking as it is read")


@check("4 Customers", "A new address answers 201, a known one 200 with the existing customer")
def a_customer_is_made_once(probe: Probe) -> None:
    probe.require("customers:read", "customers:write")
    address = f"conformance-{uuid.uuid4().hex[:12]}@example.com"
    first = read(probe.call("POST", "/customers", {"email": address, "name": "Ada"}), 201)
    shape(Customer, first)
    second = read(probe.call("POST", "/customers", {"email": address, "name": "Bob"}), 200)
    expect(second, first, "the customer of the second request")


@check("4 Idempotency", "A repeated key replays status and body, with `Idempotent-Replayed: true`, and books nothing")
def a_repeated_request_is_replayed(probe: Probe) -> None:
    _, key, order, answer = probe.booking()
    free = probe.seats_available()
    again = probe.post("/bookings", order, key)
    expect(again.status_code, answer.status_code, "the status of the replay")
    expect(again.content, answer.content, "the body of the replay")
    expect(again.headers.get("idempotent-replayed"), "true", "`Idempotent-Replayed`")
    expect(answer.headers.get("idempotent-replayed"), None, "`Idempotent-Replayed` of the first answer")
    expect(probe.seats_available(), free, "the free seats")


@check("4 Idempotency", "The key of another body answers 422 `idempotency_key_reused`")
def a_key_of_another_body_is_refused(probe: Probe) -> None:
    _, key, order, _ = probe.booking()
    refused(probe.post("/bookings", order | {"note": "other"}, key), 422, "idempotency_key_reused")


# 5. Authentication ---------------------------------------------------------------------------------------------------


@check(
    "5 Authentication", "A request without a key answers 401 `api_key_missing`, with a wrong one 401 `api_key_invalid`"
)
def a_request_without_a_key_is_refused(probe: Probe) -> None:
    refused(probe.call("GET", "/me", authorization=None), 401, "api_key_missing")
    refused(probe.call("GET", "/me", authorization="Bearer svc_" + "x" * 40), 401, "api_key_invalid")


@check("5 Authentication", "`GET /openapi.json` needs no key, and has the version of the resource shapes")
def the_description_needs_no_key(probe: Probe) -> None:
    body = read(probe.call("GET", "/openapi.json", authorization=None), 200)
    expect(body["info"]["version"], VERSION, "the version")
    for path in ("/api/v1/bookings", "/api/v1/events/{id}", "/api/v1/webhooks/{id}/test"):
        expect(path in body["paths"], True, f"{path} in the description")


@check("5 Authentication", "An answer with the data of an organization is not stored by others, and names its request")
def no_answer_is_cached(probe: Probe) -> None:
    answer = probe.call("GET", "/me")
    control = answer.headers.get("cache-control", "")
    expect("no-store" in control or "private" in control, True, f"`Cache-Control: {control}` of private data")
    expect(bool(answer.headers.get("x-request-id")), True, "`X-Request-Id` of the answer")
    sent = f"conformance-{uuid.uuid4().hex[:8]}"
    expect(probe.call("GET", "/me", x_request_id=sent).headers.get("x-request-id"), sent, "`X-Request-Id`")


# 6. Events -----------------------------------------------------------------------------------------------------------


@check(
    "6 Events",
    "A booking is published as `booking.created`, then `booking.confirmed`, in its shape of the API without a link",
)
def a_booking_has_its_events(probe: Probe) -> None:
    booking, *_ = probe.booking()
    page = probe.get(f"/events?resource_id={booking['id']}&order=asc")
    events = page["data"]
    expect([event["type"] for event in events][:2], ["booking.created", "booking.confirmed"], "the types")
    for event in events:
        shape(Event, event)
        expect(event["api_version"], VERSION, "`api_version`")
        expect(event["data"]["object"]["manage_url"], None, "`manage_url` in an event")
        expect((event["resource_type"], event["resource_id"]), ("booking", booking["id"]), "the resource")
    published, current = events[0]["data"]["object"], booking | {"manage_url": None}
    for name in ("id", "booking_number", "totals", "guests", "departure", "created_at"):
        expect(published[name], current[name], f"`{name}` of the event")
    expect(probe.get(f"/events/{events[0]['id']}"), events[0], "the event by its id")


@check("6 Events", "Events are listed newest first")
def the_feed_begins_with_the_newest(probe: Probe) -> None:
    probe.booking()
    instants = [datetime.fromisoformat(event["created_at"]) for event in probe.get("/events?limit=20")["data"]]
    expect(instants, sorted(instants, reverse=True), "the order of the feed")


@check("6 Webhooks", "An endpoint is created with a secret that begins with `whsec_`, which no later answer shows")
def a_secret_is_shown_once(probe: Probe) -> None:
    probe.require("webhooks:manage", "bookings:read")
    answer = probe.call("POST", "/webhooks", {"url": RECEIVER, "event_types": ["booking.created"]})
    created = read(answer, 201)
    try:
        expect(created["secret"].startswith("whsec_"), True, "the prefix of the secret")
        listed = next(item for item in probe.get("/webhooks")["data"] if item["id"] == created["id"])
        shape(WebhookEndpoint, listed)
        expect("whsec_" in json.dumps(listed), False, "a secret in the list of endpoints")
        read(probe.call("GET", f"/webhooks/{created['id']}/deliveries"), 200)
        refused(probe.call("POST", "/webhooks", {"url": RECEIVER, "event_types": ["ping"]}), 400, "validation_failed")
    finally:
        deleted = probe.call("DELETE", f"/webhooks/{created['id']}")
    expect(deleted.status_code, 204, "the status of the deletion")
    refused(probe.call("GET", f"/webhooks/{created['id']}"), 404, "not_found")


# 7. Errors, 8. Limits and 9. Versions --------------------------------------------------------------------------------


@check("7 Errors", "A malformed body answers 400 `validation_failed`, and an unknown path 404 `not_found`")
def bodies_that_are_no_json_are_refused(probe: Probe) -> None:
    refused(probe.call("POST", "/bookings", b"{", idempotency_key=new_key()), 400, "validation_failed")
    refused(probe.call("GET", "/no-such-path"), 404, "not_found")


@check("8 Limits", "An `Idempotency-Key` has 8 to 200 characters")
def a_key_has_8_to_200_characters(probe: Probe) -> None:
    for length, status in ((7, 400), (8, 201), (200, 201), (201, 400)):
        answer = probe.post("/bookings", probe.order(), uuid.uuid4().hex[:8].ljust(length, "k")[:length])
        expect(answer.status_code, status, f"the status with a key of {length} characters")
        if status == 201:
            read(probe.post(f"/bookings/{answer.json()['id']}/cancel", {}), 200)


@check("9 Versions", "Responses have no `Deprecation` or `Sunset` header; a wrong method answers 405 with `Allow`")
def a_version_in_use_announces_no_end(probe: Probe) -> None:
    answer = probe.call("GET", "/me")
    expect([name for name in ("deprecation", "sunset") if name in answer.headers], [], "the headers of a deprecation")
    answer = probe.call("DELETE", "/me")
    expect(answer.status_code, 405, "the status of DELETE /me")
    expect("GET" in answer.headers.get("allow", ""), True, "`Allow`")
