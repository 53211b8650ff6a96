"""The request log: the requests with a line, and its content."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient
from support.api.api import Api, booking_body, fresh_key

from booking_cli.operator.logs import JsonLines
from booking_core.base.errors import Unavailable
from booking_core.base.settings import SettingError, Settings
from booking_core.models.scopes import Scope
from booking_server.api.middleware import STATE
from booking_server.app import create_app
from booking_server.monitoring.exposition import render
from booking_server.monitoring.observer import UNAVAILABLE_MAX, RequestLog, RequestObserver
from booking_server.transport.protocol import HttpProtocol

Lines = Callable[[], list[dict[str, Any]]]


def logged(api: Api, share: float = 1.0, sample: Callable[[], float] = lambda: 0.5) -> Api:
    """Return a client of the same service, whose requests are logged."""
    service = api.client.app.state.service
    log = RequestLog(share, service.authenticator.known_organization, sample=sample)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {STATE: RequestObserver(api.client.app.state.monitor.metrics, log)}
        await api.client.app(scope, receive, send)

    return Api(TestClient(app, raise_server_exceptions=False), api.world, api.key)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    with caplog.at_level(logging.INFO, "booking.requests"):
        yield lambda: [vars(record) for record in caplog.records if record.name == "booking.requests"]


def test_a_line_has_operation_status_code_duration_request_organization_and_key(api: Api, lines: Lines) -> None:
    api = logged(api)
    booked = api.book(api.world.departure(api.world.experience()))
    full = api.book(api.world.departure(api.world.experience(), seats=0))
    assert (booked.status_code, full.status_code) == (201, 409)
    first, second = lines()
    caller = {"organization_id": api.world.org, "key_prefix": api.key[:12], "operation": "create_booking"}
    expected = {"method": "POST", "status": 201, "code": None, "request_id": booked.headers["x-request-id"]} | caller
    assert {name: first[name] for name in expected} == expected
    assert (second["status"], second["code"]) == (409, "insufficient_capacity")
    assert 0 < first["duration_ms"] < 60_000


def test_a_line_of_a_replayed_refusal_has_its_code(api: Api, lines: Lines) -> None:
    api, key = logged(api), fresh_key()
    departure = api.world.departure(api.world.experience(), seats=0)
    replayed = [api.book(departure, key=key).headers.get("idempotent-replayed") for _ in range(2)]
    assert replayed == [None, "true"]
    assert [line["code"] for line in lines()] == ["insufficient_capacity"] * 2


def test_a_line_of_a_request_that_is_refused_shows_nothing_of_it(api: Api, lines: Lines) -> None:
    api = logged(api)
    api.get("/no-such-path/secret-path")
    Api(api.client, api.world, "sk_live_of_another_service").get("/me")
    api.client.get("/manage/secret-token")
    refusals = lines()
    assert [(line["operation"], line["status"], line["code"]) for line in refusals] == [
        (None, 404, "not_found"),
        ("get_me", 401, "api_key_invalid"),
        (refusals[2]["operation"], 404, "not_found"),
    ]
    assert refusals[1]["key_prefix"] is None
    text = "\n".join(JsonLines().format(logging.makeLogRecord(line)) for line in refusals)
    assert not [word for word in ("secret", "sk_live") if word in text]


def test_a_line_shows_no_guest_no_key_no_idempotency_key(api: Api, lines: Lines) -> None:
    api = logged(api)
    once = fresh_key()
    api.post("/bookings", booking_body(api.world.departure(api.world.experience()), note="canary note"), key=once)
    api.get("/customers", email="ada@example.com")
    text = json.dumps([JsonLines().format(logging.makeLogRecord(line)) for line in lines()])
    hidden = ("ada@example.com", "Lovelace", "+47 900", "canary note", once, api.key[12:], "testclient")
    assert len(lines()) == 2
    assert not [word for word in hidden if word in text]


def test_a_line_on_a_terminal_has_only_fields_with_a_value(api: Api, lines: Lines) -> None:
    api = logged(api)
    answer = api.get("/me")
    api.client.get("/no-such-path")
    log = RequestLog(1.0, lambda _: None)
    log.write({"method": "GET", "headers": [(b"x-request-id", b"req_left")]}, None, 0.0123)
    first, second, unanswered = (line["message"] for line in lines())
    assert re.fullmatch(
        rf"GET get_me: status 200, \d+\.\d ms, request {answer.headers['x-request-id']},"
        rf" organization {api.world.org}, key {api.key[:12]}",
        first,
    )
    assert re.fullmatch(r"GET: status 404, code not_found, \d+\.\d ms, request req_\w+", second)
    assert unanswered == "GET: no response, 12.3 ms, request req_left"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_share_of_the_requests_is_logged_and_every_failure(
    api: Api, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = iter([0.24, 0.25, 0.9])
    sampled = logged(api, 0.25, lambda: next(draws))
    for _ in range(3):
        assert sampled.get("/me").status_code == 200
    assert len(lines()) == 1

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("booking_core.customers.get", broken)
    failed = logged(api, 0.0).get("/customers/0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07")
    assert (failed.status_code, failed.headers["connection"]) == (500, "close")  # as uvicorn does after an error
    failure = lines()[1]
    assert (failure["operation"], failure["status"], failure["code"]) == ("get_customer", 500, "internal_error")
    assert failure["levelname"] == "WARNING"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_refusal_with_503_has_a_line_with_its_reason(api: Api, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> None:
        raise Unavailable(reason="queue")

    monkeypatch.setattr(api.client.app.state.service.creations, "create", busy)
    refused = logged(api, 0.0).book(api.world.departure(api.world.experience()))
    assert refused.status_code == 503
    (line,) = lines()
    fields = (line["operation"], line["status"], line["code"], line["reason"], line["levelname"])
    assert fields == ("create_booking", 503, str(refused.json()["code"]), "queue", "INFO")


def test_refusals_with_503_have_a_limited_number_of_lines_in_a_second() -> None:
    now_s = 7.0
    log = RequestLog(0.0, lambda _: None, clock=lambda: now_s)
    assert [log.takes(503) for _ in range(UNAVAILABLE_MAX + 2)] == [True] * UNAVAILABLE_MAX + [False] * 2
    assert log.takes(500)
    now_s = 8.0
    assert log.takes(503)


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/v1/bookings HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
    ids=["head", "body"],
)
def test_a_request_that_the_parser_refuses_is_counted_once_and_logged(
    fresh_database_url: str, lines: Lines, request_bytes: bytes
) -> None:
    app = create_app(Settings(database_url=fresh_database_url, secret_key="k" * 43, request_log=1.0))
    answer = asyncio.run(exchanged(app, request_bytes))
    assert answer.startswith(b"HTTP/1.1 400 ")
    (line,) = lines()
    assert (line["operation"], line["status"], line["code"]) == (None, 400, "validation_failed")
    assert f"x-request-id: {line['request_id']}".encode() in answer
    counted = render(app.state.monitor.metrics.registry.collect()).decode()
    samples = [sample for sample in counted.splitlines() if sample.startswith("booking_http_requests_total")]
    assert samples == ['booking_http_requests_total{operation="(unrouted)",status="400"} 1.0']


async def exchanged(app: Any, request_bytes: bytes) -> bytes:
    """Return the service's answer to the bytes of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, lifespan="on", log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(request_bytes)
        answer = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
    return answer


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("share", "count"), [(1.0, 1), (0.0, 0), (None, 0)])
def test_the_setting_decides(fresh_database_url: str, lines: Lines, share: float | None, count: int) -> None:
    settings = Settings(database_url=fresh_database_url, secret_key="k" * 43, request_log=share)
    with TestClient(create_app(settings)) as client:
        assert client.get("/api/v1/me").status_code == 401
    assert len(lines()) == count


@pytest.mark.parametrize(("text", "share"), [("off", None), ("on", 1.0), ("1", 1.0), ("0.01", 0.01), ("0", 0.0)])
def test_the_setting_is_a_share(text: str, share: float | None) -> None:
    assert Settings.from_environment({"BOOKING_REQUEST_LOG": text}).request_log == share


@pytest.mark.parametrize("text", ["1.1", "-1", "nan", "all"])
def test_the_setting_refuses_what_is_no_share(text: str) -> None:
    with pytest.raises(SettingError, match="must be a share of the requests from 0 to 1"):
        Settings.from_environment({"BOOKING_REQUEST_LOG": text})


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_scope_that_is_missing_is_a_code_of_a_known_key(api: Api, lines: Lines) -> None:
    reader = api.with_scopes(Scope.CUSTOMERS_READ)
    logged(reader).post("/customers", {"email": "ada@example.com", "name": "Ada"})
    (line,) = lines()
    assert (line["code"], line["key_prefix"], line["organization_id"]) == (
        "insufficient_scope",
        reader.key[:12],
        api.world.org,
    )
