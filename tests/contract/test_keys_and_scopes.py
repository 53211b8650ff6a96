"""The callers of the API: their keys and scopes (API v1 section 5, decisions K1, K2, K4)."""

import json
import re
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.api.api import Api, booking_body
from support.api.endpoints import OPERATIONS, Operation
from support.api.raw import call
from support.api.refusals import refused
from support.world.world import NOON, World

from booking_core.base import tokens
from booking_core.base.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_core.models.scopes import READ_SCOPES, Scope

pytestmark = pytest.mark.one_database


CODE = "GIFT-CARD-7KQ2"


def target(operation: Operation) -> str:
    """Return the operation's path with ids that do not exist."""
    return re.sub(r"\{\w+}", lambda _: str(uuid.uuid4()), operation.path)


def send(api: Api, operation: Operation, **arguments: Any) -> Any:
    headers = {"Idempotency-Key": f"key-{uuid.uuid4()}", **arguments.pop("headers", {})}
    if operation.method != "GET":
        arguments.setdefault("json", {})
    return api.client.request(operation.method, target(operation), headers=headers, **arguments)


each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
each_scoped_operation = pytest.mark.parametrize(
    "operation", [operation for operation in OPERATIONS if operation.scope], ids=lambda operation: operation.id
)


@each_operation
def test_every_operation_needs_a_key(api: Api, operation: Operation) -> None:
    refused(send(api, operation), 401, "api_key_missing")


def test_the_description_needs_no_key(api: Api) -> None:
    response = api.client.get("/api/v1/openapi.json")
    assert response.status_code == 200
    assert response.json()["info"]["version"] == "2026-09-09"


@pytest.mark.parametrize(
    "header",
    ["", " ", "Bearer", "Bearer ", "Bearer     ", "Basic {key}", "Token {key}", "{key}", "Bearer{key}", "Bearer:{key}"],
)
def test_a_header_without_a_bearer_key_is_no_key(api: Api, header: str) -> None:
    sent = header.format(key=api.key)
    refused(call(api.client, "GET", "/api/v1/me", headers=[("authorization", sent)]), 401, "api_key_missing")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"svc_" + b"a" * 40, id="unknown"),
        pytest.param(b"svc_" + b"a" * 39 + "é".encode(), id="a-letter-beyond-ascii"),
        pytest.param(b"svc_" + "１".encode() * 40, id="digits-beyond-ascii"),
        pytest.param(b"svc_" + b"a" * 39 + b"\x00", id="nul"),
        pytest.param(b"\xff\xfe", id="bytes-of-no-text"),
        pytest.param(b"svc_" + b"\xff\xfe" * 20, id="bytes-of-no-text-behind-the-prefix"),
        pytest.param(b"svc_" + b"a" * 10_000, id="10000-characters"),
    ],
)
def test_an_unknown_key_is_invalid(api: Api, text: bytes) -> None:
    answer = call(api.client, "GET", "/api/v1/me", headers=[("authorization", b"Bearer " + text)])
    refused(answer, 401, "api_key_invalid")


def test_a_key_in_another_case_is_another_key(api: Api) -> None:
    changed = Api(api.client, api.world, "svc_" + api.key[4:].swapcase())
    refused(changed.get("/me"), 401, "api_key_invalid")


def test_two_api_keys_in_one_request_are_refused(api: Api, new_world: Any) -> None:
    other = new_world().key()
    twice = [("authorization", f"Bearer {api.key}"), ("authorization", f"Bearer {other}")]
    refused(call(api.client, "GET", "/api/v1/me", headers=twice), 401, "api_key_invalid")
    refused(call(api.client, "GET", "/api/v1/me", headers=twice[:1] * 2), 401, "api_key_invalid")


def test_a_key_counts_only_in_its_header(api: Api) -> None:
    elsewhere: list[dict[str, Any]] = [
        {"params": {"api_key": api.key, "access_token": api.key}},
        {"headers": {"Cookie": f"api_key={api.key}; Authorization=Bearer {api.key}"}},
        {"headers": {"X-Api-Key": api.key}},
        {"headers": {"Proxy-Authorization": f"Bearer {api.key}"}},
    ]
    for arguments in elsewhere:
        refused(api.client.request("GET", "/api/v1/me", **arguments), 401, "api_key_missing")


@pytest.mark.parametrize(
    "header", ["bearer {key}", "BEARER {key}", "Bearer {key}   ", "Bearer   {key}", " Bearer {key}"]
)
def test_the_scheme_is_read_in_any_case_and_blanks_do_not_count(api: Api, header: str) -> None:
    sent = header.format(key=api.key)
    assert call(api.client, "GET", "/api/v1/me", headers=[("authorization", sent)]).status_code == 200


def test_a_revoked_key_opens_nothing_from_that_moment_in_any_process(
    api: Api, session_app: TestClient, run_app: Callable[..., AbstractContextManager[TestClient]]
) -> None:
    with run_app() as other_process:
        clients = [Api(client, api.world, api.key) for client in (session_app, other_process)] * 8
        with ThreadPoolExecutor(len(clients)) as threads:
            before = list(threads.map(lambda client: client.get("/me").status_code, clients))
            (key,) = api.world.rows(tables.api_keys)
            api.world.change(tables.api_keys, key["id"], revoked_at=api.world.clock())
            after = list(threads.map(lambda client: client.get("/me"), clients))
    assert before == [200] * 16
    for answer in after:
        refused(answer, 401, "api_key_revoked")


def test_a_key_expires_at_its_instant_and_not_before(api: Api) -> None:
    now = api.with_scopes(Scope.BOOKINGS_READ, expires_at=NOON)
    soon = api.with_scopes(Scope.BOOKINGS_READ, expires_at=NOON + SECOND)
    refused(now.get("/me"), 401, "api_key_expired")
    assert soon.get("/me").json()["key"]["expires_at"] == "2026-11-21T13:00:01+01:00"
    api.world.clock.advance(SECOND)
    refused(soon.get("/me"), 401, "api_key_expired")


@each_scoped_operation
def test_every_scope_but_its_own_is_not_enough_for_an_operation(api: Api, operation: Operation) -> None:
    others = api.with_scopes(*(scope for scope in Scope if scope is not operation.scope))
    body = refused(send(api, operation, headers={"Authorization": f"Bearer {others.key}"}), 403, "insufficient_scope")
    assert body["required_scope"] == operation.scope


@each_scoped_operation
def test_its_own_scope_alone_is_enough_for_an_operation(api: Api, operation: Operation, new_world: Any) -> None:
    assert operation.scope
    if operation.path.startswith("/api/v1/sandbox/"):
        api = Api(api.client, new_world(clock_offset=0))
    alone, with_all = (
        send(api, operation, headers={"Authorization": f"Bearer {api.with_scopes(*scopes).key}"}).status_code
        for scopes in ([operation.scope], Scope)
    )
    assert (alone in (401, 403), alone) == (False, with_all)


def test_any_key_may_read_me(api: Api) -> None:
    for scope in Scope:
        me = api.with_scopes(scope).get("/me").json()
        assert me["key"]["scopes"] == [scope]
        assert me["organization"]["id"] == api.world.org


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope not in READ_SCOPES - {Scope.EXPERIENCES_READ}])
def test_a_key_that_reads_no_resource_of_the_feed_reads_no_feed(api: Api, scope: Scope) -> None:
    key = api.with_scopes(scope)
    for path, status in (("/events", 200), (f"/events/{uuid.uuid4()}", 404)):
        if scope is Scope.WEBHOOKS_MANAGE:
            assert key.get(path).status_code == status
        else:
            assert refused(key.get(path), 403, "insufficient_scope")["required_scope"] == "bookings:read"


@each_operation
def test_an_organization_without_the_api_is_refused_everything(api: Api, operation: Operation) -> None:
    for is_on, has_plan, code in (
        (False, True, "app_not_enabled"),
        (True, False, "plan_upgrade_required"),
        (False, False, "app_not_enabled"),
    ):
        api.world.change(tables.organizations, api.world.org, api_app=is_on, plan_api=has_plan)
        refused(send(api, operation, headers={"Authorization": f"Bearer {api.key}"}), 403, code)


def test_keys_that_are_shown_alike_act_each_for_its_own(api: Api, new_world: Any) -> None:
    first, second = api.world, new_world()
    for number, world in enumerate((first, second)):
        tag = f"00{world.installation.cell}" if world.installation.cell else ""
        text = "svc_likeness" + str(number) * (26 - len(tag)) + tag + str(number) * 6
        world.insert(
            tables.api_keys,
            name="alike",
            prefix=tokens.api_key_prefix(text),
            key_hash=tokens.hash_api_key(text),
            scopes=json.dumps([Scope.BOOKINGS_READ]),
            created_at=NOON,
        )
        me = Api(api.client, world, text).get("/me").json()
        assert (me["organization"]["id"], me["key"]["prefix"]) == (world.org, "svc_likeness")


def test_a_key_is_shown_without_its_secret(api: Api) -> None:
    response = api.get("/me")
    key = response.json()["key"]
    assert set(key) == {"id", "name", "prefix", "scopes", "created_at", "expires_at", "last_used_at"}
    assert key["prefix"] == api.key[:12]
    assert api.key not in response.text
    assert key["expires_at"] is None


def test_the_last_use_is_known_to_the_minute_and_costs_no_write(api: Api, statements: list[str]) -> None:
    service = api.client.app.state.service  # type: ignore[attr-defined]
    service.key_usage.flush()
    api.world.clock.advance(MINUTE + 30 * SECOND)
    statements.clear()
    assert api.get("/me").json()["key"]["last_used_at"] is None
    assert [text for text in statements if not text.lstrip().upper().startswith(("SELECT", "WITH"))] == []
    service.key_usage.flush()
    assert api.get("/me").json()["key"]["last_used_at"] == "2026-11-21T13:01:00+01:00"
    (row,) = api.world.rows(tables.api_keys)
    assert row["last_used_at"] == NOON + MINUTE


def test_the_code_of_a_gift_card_is_returned_only_on_request(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    card = api.world.gift_card(CODE)
    response = api.get(f"/gift-cards/{card}", include="code")
    assert response.json()["code"] == CODE
    assert response.headers["cache-control"] == "no-store"
    for path in (f"/gift-cards/{card}", "/gift-cards", "/gift-cards?include=code", "/events?include=code"):
        answer = api.get(path)
        assert answer.status_code == 200
        assert CODE not in answer.text
        assert '"code"' not in answer.text
    assert CODE not in caplog.text
    assert CODE not in repr(
        [api.world.rows(table) for table in tables.metadata.sorted_tables if "organization_id" in table.c]
    )


def test_only_a_key_that_may_write_bookings_gets_the_guests_link(api: Api, world: World) -> None:
    booking = api.post("/bookings", booking_body(world.departure(world.experience()))).json()
    token = booking["manage_url"].rpartition("/")[2]
    assert len(token) * 6 >= 128
    reader = api.with_scopes(*READ_SCOPES)
    for path in (f"/bookings/{booking['id']}", "/bookings", "/events"):
        answer = reader.get(path)
        assert answer.status_code == 200
        assert token not in answer.text
    assert token not in api.get("/events").text
    assert token not in repr(world.rows(tables.bookings) + world.rows(tables.idempotency))
