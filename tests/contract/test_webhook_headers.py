"""Headers of the client's own, and the authority of keys: no key sends an event that it may not read (decision W17)."""

import asyncio
from typing import Any

import httpx
import pytest
from support.api.api import Api, body_of
from support.api.endpoints import OPERATIONS
from support.api.refusals import invalid_field, nothing_changes, refused
from support.receivers.senders import FakeSender, worker_of
from support.world.hooks import Hooks, queue_rows
from support.world.world import World

from booking_core.db import tables
from booking_core.models.events import READ_SCOPE, SUBSCRIBABLE, EventType
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.upkeep import doctor
from booking_core.webhooks import ClaimedDelivery
from booking_server.worker.deliveries import signed_headers

HEADERS = {"Authorization": "Bearer canary-token", "X-Tenant": "fjord"}
MASKED = dict.fromkeys(HEADERS, "********")


pytestmark = [pytest.mark.one_database, pytest.mark.usefixtures("public_addresses")]


def create(api: Api, **over: Any) -> Any:
    body = {"url": "https://hooks.example.com/in", "event_types": ["booking.created"], "headers": HEADERS, **over}
    return body_of(api.call("POST", "/webhooks", json=body), 201)


def change(api: Api, endpoint: str, **body: Any) -> Any:
    return body_of(api.call("PATCH", f"/webhooks/{endpoint}", json=body))


def claimed(api: Api, endpoint: str) -> ClaimedDelivery:
    api.book(api.world.departure(api.world.experience()))
    (delivery,) = (delivery for delivery in Hooks(api.world).claim(free=1000) if delivery.endpoint_id == endpoint)
    return delivery


def test_headers_are_sent_last_and_shown_masked(api: Api) -> None:
    endpoint = create(api)
    assert endpoint["headers"] == MASKED
    assert api.get(f"/webhooks/{endpoint['id']}").json()["headers"] == MASKED
    delivery = claimed(api, endpoint["id"])
    assert signed_headers(delivery)[-2:] == list(HEADERS.items())
    assert "canary" not in repr(delivery)
    assert api.world.examine() == []


def test_no_row_and_no_event_has_a_value(api: Api) -> None:
    endpoint = create(api)["id"]
    api.call("POST", f"/webhooks/{endpoint}/rotate-secret", json={})
    for table in (tables.webhook_endpoints, tables.events, tables.audit):
        assert "canary" not in str(api.world.rows(table))


def test_headers_stay_are_replaced_and_removed(api: Api) -> None:
    endpoint = create(api)["id"]
    assert change(api, endpoint, description="The calendar")["headers"] == MASKED
    assert dict(claimed(api, endpoint).headers or ()) == HEADERS
    assert change(api, endpoint, headers={"X-Key": "v w"})["headers"] == {"X-Key": "********"}
    assert claimed(api, endpoint).headers == (("X-Key", "v w"),)
    assert change(api, endpoint, headers={})["headers"] == {}
    assert claimed(api, endpoint).headers == ()
    assert api.world.row(tables.webhook_endpoints, endpoint)["headers_sealed"] is None


def test_a_deleted_endpoint_keeps_none(api: Api) -> None:
    endpoint = create(api)["id"]
    assert api.call("DELETE", f"/webhooks/{endpoint}").status_code == 204
    row = api.world.row(tables.webhook_endpoints, endpoint)
    assert (row["header_names"], row["headers_sealed"]) == (None, None)


RESERVED = ("Host", "content-type", "Svc-Signature", "Webhook-Id", "Transfer-Encoding", "Connection", "User-Agent")
HEADERS_REFUSED: dict[str, list[Any]] = {
    "reserved": [{name: "v"} for name in RESERVED],
    "name": [{"X Key": "v"}, {"": "v"}],
    "value": [{"X-Key": value} for value in ("", "a\r\nHost: b", " padded ", "naïve", "x" * 1025, 1)],
    "repeated": [{"X-Key": "a", "x-key": "b"}],
    "too-many": [{f"X-{number}": "v" for number in range(11)}],
    "no-object": ["X-Key: v"],
}


@pytest.mark.parametrize("refused", HEADERS_REFUSED.values(), ids=HEADERS_REFUSED)
def test_headers_that_cannot_be_sent_are_refused(api: Api, refused: list[Any]) -> None:
    for headers in refused:
        body = {"url": "https://hooks.example.com/in", "event_types": ["booking.created"], "headers": headers}
        with nothing_changes(api.world):
            answer = api.call("POST", "/webhooks", json=body)
        assert str(invalid_field(answer)).startswith("headers"), headers


def test_unopenable_headers_are_a_finding_and_stop_their_deliveries(api: Api) -> None:
    endpoint, other = create(api)["id"], create(api)["id"]
    foreign = api.world.row(tables.webhook_endpoints, other)["headers_sealed"]
    api.world.change(tables.webhook_endpoints, endpoint, headers_sealed=foreign)
    api.book(api.world.departure(api.world.experience()))
    sent = {delivery.endpoint_id for delivery in Hooks(api.world).claim(free=1000)}
    assert (endpoint in sent, other in sent) == (False, True)
    options = doctor.CheckOptions(openers=doctor.openers(api.world.installation.secret_keys))
    findings = api.world.database.read(lambda tx: doctor.examine(tx, api.world.org, options))
    assert any("webhook headers" in finding.invariant or "webhook headers" in finding.message for finding in findings)


# Authority -----------------------------------------------------------------------------------------------------------


KINDS = sorted(kind for kind in SUBSCRIBABLE if READ_SCOPE[kind.resource_type] is not Scope.WEBHOOKS_MANAGE)
SINCE = {"since": "2026-01-01"}
QUIET = {"event_types": ["webhook.enabled"]}
"""A list of types that needs no read scope."""


def deliver(world: World) -> FakeSender:
    """Let a worker send everything that is due."""
    sender = FakeSender()
    while asyncio.run(worker_of(world, sender).run_once()):
        pass
    return sender


def types_at(url: str, sender: FakeSender) -> set[str]:
    return {request.headers["Svc-Event-Type"] for request in sender.requests if request.url == url}


class Scene:
    """An endpoint of another key, whose log has a queued, a dead and a missed delivery of one type."""

    def __init__(self, api: Api, kind: EventType) -> None:
        self.api, self.kind, self.hooks = api, kind, Hooks(api.world)
        self.own_url, self.thief_url = (f"https://{name}.example/{api.world.org}" for name in ("owner", "thief"))
        body = {"url": self.own_url, "event_types": [kind]}
        self.endpoint: str = api.call("POST", "/webhooks", json=body).json()["id"]
        (self.event,) = self.hooks.publish(kind=kind)
        queue_rows(api.world)
        (row,) = api.world.rows(tables.deliveries)
        self.dead: str = row["id"]
        ended = {"failure_reason": "attempts_exhausted", "attempt_count": 6, "next_attempt_at": None}
        api.world.change(tables.deliveries, self.dead, status="dead", completed_at=api.world.clock(), **ended)
        self.hooks.disable(self.endpoint)
        self.hooks.publish(kind=kind)
        self.hooks.enable(self.endpoint)
        self.hooks.publish(kind=kind)

    def requests(self) -> dict[str, list[tuple[int, dict[str, Any]]]]:
        """Return the bodies to try, by operation, each with the status of the answer to a key without the scope."""
        url, headers = {"url": self.thief_url}, {"headers": {"X-Tenant": "thief"}}
        return {
            "list_webhooks": [(200, {})],
            "create_webhook": [(403, url | {"event_types": [self.kind, "webhook.enabled"]})],
            "get_webhook": [(200, {})],
            "change_webhook": [
                *((403, body | types) for body in (url, headers, {"status": "enabled"}) for types in ({}, QUIET)),
                (403, url | {"status": "disabled"}),
                (200, QUIET),
                *((403, body) for body in ({"event_types": [self.kind]}, url, headers, {"status": "enabled"})),
            ],
            "retry_delivery": [(403, {})],
            "recover_webhook": [(403, SINCE | more) for more in ({}, {"event_types": [self.kind]}, {"dry_run": True})],
            "redeliver_webhook": [(403, {"event_id": self.event})],
            "list_deliveries": [(200, {})],
            "get_delivery": [(200, {})],
            "rotate_webhook_secret": [(200, {})],
            "test_webhook": [(202, {})],
        }

    def call(self, api: Api, operation_id: str, body: dict[str, Any]) -> httpx.Response:
        operation = next(operation for operation in OPERATIONS if operation.id == operation_id)
        path = operation.path.removeprefix("/api/v1").format(id=self.endpoint, deliveryId=self.dead)
        return api.call(operation.method, path, **({} if operation.method == "GET" else {"json": body}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_without_the_scope_has_nothing_sent_by_any_operation(api: Api, kind: EventType) -> None:
    scene, scope = Scene(api, kind), READ_SCOPE[kind.resource_type]
    thief = api.with_scopes(Scope.WEBHOOKS_MANAGE, *(READ_SCOPES - {scope}))
    requests = scene.requests()
    of_webhooks = {operation.id for operation in OPERATIONS if operation.path.startswith("/api/v1/webhooks")}
    assert set(requests) == of_webhooks - {"delete_webhook"}, "a deleted endpoint sends nothing"
    for operation, bodies in requests.items():
        for status, body in bodies:
            if status != 403:
                assert scene.call(thief, operation, body).status_code == status, (operation, body)
                continue
            with nothing_changes(api.world):
                answer = refused(scene.call(thief, operation, body), 403, "insufficient_scope")
            assert answer["required_scope"] == scope, (operation, body)
    sender = deliver(api.world)
    assert types_at(scene.thief_url, sender) == set()
    assert types_at(scene.own_url, sender) == {kind, "ping"}, "the queued delivery, and the thief's test"
    assert not [request for request in sender.requests if "X-Tenant" in request.headers]


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_with_the_scope_has_everything_sent(api: Api, kind: EventType) -> None:
    scene = Scene(api, kind)
    owner = api.with_scopes(Scope.WEBHOOKS_MANAGE, READ_SCOPE[kind.resource_type])
    for operation, bodies in scene.requests().items():
        for _, body in bodies:
            assert scene.call(owner, operation, body).is_success, (operation, body)
    assert types_at(scene.thief_url, deliver(api.world)) >= {kind, "ping"}


def test_a_recovery_needs_the_scopes_of_what_it_sends_only(api: Api) -> None:
    scene = Scene(api, EventType.BOOKING_CREATED)
    api.call("PATCH", f"/webhooks/{scene.endpoint}", json={"event_types": ["booking.created", "customer.created"]})
    scene.hooks.publish(kind=EventType.CUSTOMER_CREATED)
    customers, bookings = (
        api.with_scopes(Scope.WEBHOOKS_MANAGE, scope) for scope in (Scope.CUSTOMERS_READ, Scope.BOOKINGS_READ)
    )
    answer = refused(scene.call(customers, "recover_webhook", SINCE), 403, "insufficient_scope")
    assert answer["required_scope"] == "bookings:read"
    none_of_these = SINCE | {"event_types": ["customer.created"]}
    assert scene.call(customers, "recover_webhook", none_of_these).json()["matched"] == 0
    assert scene.call(bookings, "recover_webhook", SINCE).json()["matched"] == 2


def test_an_endpoint_that_sent_nothing_can_be_moved_without_the_scope(api: Api) -> None:
    types = ["booking.created", "customer.created"]
    endpoint = api.call("POST", "/webhooks", json={"url": "https://one.example/", "event_types": types}).json()["id"]
    manager = api.with_scopes(Scope.WEBHOOKS_MANAGE, Scope.BOOKINGS_READ)
    same_address = {"url": "https://one.example/", "status": "disabled"}
    assert manager.call("PATCH", f"/webhooks/{endpoint}", json=same_address).status_code == 200
    to_bookings = {"url": "https://two.example/", "event_types": ["booking.created"]}
    assert manager.call("PATCH", f"/webhooks/{endpoint}", json=to_bookings).status_code == 200


def test_a_change_of_the_address_takes_a_bounded_number_of_statements(api: Api, statements: list[str]) -> None:
    scene = Scene(api, EventType.BOOKING_CREATED)
    statements.clear()
    assert scene.call(api, "change_webhook", {"url": scene.thief_url}).status_code == 200
    # The key, the endpoint, where its events stand and the types of its log; the endpoint and the audit entry.
    assert len(statements) <= 8, statements
