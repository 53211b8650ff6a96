"""Webhook endpoints and their log, as a client sees them (API v1 sections 3, 4 and 6, decisions W1 to W8)."""

import json
import re
import uuid
from typing import Any

import httpx
import pytest
from support.api import raw
from support.api.api import Api, body_of
from support.api.endpoints import DOCUMENT, OPERATIONS, Operation
from support.api.refusals import conflict_reason, field_of, invalid_field, nothing_changes, refused
from support.world.hooks import Hooks, queue_rows
from support.world.world import DAY, HOUR, NOON, FixedClock

from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.events import FAMILIES, SUBSCRIBABLE, EventType
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.models.webhooks import Delivery, WebhookEndpoint, WebhookEndpointWithSecret
from booking_core.webhooks import upkeep

URL = "https://receiver.example/hook"
PRIVATE = "https://private.example/hook"
ISO_NOON = "2026-11-21T13:00:00+01:00"


class Dns:
    """An address check that records the URLs; one of them is private."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def __call__(self, url: str) -> bool:
        self.urls.append(url)
        return url != PRIVATE


@pytest.fixture(autouse=True)
def dns(api: Api, monkeypatch: pytest.MonkeyPatch) -> Dns:
    looked_up = Dns()
    monkeypatch.setattr(api.client.app.state.service, "is_public_address", looked_up)  # type: ignore[attr-defined]
    return looked_up


def body(*types: str, **over: Any) -> dict[str, Any]:
    return {"url": URL, "event_types": list(types or ("booking.created",))} | over


def create(api: Api, *types: str, **over: Any) -> dict[str, Any]:
    return dict(body_of(api.call("POST", "/webhooks", json=body(*types, **over)), 201))


def change(api: Api, endpoint_id: str, **fields: Any) -> httpx.Response:
    return api.call("PATCH", f"/webhooks/{endpoint_id}", json=fields)


def book(api: Api) -> None:
    """Tells booking.created, booking.confirmed and, the first time, customer.created."""
    assert api.book(api.world.departure(api.world.experience())).status_code == 201


def log(api: Api, endpoint_id: str, **params: Any) -> list[dict[str, Any]]:
    return list(body_of(api.get(f"/webhooks/{endpoint_id}/deliveries", **params))["data"])


def dead(api: Api, delivery_id: str, **over: Any) -> None:
    """Write a delivery as the worker leaves it after six failed attempts."""
    queue_rows(api.world)
    ended = {"status": "dead", "failure_reason": "attempts_exhausted", "attempt_count": 6, "next_attempt_at": None}
    api.world.change(tables.deliveries, delivery_id, **(ended | {"completed_at": api.world.clock()} | over))


def attempt(api: Api, delivery_id: str, number: int, **over: Any) -> str:
    queue_rows(api.world)
    row = {"delivery_id": delivery_id, "number": number, "trigger": "scheduled", "started_at": api.world.clock()}
    return api.world.insert(tables.attempts, **(row | over))


@pytest.fixture
def endpoint(api: Api) -> str:
    """An endpoint that subscribes to created bookings."""
    return str(create(api)["id"])


@pytest.fixture
def delivery(api: Api, endpoint: str) -> str:
    """The endpoint's queued delivery of a booking."""
    book(api)
    return str(log(api, endpoint)[0]["id"])


@pytest.fixture
def failed(api: Api, delivery: str) -> str:
    """That delivery, which is dead."""
    dead(api, delivery)
    return delivery


# Create ----------------------------------------------------------------------------------------------------------


def test_a_new_endpoint_is_shown_with_its_secret(api: Api) -> None:
    endpoint = create(api, "booking.created", "booking.cancelled", description="The calendar")
    assert WebhookEndpointWithSecret.model_validate(endpoint).to_json() == endpoint
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", endpoint["secret"])
    assert endpoint == {
        "id": endpoint["id"],
        "url": URL,
        "description": "The calendar",
        "event_types": ["booking.cancelled", "booking.created"],
        "status": "enabled",
        "disabled_at": None,
        "disabled_reason": None,
        "consecutive_failures": 0,
        "last_success_at": None,
        "last_failure_at": None,
        "previous_secret_expires_at": None,
        "api_version": "2026-09-09",
        "created_at": ISO_NOON,
        "updated_at": ISO_NOON,
        "headers": {},
        "max_per_second": None,
        "failing_since": None,
        "former_secrets": [],
        "secret": endpoint["secret"],
    }
    row = api.world.row(tables.webhook_endpoints, endpoint["id"])
    assert (row["last_timed_out"], row["warned_hours"]) == (0, 0)


def test_the_secret_is_shown_once(api: Api) -> None:
    endpoint = create(api)
    secret = endpoint.pop("secret")
    for path in ("/webhooks", f"/webhooks/{endpoint['id']}", "/events", f"/webhooks/{endpoint['id']}/deliveries"):
        assert secret not in api.get(path).text
    assert api.get(f"/webhooks/{endpoint['id']}").json() == endpoint
    assert change(api, endpoint["id"], description="x").json().keys() == endpoint.keys()


def test_webhook_operations_take_no_idempotency_key(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    once: list[int] = []
    monkeypatch.setattr(Database, "write_once", lambda self, work: once.append(1) or self.write(work))
    headers = {"Idempotency-Key": "the-same-for-both"}
    both = [api.call("POST", "/webhooks", json=body(), headers=headers) for _ in range(2)]
    assert [response.status_code for response in both] == [201, 201]
    assert [both[0].json()[name] != both[1].json()[name] for name in ("id", "secret")] == [True, True]
    assert "idempotent-replayed" not in both[1].headers
    assert len(once) == 2, "it does not run again when the outcome of its commit is unknown"


@pytest.mark.one_database
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_is_stored_as_its_types(api: Api, family: str) -> None:
    types = sorted(kind for kind in SUBSCRIBABLE if kind.startswith(family.removesuffix("*")))
    endpoint = create(api, family, types[0])
    assert endpoint["event_types"] == types
    changed = change(api, create(api, "webhook.enabled")["id"], event_types=[family])
    assert changed.json()["event_types"] == types


@pytest.mark.one_database
def test_a_family_needs_the_read_scope_of_its_resource(api: Api) -> None:
    manager = api.with_scopes(Scope.WEBHOOKS_MANAGE, Scope.CUSTOMERS_READ)
    answer = manager.call("POST", "/webhooks", json=body("booking.*"))
    assert refused(answer, 403, "insufficient_scope")["required_scope"] == "bookings:read"
    assert create(manager, "customer.*")["event_types"] == ["customer.created", "customer.updated"]


@pytest.mark.one_database
def test_a_type_that_cannot_be_subscribed_to_is_not_offered(api: Api) -> None:
    for word in ("ping", "booking.unknown"):
        assert "ping" not in api.call("POST", "/webhooks", json=body(word)).json()["error"]
    for name in ("WebhookEndpointCreate", "WebhookEndpointChange"):
        offered = json.dumps(DOCUMENT["components"]["schemas"][name]["properties"]["event_types"])
        assert '"booking.*"' in offered
        assert "ping" not in offered


@pytest.mark.one_database
def test_a_url_of_the_longest_length_is_taken(api: Api) -> None:
    assert create(api, url=f"https://x.org/{'a' * 2034}")["url"].endswith("aa")


@pytest.mark.one_database
def test_a_subscription_without_its_read_scope_looks_up_no_name(api: Api, dns: Dns) -> None:
    """`test_webhook_headers.py` has every type and operation."""
    manager = api.with_scopes(Scope.WEBHOOKS_MANAGE, *(READ_SCOPES - {Scope.BOOKINGS_READ}))
    refused(manager.call("POST", "/webhooks", json=body(url=PRIVATE)), 403, "insufficient_scope")
    assert dns.urls == []


def test_events_about_webhooks_need_no_other_scope(api: Api) -> None:
    assert create(api.with_scopes(Scope.WEBHOOKS_MANAGE), "webhook.delivery_dead")["status"] == "enabled"


def test_ten_endpoints_and_no_eleventh(api: Api, other_api: Api) -> None:
    endpoint_ids = [create(api)["id"] for _ in range(10)]
    with nothing_changes(api.world):
        response = api.call("POST", "/webhooks", json=body(url=PRIVATE))
    assert conflict_reason(response) == "endpoint_limit_reached"
    assert create(other_api)["id"]
    assert api.call("DELETE", f"/webhooks/{endpoint_ids[0]}").status_code == 204
    assert create(api)["id"] not in endpoint_ids
    assert len(api.get("/webhooks").json()["data"]) == 10


@pytest.mark.one_database
def test_an_address_that_is_not_public_is_refused_in_fixed_words(api: Api, endpoint: str, dns: Dns) -> None:
    dns.urls.clear()
    with nothing_changes(api.world):
        answers = api.call("POST", "/webhooks", json=body(url=PRIVATE)), change(api, endpoint, url=PRIVATE)
    for response in answers:
        refusal = refused(response, 422, "validation_failed")
        assert refusal["error"] == "Webhooks go to public addresses."
        assert refusal["details"] == [{"field": "url", "reason": "address_not_public", "message": refusal["error"]}]
        assert "private.example" not in response.text
    assert dns.urls == [PRIVATE] * 2


@pytest.mark.one_database
def test_a_forbidden_port_is_refused_at_creation_and_change(api: Api, endpoint: str) -> None:
    with nothing_changes(api.world):
        for port in (1, 22, 25, 80, 444, 1023, 5432, 6379):
            url = f"https://receiver.example:{port}/hook"
            for response in (api.call("POST", "/webhooks", json=body(url=url)), change(api, endpoint, url=url)):
                refusal = refused(response, 422, "validation_failed")
                detail = {"field": "url", "reason": "port_not_allowed", "message": refusal["error"]}
                assert refusal["details"] == [detail]
                assert refusal["error"].startswith("Webhooks go to port 443, or to one from 1024")


def test_dns_is_resolved_before_the_transaction_begins(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that takes its time must not hold up those who write."""
    service = api.client.app.state.service  # type: ignore[attr-defined]
    customer = {"email": "ada@example.com", "name": "Ada"}

    def slow(_: str) -> bool:
        return bool(api.post("/customers", customer).status_code == 201)

    monkeypatch.setattr(service, "is_public_address", slow)
    assert create(api)["status"] == "enabled"


# Malformed -------------------------------------------------------------------------------------------------------

_TYPES_MALFORMED: tuple[object, ...] = ([], None, "booking.created", {}, ["booking.created"] * 2)
_KINDS_UNKNOWN = (
    *("ping", "ping.*", "*", "Booking.*", "booking.c*", "booking.unknown", "Booking.created"),
    *("webhook.test", ""),
)
_URLS_MALFORMED: tuple[object, ...] = (
    *("http://receiver.example/", "ftp://receiver.example/", "receiver.example", "", None, 7, [URL]),
    *("https://u:p@receiver.example/", "https://receiver.example/#x", "https://receiver.example/\x00"),
    *("https://127.1/", f"https://x.org/{'a' * 2035}"),
)
MALFORMED: dict[tuple[str, str], tuple[object, ...]] = {
    ("", "url"): _URLS_MALFORMED,
    ("", "event_types"): _TYPES_MALFORMED,
    ("", "event_types.0"): ([7], [None]),
    ("", "event_types.1"): tuple(["booking.created", kind] for kind in _KINDS_UNKNOWN),
    ("", "description"): ("a" * 201, "a\nb", 7),
    ("change", "url"): ("http://receiver.example/", "", 7),
    ("change", "event_types"): ([], ["booking.created"] * 2, ["booking.*"] * 2),
    ("change", "event_types.0"): (["ping"], ["nothing"]),
    ("change", "status"): ("auto_disabled", "deleted", "Enabled", True),
    ("change", "description"): ("a" * 201,),
    ("rotate-secret", "overlap_seconds"): (-1, 604801, "60", 1.5, True, 10**30),
    ("recover", "since"): (None, "yesterday", 1795262400, "2026-02-30"),
    ("recover", "until"): ("soon", "0001-01-01", "2026-11-21T12:59:59+01:00"),
    ("recover", "statuses"): ([],),
    ("recover", "statuses.0"): (["succeeded"], ["queued"]),
    ("recover", "event_types"): ([],),
    ("recover", "event_types.0"): (["booking.*"],),
    ("recover", "dry_run"): ("true", 1, None),
    ("deliveries", "status"): ("sending",),
    ("deliveries", "event_type"): ("booking.*",),
    ("deliveries", "event_id"): ("x",),
    ("deliveries", "recovery_id"): ("x",),
    ("deliveries", "limit"): ("0",),
}
"""The operation of an endpoint (none: its creation) and the field that is named, with its malformed values."""


def send(api: Api, operation: str, endpoint: str, fields: dict[str, Any]) -> httpx.Response:
    if operation == "":
        return api.call("POST", "/webhooks", json=body() | fields)
    if operation == "change":
        return change(api, endpoint, **({"description": "new"} | fields))
    if operation == "deliveries":
        return api.get(f"/webhooks/{endpoint}/deliveries", **fields)
    required = {"since": ISO_NOON} if operation == "recover" else {}
    return api.call("POST", f"/webhooks/{endpoint}/{operation}", json=required | fields)


@pytest.mark.one_database
@pytest.mark.parametrize(("where", "values"), MALFORMED.items(), ids=["-".join(where) for where in MALFORMED])
def test_a_malformed_field_is_named_and_nothing_changes(
    api: Api, dns: Dns, where: tuple[str, str], values: tuple[object, ...]
) -> None:
    (operation, field), endpoint = where, create(api)["id"]
    dns.urls.clear()
    with nothing_changes(api.world):
        answers = {repr(value): send(api, operation, endpoint, {field.partition(".")[0]: value}) for value in values}
    for value, response in answers.items():
        is_unprocessable = field == "until" and value != repr("soon")
        refused_field = field_of(refused(response, 422 if is_unprocessable else 400, "validation_failed"))
        assert (value, refused_field) == (value, field)
    assert dns.urls == []


@pytest.mark.one_database
def test_a_recovery_needs_its_beginning(api: Api) -> None:
    response = api.call("POST", f"/webhooks/{create(api)['id']}/recover", json={})
    assert invalid_field(response) == "since"


# Read ------------------------------------------------------------------------------------------------------------


def test_every_endpoint_is_on_one_page_the_newest_first(api: Api, clock: FixedClock) -> None:
    endpoint_ids = []
    for _ in range(10):
        endpoint_ids.append(create(api)["id"])
        clock.advance(1)
    page = api.get("/webhooks", limit=2).json()
    assert [endpoint["id"] for endpoint in page["data"]] == endpoint_ids[::-1]
    assert (page["has_more"], page["next_cursor"]) == (False, None)
    assert all(WebhookEndpoint.model_validate(endpoint).to_json() == endpoint for endpoint in page["data"])


def test_without_endpoints_the_page_is_empty(api: Api) -> None:
    assert api.get("/webhooks").json() == {"data": [], "has_more": False, "next_cursor": None}


def test_reading_is_a_few_statements(api: Api, endpoint: str, delivery: str, statements: list[str]) -> None:
    # The key, the endpoint, where its events stand, the events without a row, and the rows.
    log_of, one = f"/{endpoint}/deliveries", f"/{endpoint}/deliveries/{delivery}"
    for path, count in (("", 2), (f"/{endpoint}", 2), (log_of, 5), (one, 5)):
        statements.clear()
        assert api.get(f"/webhooks{path}").status_code == 200
        assert len(statements) == count
    queue_rows(api.world)
    statements.clear()
    api.get(f"/webhooks{one}")  # the key, the endpoint, the row, and its attempts
    assert len(statements) == 4


OF_AN_ENDPOINT = [operation for operation in OPERATIONS if operation.path.startswith("/api/v1/webhooks/{id}")]
ANY_BODY = {"url": PRIVATE, "since": "2026-01-01", "event_id": str(uuid.uuid4())}


def perform(api: Api, operation: Operation, endpoint: str, delivery: str) -> httpx.Response:
    """Send a request that would succeed with ids of an endpoint and its delivery."""
    path = operation.path.removeprefix("/api/v1").format(id=endpoint, deliveryId=delivery)
    body = {} if operation.method == "GET" else {"json": ANY_BODY}
    return api.call(operation.method, path, headers={"x-request-id": "the-same"}, **body)


def test_a_deleted_endpoint_is_not_found(api: Api, endpoint: str, delivery: str) -> None:
    """test_tenants.py has the endpoints of other organizations."""
    dead(api, delivery)
    assert api.call("DELETE", f"/webhooks/{endpoint}").status_code == 204
    with nothing_changes(api.world):
        for operation in OF_AN_ENDPOINT:
            answers = [perform(api, operation, name, delivery) for name in (endpoint, str(uuid.uuid4()), "no-uuid")]
            for answer in answers:
                refused(answer, 404, "not_found")
                assert answer.content == answers[0].content


def test_a_delivery_of_another_endpoint_is_not_there(api: Api) -> None:
    """T8."""
    one, two = create(api)["id"], create(api)["id"]
    book(api)
    delivery = log(api, two)[0]["id"]
    dead(api, delivery)
    operations = [operation for operation in OF_AN_ENDPOINT if "{deliveryId}" in operation.path]
    assert len(operations) == 2
    for delivery_id in (delivery, attempt(api, delivery, 1), str(uuid.uuid4()), "no-uuid"):
        for operation in operations:
            refused(perform(api, operation, one, delivery_id), 404, "not_found")


# Change ----------------------------------------------------------------------------------------------------------


def test_only_the_given_fields_change(api: Api, clock: FixedClock) -> None:
    endpoint = create(api, "booking.created", description="The calendar")
    endpoint.pop("secret")
    clock.advance(HOUR)
    url = "https://other.example/hook"
    for fields in ({"url": url}, {"description": "Other"}, {"event_types": ["customer.created", "booking.cancelled"]}):
        expected = endpoint | fields | {"updated_at": "2026-11-21T14:00:00+01:00"}
        expected["event_types"] = sorted(expected["event_types"])
        assert body_of(change(api, endpoint["id"], **fields)) == expected
        assert api.get(f"/webhooks/{endpoint['id']}").json() == expected
        endpoint = expected


def test_an_update_without_change_writes_nothing(api: Api, clock: FixedClock, dns: Dns) -> None:
    endpoint = create(api)
    endpoint.pop("secret")
    clock.advance(HOUR)
    empty = {"url": None, "event_types": None, "status": None}
    same = {"url": URL, "event_types": ["booking.created"], "status": "enabled", "description": ""}
    with nothing_changes(api.world):
        for fields in ({}, {"unknown": 1}, empty, same):
            assert change(api, endpoint["id"], **fields).json() == endpoint


def test_a_description_can_be_removed(api: Api) -> None:
    for nothing in (None, ""):
        endpoint = create(api, description="The calendar")["id"]
        assert change(api, endpoint, description=nothing).json()["description"] is None
        assert api.get(f"/webhooks/{endpoint}").json()["description"] is None


# Off and on ------------------------------------------------------------------------------------------------------


def test_disabling_an_endpoint_fails_its_queued_and_later_deliveries(api: Api, endpoint: str) -> None:
    book(api)
    api.world.clock.advance(HOUR)
    changed = change(api, endpoint, status="disabled").json()
    at = "2026-11-21T14:00:00+01:00"
    assert (changed["status"], changed["disabled_reason"], changed["disabled_at"]) == ("disabled", "manual", at)
    book(api)
    for row in log(api, endpoint):
        assert (row["status"], row["failure_reason"]) == ("failed", "endpoint_disabled")
        assert (row["next_attempt_at"], row["completed_at"]) == (None, at)
    assert len(log(api, endpoint)) == 2


@pytest.mark.parametrize(
    ("columns", "hours"),
    [
        ({"consecutive_failures": 5, "last_success_at": NOON - 9 * HOUR}, None),
        ({"consecutive_failures": 6, "last_success_at": NOON - 9 * HOUR}, 9),
        ({"consecutive_failures": 6, "last_success_at": NOON - 99 * HOUR}, 40),
        ({"consecutive_failures": 6, "last_success_at": None}, 40),
        ({"consecutive_failures": 6, "status": "disabled", "disabled_at": NOON}, None),
    ],
)
def test_six_failures_show_since_when_an_endpoint_is_failing(
    api: Api, endpoint: str, columns: dict[str, Any], hours: int | None
) -> None:
    enabled = {"created_at": NOON - 90 * HOUR, "enabled_at": NOON - 40 * HOUR}
    api.world.change(tables.webhook_endpoints, endpoint, **enabled, **columns)
    expected = None if hours is None else api.world.organization.zone.iso(NOON - hours * HOUR)
    assert api.get(f"/webhooks/{endpoint}").json()["failing_since"] == expected


def test_enabling_an_endpoint_resets_it_and_publishes_an_event(api: Api, clock: FixedClock) -> None:
    endpoint, watching = create(api, "booking.created", "webhook.enabled")["id"], create(api, "webhook.enabled")["id"]
    change(api, endpoint, status="disabled")
    off = {"status": "auto_disabled", "disabled_reason": "delivery_failures", "disabled_at": clock()}
    failed = {"consecutive_failures": 30, "warned_hours": 48, "last_timed_out": True}
    api.world.change(tables.webhook_endpoints, endpoint, **off, **failed)
    book(api)
    clock.advance(HOUR)
    changed = change(api, endpoint, status="enabled").json()
    assert (changed["status"], changed["disabled_at"], changed["disabled_reason"]) == ("enabled", None, None)
    assert changed["consecutive_failures"] == 0
    row = api.world.row(tables.webhook_endpoints, endpoint)
    assert (row["enabled_at"], row["warned_hours"], bool(row["last_timed_out"])) == (clock(), 0, False)
    assert [row["status"] for row in log(api, endpoint)] == ["failed"]
    (entry,) = log(api, watching)
    event = api.get(f"/events/{entry['event_id']}").json()
    assert (event["type"], event["resource_type"], event["resource_id"]) == ("webhook.enabled", "webhook", endpoint)
    assert event["data"]["object"] == changed


def test_an_endpoint_disabled_by_failures_can_stay_disabled(api: Api, endpoint: str) -> None:
    off = {"status": "auto_disabled", "disabled_reason": "delivery_failures", "disabled_at": NOON}
    api.world.change(tables.webhook_endpoints, endpoint, **off)
    changed = change(api, endpoint, status="disabled").json()
    assert (changed["status"], changed["disabled_reason"]) == ("disabled", "manual")


# Delete ----------------------------------------------------------------------------------------------------------


def test_a_deleted_endpoint_is_answered_with_nothing(api: Api, endpoint: str) -> None:
    answer = raw.call(api.client, "DELETE", f"/api/v1/webhooks/{endpoint}", key=api.key)
    assert (answer.status_code, answer.content) == (204, b"")
    assert not answer.headers.keys() & {"content-type", "content-length"}
    assert answer.headers.keys() >= {"x-request-id", "cache-control"}
    refused(api.call("DELETE", f"/webhooks/{endpoint}"), 404, "not_found")
    assert api.get("/webhooks").json()["data"] == []


def test_deleting_an_endpoint_fails_its_queued_deliveries_and_adds_none(api: Api, endpoint: str) -> None:
    book(api)
    queue_rows(api.world)
    book(api)
    assert api.call("DELETE", f"/webhooks/{endpoint}").status_code == 204
    book(api)
    assert api.world.rows(tables.webhook_secrets) == []
    assert api.world.rows(tables.webhook_cursors) == []
    assert endpoint not in {delivery.endpoint_id for delivery in Hooks(api.world).claim(free=1000)}
    api.world.database.write(lambda tx: upkeep.fail_given_up(tx, per_endpoint=1000, limit=1000))
    (row,) = api.world.rows(tables.deliveries)
    assert (row["status"], row["failure_reason"]) == ("failed", "endpoint_deleted")


# Secrets ---------------------------------------------------------------------------------------------------------


def live(api: Api, endpoint_id: str) -> list[str]:
    """Return the secrets that sign now, newest first."""
    rows = [row for row in api.world.rows(tables.webhook_secrets) if row["endpoint_id"] == endpoint_id]
    rows = [row for row in rows if row["expires_at"] is None or row["expires_at"] > api.world.clock()]
    rows.sort(key=lambda row: (row["expires_at"] is not None, -row["created_at"]))
    keys = api.world.installation.secret_keys
    return [
        keys.open("webhook_secret", row["secret_sealed"], api.world.org, endpoint_id, row["id"]).decode()
        for row in rows
    ]


def rotate(api: Api, endpoint_id: str, **fields: Any) -> dict[str, Any]:
    return dict(body_of(api.call("POST", f"/webhooks/{endpoint_id}/rotate-secret", json=fields)))


def test_a_new_secret_signs_beside_the_former_one_for_a_day(api: Api, clock: FixedClock) -> None:
    endpoint = create(api)
    rotated = body_of(api.call("POST", f"/webhooks/{endpoint['id']}/rotate-secret"))
    assert rotated["secret"] != endpoint["secret"]
    assert WebhookEndpointWithSecret.model_validate(rotated).to_json() == rotated
    assert rotated["previous_secret_expires_at"] == "2026-11-22T13:00:00+01:00"
    assert live(api, endpoint["id"]) == [rotated["secret"], endpoint["secret"]]
    clock.advance(DAY)
    assert live(api, endpoint["id"]) == [rotated["secret"]]
    assert api.get(f"/webhooks/{endpoint['id']}").json()["previous_secret_expires_at"] is None


@pytest.mark.one_database
@pytest.mark.parametrize(("seconds", "former"), [(0, False), (1, True), (604800, True)])
def test_the_overlap_is_chosen(api: Api, seconds: int, former: bool) -> None:
    endpoint = create(api)
    rotated = rotate(api, endpoint["id"], overlap_seconds=seconds)
    assert live(api, endpoint["id"]) == [rotated["secret"], *([endpoint["secret"]] if former else [])]
    assert (rotated["previous_secret_expires_at"] is not None) == former


def test_a_rotation_ends_no_former_secret_before_its_end(api: Api, clock: FixedClock) -> None:
    endpoint = create(api)
    two_days = rotate(api, endpoint["id"], overlap_seconds=2 * 86_400)
    one_day = rotate(api, endpoint["id"])
    ends = ["2026-11-22T13:00:00+01:00", "2026-11-23T13:00:00+01:00"]
    assert one_day["former_secrets"] == [{"expires_at": end} for end in ends]
    assert one_day["previous_secret_expires_at"] == ends[1]
    in_use = [one_day["secret"], endpoint["secret"], two_days["secret"]]
    with nothing_changes(api.world):
        answer = api.call("POST", f"/webhooks/{endpoint['id']}/rotate-secret", json={"overlap_seconds": 1})
    assert conflict_reason(answer) == "too_many_secrets"
    assert ends[0] in answer.json()["error"]
    assert live(api, endpoint["id"]) == in_use
    clock.advance(DAY)
    rotated = rotate(api, endpoint["id"])
    assert rotated["former_secrets"] == [{"expires_at": ends[1]}] * 2
    assert set(live(api, endpoint["id"])) == {rotated["secret"], one_day["secret"], endpoint["secret"]}
    assert len(api.world.rows(tables.webhook_secrets)) == 3
    assert api.get(f"/webhooks/{endpoint['id']}").json()["former_secrets"] == rotated["former_secrets"]


def test_without_an_overlap_two_former_secrets_end(api: Api) -> None:
    endpoint = create(api)
    for _ in range(2):
        rotate(api, endpoint["id"])
    rotated = rotate(api, endpoint["id"], overlap_seconds=0)
    assert (rotated["former_secrets"], live(api, endpoint["id"])) == ([], [rotated["secret"]])


def test_a_rotation_is_published_without_the_secret(api: Api) -> None:
    endpoint = create(api, "webhook.secret_rotated")["id"]
    watching = create(api, "webhook.secret_rotated")["id"]
    rotated = rotate(api, endpoint)
    secret = rotated.pop("secret")
    (entry,) = log(api, watching)
    event = api.get(f"/events/{entry['event_id']}")
    assert event.json()["data"] == {"object": rotated}
    assert secret not in event.text
    assert log(api, endpoint) == []


# Tests -----------------------------------------------------------------------------------------------------------


def test_a_ping_is_queued_for_that_one_endpoint(api: Api) -> None:
    endpoint, other = create(api)["id"], create(api)["id"]
    ping = body_of(api.call("POST", f"/webhooks/{endpoint}/test"), 202)
    assert Delivery.model_validate(ping).to_json() == ping
    assert ping == {
        "id": ping["id"],
        "endpoint_id": endpoint,
        "event_id": ping["event_id"],
        "event_type": "ping",
        "status": "queued",
        "failure_reason": None,
        "trigger": "test",
        "attempt_count": 0,
        "max_attempts": 6,
        "next_attempt_at": ISO_NOON,
        "last_attempt_at": None,
        "completed_at": None,
        "last_response_status": None,
        "last_error": None,
        "attempts": [],
        "created_at": ISO_NOON,
        "updated_at": ISO_NOON,
    }
    assert log(api, endpoint) == [ping]
    assert log(api, other) == []


def test_a_ping_can_be_read_back(api: Api, endpoint: str) -> None:
    delivery = api.call("POST", f"/webhooks/{endpoint}/test").json()
    event = api.get(f"/events/{delivery['event_id']}").json()
    assert (event["type"], event["resource_type"], event["resource_id"]) == ("ping", "webhook", None)
    assert event["data"]["object"].keys() == {"message", "endpoint_id"}
    assert event["data"]["object"]["endpoint_id"] == endpoint
    assert [row["id"] for row in api.get("/events", type="ping").json()["data"]] == [event["id"]]


@pytest.mark.parametrize("status", ["disabled", "auto_disabled"])
def test_an_endpoint_that_is_off_gets_one_attempt(api: Api, endpoint: str, status: str) -> None:
    api.world.change(tables.webhook_endpoints, endpoint, status=status)
    delivery = api.call("POST", f"/webhooks/{endpoint}/test").json()
    assert (delivery["status"], delivery["max_attempts"], delivery["trigger"]) == ("queued", 1, "test")


# The log ---------------------------------------------------------------------------------------------------------


def test_the_delivery_log_is_paged_like_any_list(api: Api, clock: FixedClock) -> None:
    endpoint, other = create(api, "booking.created")["id"], create(api, "booking.created")["id"]
    for _ in range(5):
        book(api)
        clock.advance(HOUR)
    everything = log(api, endpoint)
    assert [row["created_at"] for row in everything] == sorted((row["created_at"] for row in everything), reverse=True)
    assert [row["id"] for row in log(api, endpoint, order="asc")] == [row["id"] for row in everything][::-1]
    pages = list(api.pages(f"/webhooks/{endpoint}/deliveries", limit=2))
    assert [row for page in pages for row in page["data"]] == everything
    for elsewhere in (f"/webhooks/{other}/deliveries", "/bookings"):
        assert invalid_field(api.get(elsewhere, starting_after=pages[0]["next_cursor"])) == "starting_after"


def test_the_log_is_filtered(api: Api) -> None:
    endpoint = create(api, "booking.created", "booking.confirmed")["id"]
    book(api)
    created, confirmed = log(api, endpoint, order="asc")
    if created["event_type"] != "booking.created":  # one instant
        created, confirmed = confirmed, created
    dead(api, confirmed["id"])
    assert [row["id"] for row in log(api, endpoint, status="queued")] == [created["id"]]
    assert [row["id"] for row in log(api, endpoint, status="dead")] == [confirmed["id"]]
    assert log(api, endpoint, status="succeeded") == []
    assert [row["id"] for row in log(api, endpoint, event_type="booking.confirmed")] == [confirmed["id"]]
    assert [row["id"] for row in log(api, endpoint, event_id=created["event_id"])] == [created["id"]]
    assert log(api, endpoint, event_id=str(uuid.uuid4())) == []
    assert log(api, endpoint, event_type="booking.confirmed", status="queued") == []


def test_a_delivery_shows_its_attempts_the_oldest_first(api: Api, endpoint: str, delivery: str) -> None:
    excerpt = 'He said: "no", \\ and ☃\n'
    second = attempt(api, delivery, 2, trigger="manual")
    ended = {"duration_ms": 84, "response_status": 500, "response_excerpt": excerpt, "error": "http_status"}
    first = attempt(api, delivery, 1, **ended)
    entry = api.get(f"/webhooks/{endpoint}/deliveries/{delivery}").json()
    assert Delivery.model_validate(entry).to_json() == entry
    under_way = dict.fromkeys(("duration_ms", "response_status", "response_excerpt", "error"))
    assert entry["attempts"] == [
        {"id": first, "number": 1, "trigger": "scheduled", "started_at": ISO_NOON} | ended,
        {"id": second, "number": 2, "trigger": "manual", "started_at": ISO_NOON} | under_way,
    ]
    assert log(api, endpoint) == [entry]
    for attempt_id in (first, second, first.upper()):
        assert api.get(f"/webhooks/{endpoint}/deliveries/{attempt_id}").json() == entry


# Again -----------------------------------------------------------------------------------------------------------


def retry(api: Api, endpoint: str, delivery: str) -> httpx.Response:
    return api.call("POST", f"/webhooks/{endpoint}/deliveries/{delivery}/retry")


def test_a_dead_delivery_is_tried_once_more(api: Api, endpoint: str, failed: str, clock: FixedClock) -> None:
    attempt_id = attempt(api, failed, 6)
    clock.advance(HOUR)
    retried = body_of(retry(api, endpoint, attempt_id), 202)
    assert (retried["status"], retried["failure_reason"]) == ("queued", None)
    assert (retried["attempt_count"], retried["max_attempts"], retried["trigger"]) == (6, 7, "event")
    assert (retried["next_attempt_at"], retried["completed_at"]) == ("2026-11-21T14:00:00+01:00", None)
    assert api.get(f"/webhooks/{endpoint}/deliveries/{failed}").json() == retried
    with nothing_changes(api.world):
        assert conflict_reason(retry(api, endpoint, failed)) == "delivery_not_dead"


def test_only_a_dead_delivery_is_tried_again(api: Api, endpoint: str, failed: str) -> None:
    for status in ("queued", "succeeded", "failed"):
        api.world.change(tables.deliveries, failed, status=status)
        with nothing_changes(api.world):
            assert "use redeliver" in refused(retry(api, endpoint, failed), 409, "conflict")["error"]


def test_nothing_is_tried_again_at_an_endpoint_that_is_off(api: Api, endpoint: str, failed: str) -> None:
    change(api, endpoint, status="disabled")
    with nothing_changes(api.world):
        answers = (
            retry(api, endpoint, failed),
            api.call("POST", f"/webhooks/{endpoint}/recover", json={"since": "2026-01-01"}),
        )
    for answer in answers:
        assert conflict_reason(answer) == "endpoint_not_enabled"


def recover(api: Api, endpoint: str, **fields: Any) -> int:
    recovery = body_of(api.call("POST", f"/webhooks/{endpoint}/recover", json=fields), 202)
    recovery_id, matched = recovery.values()
    assert recovery == {"id": recovery_id, "matched": matched}
    assert (recovery_id is None) == fields.get("dry_run", False)
    assert recovery_id is None or len(log(api, endpoint, recovery_id=recovery_id)) == matched
    return int(matched)


def test_missed_deliveries_are_recovered(api: Api, endpoint: str, failed: str, clock: FixedClock) -> None:
    change(api, endpoint, status="disabled")
    book(api)
    clock.advance(HOUR)
    change(api, endpoint, status="enabled")
    book(api)
    with nothing_changes(api.world):
        assert recover(api, endpoint, since=ISO_NOON, dry_run=True) == 2
    assert recover(api, endpoint, since=ISO_NOON) == 2
    rows = {row["id"]: row for row in log(api, endpoint)}
    assert {row["status"] for row in rows.values()} == {"queued"}
    assert sorted(row["trigger"] for row in rows.values()) == ["event", "recover", "recover"]
    recovered = rows[failed]
    assert (recovered["attempt_count"], recovered["max_attempts"]) == (6, 12)
    assert (recovered["failure_reason"], recovered["completed_at"]) == (None, None)
    assert recovered["next_attempt_at"] == recovered["updated_at"] == "2026-11-21T14:00:00+01:00"
    missed = next(row for row in rows.values() if row["trigger"] == "recover" and row["id"] != failed)
    assert (missed["attempt_count"], missed["max_attempts"]) == (0, 6)
    assert recover(api, endpoint, since=ISO_NOON) == 0


def test_recovery_keeps_to_its_time_its_statuses_and_its_types(api: Api, clock: FixedClock) -> None:
    endpoint = create(api, "booking.created", "booking.confirmed")["id"]
    other = create(api, "booking.created")["id"]
    book(api)
    clock.advance(HOUR)
    book(api)
    for row in [*log(api, endpoint), *log(api, other)]:
        status = "dead" if row["event_type"] == "booking.created" else "failed"
        dead(api, row["id"], status=status)
    later = "2026-11-21T14:00:00+01:00"
    assert recover(api, endpoint, since=ISO_NOON, until=ISO_NOON) == 0
    assert recover(api, endpoint, since=later, statuses=["dead"]) == 1
    assert recover(api, endpoint, since=ISO_NOON, until=later, event_types=["booking.confirmed"]) == 1
    assert recover(api, endpoint, since="2026-11-21 13:00:00 01:00", statuses=["failed", "dead"]) == 2
    assert [row["status"] for row in log(api, other)] == ["dead", "dead"]


def test_tests_are_not_recovered(api: Api, endpoint: str) -> None:
    dead(api, api.call("POST", f"/webhooks/{endpoint}/test").json()["id"])
    assert recover(api, endpoint, since=ISO_NOON, event_types=["ping"]) == 0


def test_the_ends_of_time_are_no_error(api: Api, endpoint: str) -> None:
    assert recover(api, endpoint, since="0001-01-01", until="9999-12-31T23:59:59-12:00") == 0


# Who gets what ---------------------------------------------------------------------------------------------------


def test_each_event_has_one_delivery_for_each_endpoint_that_subscribes(api: Api, other_api: Api) -> None:
    one, two, none = create(api, "booking.created"), create(api, "booking.created"), create(api, "gift_card.issued")
    other = create(other_api, "booking.created")
    book(api)
    (event,) = api.get("/events", type="booking.created").json()["data"]
    for endpoint in (one, two):
        (row,) = log(api, endpoint["id"])
        assert (row["event_id"], row["status"], row["trigger"]) == (event["id"], "queued", "event")
    assert log(api, none["id"]) == []
    assert log(other_api, other["id"]) == []
    assert {kind for kind in EventType if kind.startswith("webhook.")} & set(api.event_types()) == set()
    assert api.world.examine() == []
