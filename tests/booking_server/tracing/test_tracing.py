"""Traces from a request through its batch to the delivery, with nothing of a client or a guest in them."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from starlette.testclient import TestClient
from support.api.api import Api, booking_body, fresh_key
from support.receivers.receivers import Receivers, plain, wait_until
from support.receivers.senders import FakeSender
from support.world.hooks import Hooks
from support.world.world import SECRET, FixedClock, make_world

import webhook_verify
from booking_core.base.clock import HOUR, system_clock
from booking_core.base.settings import SettingError, Settings
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_server import tracing as setup
from booking_server.adapters.webhook_client import Sent
from booking_server.app import create_app
from booking_server.tracing.tracing import TracedSender, Tracing
from booking_server.worker.deliveries import signed_headers

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLERS = f"00-{TRACE_ID}-{SPAN_ID}-01"


class Traced:
    """A service whose spans are kept in memory."""

    def __init__(self, database: Database, clock: FixedClock, client: TestClient, spans: InMemorySpanExporter) -> None:
        self.database = database
        self.world = make_world(database, clock)
        self.clock = clock
        self.client = client
        self.api = Api(client, self.world)
        self._spans = spans

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._spans.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (match,) = [span for span in self.spans if span.name == name]
        return match

    def forget(self) -> None:
        self._spans.clear()

    def book(self, *, traceparent: str | None = None, **over: Any) -> Any:
        departure = self.world.departure(self.world.experience())
        headers = {"traceparent": traceparent} if traceparent else {}
        return self.api.post("/bookings", booking_body(departure, **over), headers=headers)

    def children(self, parent: ReadableSpan) -> list[str]:
        return [span.name for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id]


def provider_of(exporter: InMemorySpanExporter, **settings: Any) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False, **settings)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture(scope="module")
def url(backend: str, new_database_url: Callable[[str], str]) -> str:
    return new_database_url(backend)


@pytest.fixture(scope="module")
def running(url: str) -> Iterator[Traced]:
    clock, exporter = FixedClock(), InMemorySpanExporter()
    settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
    with closing(Database(url, clock=clock)) as database:
        app = create_app(settings, database=database, tracer_provider=provider_of(exporter))
        with TestClient(app, raise_server_exceptions=False) as client:
            yield Traced(database, clock, client, exporter)


@pytest.fixture
def traced(running: Traced) -> Traced:
    running.forget()
    return running


# Requests ----------------------------------------------------------------------------------------------------------


def test_a_trace_goes_from_the_callers_span_to_the_batch(traced: Traced) -> None:
    answer = traced.book(traceparent=CALLERS)
    assert answer.status_code == 201
    request, batch = traced.span("POST /api/v1/bookings"), traced.span("batch book")
    assert request.parent is not None
    assert (f"{request.parent.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE_ID, SPAN_ID)
    assert request.kind is trace.SpanKind.SERVER
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/api/v1/bookings",
        "http.response.status_code": 201,
        "booking.operation": "create_booking",
        "booking.organization_id": traced.world.org,
        "booking.request_id": answer.headers["x-request-id"],
    }
    assert traced.children(request)[-1] == batch.name
    assert {span.context.trace_id for span in traced.spans} == {int(TRACE_ID, 16)}


def test_a_read_has_the_span_of_its_batch(traced: Traced) -> None:
    traced.api.get("/me")
    traced.forget()
    traced.api.get("/me")
    batch, request = traced.spans
    assert (request.name, batch.name) == ("GET /api/v1/me", "batch key")
    assert traced.children(request) == [batch.name]
    assert request.parent is None


@pytest.mark.parametrize(
    "sent",
    [
        [CALLERS.upper()],
        [CALLERS.replace(TRACE_ID, "0" * 32)],
        [CALLERS.replace(SPAN_ID, "0" * 16)],
        [f"ff{CALLERS[2:]}"],
        [f"{CALLERS}-more"],
        [CALLERS[:-1]],
        ["x" * 600],
        [CALLERS, CALLERS],
    ],
    ids=["upper case", "no trace", "no span", "version ff", "too long", "too short", "not one", "twice"],
)
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_traceparent_that_is_not_valid_is_ignored(traced: Traced, sent: list[str]) -> None:
    headers = [("authorization", f"Bearer {traced.api.key}"), *(("traceparent", text) for text in sent)]
    assert traced.client.get("/api/v1/me", headers=headers).status_code == 200
    request = traced.span("GET /api/v1/me")
    assert request.parent is None
    assert f"{request.context.trace_id:032x}" != TRACE_ID


def test_a_refusal_has_its_code_and_only_a_failure_is_an_error(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("canary of an error")

    assert traced.book(guests=[{"tier_id": "adult", "count": 99}]).status_code == 409
    traced.client.get("/canary-of-a-path?canary=query")
    monkeypatch.setattr("booking_core.customers.get", broken)
    traced.api.get("/customers/0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07")
    refused, unrouted = traced.span("POST /api/v1/bookings"), traced.span("GET")
    failed = traced.span("GET /api/v1/customers/{id}")
    assert (refused.attributes or {})["booking.error.code"] == "insufficient_capacity"
    assert refused.status.status_code is trace.StatusCode.UNSET
    assert (unrouted.attributes or {})["http.response.status_code"] == 404
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "internal_error"
    assert "canary" not in "".join(span.to_json() for span in traced.spans)


def test_a_batch_and_its_requests_link_to_each_other() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(provider_of(exporter))
    requests = [tracing.tracer.start_span(f"request {number}") for number in range(3)]
    with tracing.batch("book", requests, 5):
        assert trace.get_current_span().is_recording()
    assert not trace.get_current_span().is_recording()
    for request in requests:
        request.end()
    batch, first, *others = exporter.get_finished_spans()
    assert batch.parent == first.context
    assert batch.attributes == {"booking.lane": "book", "booking.batch.size": 5}
    assert [link.context for link in batch.links] == [request.context for request in others]
    assert not first.links
    assert [link.context for request in others for link in request.links] == [batch.context] * 2


# Deliveries --------------------------------------------------------------------------------------------------------


def test_attempts_continue_the_requests_trace_in_another_process_hours_later(traced: Traced) -> None:
    hooks = Hooks(traced.world)
    hooks.endpoint(EventType.BOOKING_CREATED, url="https://canary.example/secret-path?token=canary")
    traced.book(traceparent=CALLERS)
    request = traced.span("POST /api/v1/bookings")
    first = hooks.one()
    hooks.fail(first)
    traced.clock.at += 12 * HOUR
    again = hooks.one()
    assert again.number == 2
    exporter, sender = InMemorySpanExporter(), FakeSender(always=Sent(500, "canary", None, 1))
    worker = TracedSender(sender, Tracing(provider_of(exporter)))
    for claimed in (first, again):
        asyncio.run(worker.send(claimed.url, signed_headers(claimed), claimed.body))
    attempts = exporter.get_finished_spans()
    for attempt, (_, headers, _), claimed in zip(attempts, sender.requests, (first, again), strict=True):
        assert attempt.parent is not None
        assert attempt.parent.span_id == request.context.span_id
        assert headers["traceparent"] == f"00-{TRACE_ID}-{attempt.context.span_id:016x}-01"
        assert attempt.name == "deliver booking.created"
        assert attempt.attributes == {
            "http.request.method": "POST",
            "http.response.status_code": 500,
            "booking.event.type": "booking.created",
            "booking.event.id": claimed.event_id,
            "booking.attempt.id": claimed.attempt_id,
        }
        secret = hooks.secrets[claimed.endpoint_id]
        webhook_verify.verify(claimed.body, headers, secret, now=claimed.at // 10**6)
    assert "canary" not in "".join(span.to_json() for span in attempts)


def test_an_event_that_no_request_caused_begins_a_trace(traced: Traced) -> None:
    hooks = Hooks(traced.world)
    hooks.endpoint()
    hooks.publish()
    exporter, sender = InMemorySpanExporter(), FakeSender()
    claimed = hooks.one()
    assert claimed.traceparent is None
    asyncio.run(TracedSender(sender, Tracing(provider_of(exporter))).send("", signed_headers(claimed), claimed.body))
    (attempt,) = exporter.get_finished_spans()
    assert attempt.parent is None
    assert f"{attempt.context.trace_id:032x}" in sender.requests[0].headers["traceparent"]


def test_an_unrecorded_trace_of_the_caller_reaches_the_receiver(url: str) -> None:
    clock, exporter = FixedClock(), InMemorySpanExporter()
    settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
    with closing(Database(url, clock=clock)) as database:
        app = create_app(settings, database=database, tracer_provider=provider_of(exporter, sampler=ALWAYS_OFF))
        with TestClient(app) as client:
            traced = Traced(database, clock, client, exporter)
            hooks = Hooks(traced.world)
            hooks.endpoint(EventType.BOOKING_CREATED, EventType.CUSTOMER_CREATED)
            traced.book(traceparent=CALLERS)
            traced.api.post("/customers", {"name": "Ada", "email": "lovelace@example.com"})
            claimed = {delivery.event_type: dict(signed_headers(delivery)) for delivery in hooks.claim()}
    assert exporter.get_finished_spans() == ()
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-00", claimed["booking.created"]["traceparent"])
    assert "traceparent" not in claimed["customer.created"]


def test_the_share_limits_new_traces_and_continued_traces_are_always_recorded() -> None:
    exporter, sender = InMemorySpanExporter(), FakeSender()
    tracing = Tracing(provider_of(exporter), share=0.0)
    headers = [("Svc-Event-Type", "ping"), ("Svc-Event-Id", "1"), ("Svc-Delivery-Id", "2")]
    for sent in (headers, [*headers, ("traceparent", CALLERS)]):
        asyncio.run(TracedSender(sender, tracing).send("", sent, b""))
    for lines in ([], [(b"traceparent", CALLERS.encode())]):
        scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": lines}
        tracing.begin_request(scope)
        tracing.end_request(scope, 404)
    assert [span.name for span in exporter.get_finished_spans()] == ["deliver ping", "GET"]
    assert ["traceparent" in request.headers for request in sender.requests] == [False, True]


@pytest.mark.parametrize("trace_headers", [[], [("traceparent", CALLERS)]], ids=["no trace", "a trace"])
def test_a_provider_that_is_disabled_passes_a_trace_on_as_it_is(trace_headers: list[tuple[str, str]]) -> None:
    headers = [("Svc-Event-Type", "ping"), ("Svc-Event-Id", "1"), ("Svc-Delivery-Id", "2"), *trace_headers]
    asyncio.run(TracedSender(sender := FakeSender(), Tracing(trace.NoOpTracerProvider())).send("", headers, b""))
    assert [request.headers for request in sender.requests] == [dict(headers)]


def test_without_tracing_no_column_is_written_and_no_header_is_sent(api: Api, statements: list[str]) -> None:
    hooks = Hooks(api.world)
    hooks.endpoint(EventType.BOOKING_CREATED)
    departure = api.world.departure(api.world.experience())
    statements.clear()
    api.post("/bookings", booking_body(departure), headers={"traceparent": CALLERS})
    written = [text for text in statements if "INSERT INTO events" in text]
    assert written
    assert not [text for text in written if "traceparent" in text]
    (claimed,) = (row for row in hooks.claim(free=1000) if row.organization_id == api.world.organization.id)
    assert "traceparent" not in dict(signed_headers(claimed))


# A day, with everything on -----------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_a_delivery_is_traced_and_no_span_has_its_content(fresh_database_url: str) -> None:
    exporter = InMemorySpanExporter()
    local: dict[str, Any] = {"webhook_allow_http": True, "webhook_allow_cidrs": ("127.0.0.0/8",)}
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, **local)
    app = create_app(settings, worker=True, tracer_provider=provider_of(exporter))
    with Receivers() as receivers, TestClient(app) as client:
        receiver = receivers.open(lambda _: plain(200, body=b"canary-said"))
        traced = Traced(app.state.service.database, FixedClock(system_clock()), client, exporter)
        hook = {"url": f"{receiver.url}/canary-path?token=canary", "event_types": ["booking.created"]}
        endpoint = traced.api.post("/webhooks", hook, key=fresh_key()).json()
        guest = {"name": "Canary Guest", "email": "canary@example.com", "phone": "+47 900 canary"}
        booking = traced.book(customer=guest, note="canary note", traceparent=CALLERS).json()
        receiver.wait_for(1)
        wait_until(lambda: [span for span in traced.spans if span.name == "deliver booking.created"], "its span ends")
        traced.api.get("/customers", email="canary@example.com")
        client.get(booking["manage_url"].partition("8000")[2])
        traced.api.cancel(booking["id"], reason="canary reason")
        Api(client, traced.world, "svc_canary_key").get("/me")
        (receipt,) = receiver.receipts
        text = "".join(span.to_json() for span in traced.spans)
    attempt = traced.span("deliver booking.created")
    assert receipt.headers["traceparent"] == f"00-{TRACE_ID}-{attempt.context.span_id:016x}-01"
    hidden = ["canary", traced.api.key[12:], endpoint["secret"], booking["manage_url"].rpartition("/")[2], SECRET]
    hidden += ["127.0.0.1", "testserver", "Canary", "manage_token"]
    assert not [secret for secret in hidden if secret in text]
    assert not re.search(rf"(?<![0-9a-f]){receiver.port}(?![0-9a-f])", text)  # in an id its digits mean nothing
    assert {span.name.partition(" ")[0] for span in traced.spans} >= {"GET", "POST", "batch", "deliver"}


# Setting it up -----------------------------------------------------------------------------------------------------


def test_the_environment_of_opentelemetry_configures_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracing = setup.open_tracing(Settings(tracing=True))
    assert tracing is not None
    tracer: Any = tracing.tracer
    assert tracer.resource.attributes["service.name"] == "booking-service"
    assert tracer.resource.attributes["deployment.environment.name"] == "test"
    assert "0.25" in tracer.sampler.get_description()
    tracing.close()
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    tracing = setup.open_tracing(Settings(tracing=True))
    assert tracing is not None
    tracer = tracing.tracer
    assert "ParentBased{root:AlwaysOn" in tracer.sampler.get_description()
    draws = iter([0.0099, 0.01])
    monkeypatch.setattr("random.random", lambda: next(draws))
    assert [tracing.may_begin(), tracing.may_begin()] == [True, False]
    tracing.close()


def test_another_name_of_the_service_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "tours")
    tracing: Any = setup.open_tracing(Settings(tracing=True))
    assert tracing.tracer.resource.attributes["service.name"] == "tours"


def test_what_cannot_be_set_up_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert setup.open_tracing(Settings()) is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(SettingError, match="OTEL_TRACES_EXPORTER names zipkin"):
        setup.open_tracing(Settings(tracing=True))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"BOOKING_TRACING needs more packages: install booking-server\[otel\]"):
        setup.open_tracing(Settings(tracing=True))
