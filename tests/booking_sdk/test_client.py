"""The clients: their settings, and the state that copies share."""

import asyncio
import gc
import inspect
import os
import re
import ssl
from typing import Any

import httpx
import pytest
import respx
from sdk_support.blocking import warned
from sdk_support.routed import DROPPED, KEY, OK, URL, ClientOf, Clients, WireOf, answered, as_json

import booking_sdk
from booking_sdk import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncBookingClient,
    BookingClient,
    ConfigurationError,
    Hooks,
    Timeout,
    _attempt_timeout,
    _http,
    meta,
)
from booking_sdk._sync import client as sync_client
from booking_sdk._transport_failures import failure_of
from booking_sdk.testing import make_booking

pytestmark = pytest.mark.usefixtures("quick_collections")

CLIENTS = [BookingClient, AsyncBookingClient]
BOOKING = make_booking().to_json()
ME = f"{URL}/api/v1/me"
CANCEL = f"{URL}/api/v1/bookings/1/cancel"


def offline(kind: type[Any], **options: Any) -> Any:
    """Return a client that cannot send anything."""
    http_client = httpx.Client if kind is BookingClient else httpx.AsyncClient
    transport = httpx.MockTransport(lambda request: pytest.fail(f"{request.url} was requested"))
    return kind(**{"api_key": KEY, "base_url": URL, "http_client": http_client(transport=transport), **options})


# Settings


@pytest.mark.parametrize("kind", CLIENTS)
def test_key_address_and_secrets_come_from_the_environment(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOKING_API_KEY", KEY)
    monkeypatch.setenv("BOOKING_BASE_URL", "https://env.test/")
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", "whsec_a, whsec_b")
    client = offline(kind, api_key=None, base_url=None)
    assert client._config.base_url == "https://env.test"
    assert client._config.api_key() == KEY
    assert client._config.webhook_secret == ("whsec_a", "whsec_b")
    assert offline(kind, api_key="svc_own")._config.api_key() == "svc_own"
    assert offline(kind, base_url="https://api.test/booking/")._config.base_url == "https://api.test/booking"
    for option in ("api_key", "base_url"):
        with pytest.raises(ConfigurationError):
            offline(kind, **{option: ""})


INVALID: dict[str, list[dict[str, Any]]] = {
    "api_key is missing: pass it, or set BOOKING_API_KEY": [{"api_key": None}],
    "api_key is missing": [{"api_key": ""}],
    "api_key holds a space, a line break": [{"api_key": key} for key in ("svc_x\n", "svc_ø")],
    "base_url is missing: pass it, or set BOOKING_BASE_URL": [{"base_url": None}],
    "base_url is missing": [{"base_url": ""}],
    "must begin with https://": [
        *({"base_url": url} for url in ("api.test", "ftp://api.test", "https://", "https://a b", "https://[::1")),
        *({"base_url": url} for url in ("https://a:99999", "https://booking..example.com")),
    ],
    "credentials": [{"base_url": "https://user:pw@api.test"}],
    "query": [{"base_url": "https://api.test?x=1"}],
    "leave /api/v1 away": [{"base_url": "https://api.test/api/v1/"}],
    "timeout": [{"timeout": seconds} for seconds in (0, float("nan"), "soon")],
    "deadline": [{"deadline": -1}],
    "max_retries": [{"max_retries": count} for count in (-1, 1.5)],
    "max_response_bytes": [{"max_response_bytes": count} for count in (0, 1e6)],
    "api_key": [{"default_headers": {"Authorization": "x"}}],
    "cannot be sent": [
        {"default_headers": {name: value}}
        for name, value in (("X", "a\r\nb"), ("X", " a"), ("X", "a "), ("X Y", "a"), ("X:", "a"))
    ],
    "webhook_secret": [{"webhook_secret": secret} for secret in ("whsec_a b", ["whsec_a", ""])],
    "webhook_secret: a secret does not begin with whsec_": [{"webhook_secret": "svc_live_a"}],
    "webhook_secret: a secret must be a str": [{"webhook_secret": [5]}],
    "user_agent_suffix": [{"user_agent_suffix": suffix} for suffix in ("a\nb", "till/3.1 ")],
}
"""Arguments by a part of the message of their error."""


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("options", "message"), [(options, message) for message, rows in INVALID.items() for options in rows]
)
def test_invalid_arguments_raise_at_once(kind: type[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        offline(kind, **options)
    if isinstance(options.get("api_key"), str) and options["api_key"]:
        assert options["api_key"] not in str(caught.value)


@pytest.mark.parametrize("kind", CLIENTS)
def test_no_repr_shows_a_secret(kind: type[Any]) -> None:
    client = offline(kind, webhook_secret="whsec_hidden", default_headers={"X-Token": "hidden-too"})
    text = f"{client!r} {client!s} {client._config!r} {vars(client)!r} {client.bookings!r}"
    assert URL in text
    for secret in (KEY, "whsec_hidden", "hidden-too"):
        assert secret not in text


def test_a_key_that_a_function_gives_is_checked_when_it_is_used(wire: WireOf) -> None:
    service = wire([])
    client = service.client().with_options(api_key=lambda: "svc_bad\r\nX: y")
    with pytest.raises(ConfigurationError) as caught:
        client.me()
    assert "svc_bad" not in str(caught.value)
    assert service.requests == []


# Sync and async


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


PAIRS = [
    (getattr(booking_sdk, name.removeprefix("Async")), getattr(booking_sdk, name))
    for name in booking_sdk.__all__
    if name.startswith("Async")
]


@pytest.mark.parametrize(("sync", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_sync_and_async_have_the_same_signatures(sync: type[Any], other: type[Any]) -> None:
    assert public(sync).keys() == {name.replace("aclose", "close") for name in public(other)}
    for name, method in public(sync).items():
        if inspect.isfunction(method):
            twin = public(other)[name]
            parameters = [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]
            twins = [(one.name, one.kind, one.default) for one in inspect.signature(twin).parameters.values()]
            assert parameters == twins
            assert not inspect.iscoroutinefunction(method)


def test_every_public_method_has_a_docstring() -> None:
    client = offline(BookingClient)
    resources = [type(getattr(client, name)) for name in sync_client._RESOURCES]
    for kind in [*resources, *(kind for _, kind in PAIRS)]:
        for name, member in public(kind).items():
            target = getattr(member, "fget", None) or getattr(member, "func", member)
            if callable(target) and name not in ("build_request", "send"):
                assert inspect.getdoc(target), f"{kind.__name__}.{name}"


# Sent and answered


def test_the_result_of_a_call_has_the_metadata_of_its_response(wire: WireOf) -> None:
    headers = {
        "x_request_id": "req_7",
        "x_ratelimit_limit": "600",
        "x_ratelimit_remaining": "12",
        "x_ratelimit_reset": "1795262400",
        "idempotent_replayed": "true",
    }
    booking = (
        wire([DROPPED, as_json(BOOKING, 201, **headers)])
        .client()
        .bookings.create(
            departure_id="d",
            guests=[{"tier_id": "adult", "count": 1}],
            customer={"name": "A", "email": "a@b.no"},
            payment="invoice",
            idempotency_key="order-0001",
        )
    )
    about = meta(booking)
    assert (about.status_code, about.request_id, about.retries) == (201, "req_7", 1)
    assert (about.created, about.idempotent_replayed, about.idempotency_key) == (True, True, "order-0001")
    assert about.elapsed.total_seconds() == 0.25
    assert about.rate_limit is not None
    assert (about.rate_limit.limit, about.rate_limit.remaining) == (600, 12)
    assert about.rate_limit.reset_at.isoformat() == "2026-11-21T12:00:00+00:00"
    assert "12" in repr(about.rate_limit)
    assert booking == make_booking(**BOOKING)
    assert "_booking_sdk_meta" not in booking.to_json()
    assert meta(booking.model_copy(update={"note": "x"})) is about
    for result in (make_booking(), {"a": 1}, None, 7):
        with pytest.raises(LookupError):
            meta(result)


@pytest.mark.parametrize("headers", [{}, {"x_ratelimit_limit": "x", "x_ratelimit_reset": "9" * 30}])
def test_rate_limit_without_headers_is_none(headers: dict[str, str], wire: WireOf) -> None:
    client = wire([as_json(BOOKING, **headers)]).client()
    assert meta(client.bookings.get("1")).rate_limit is None


INVALID_LOCATIONS = ("https://a.example.com/\x1b[2J", "http://[::1", "https://a.example.com:port/")


@pytest.mark.parametrize(
    ("location", "kind", "message", "attempts"),
    [
        ("https://elsewhere.test/", APIStatusError, "307", 1),
        *((location, APIConnectionError, "the connection broke", 3) for location in INVALID_LOCATIONS),
    ],
)
def test_a_redirect_is_not_followed(location: str, kind: Any, message: str, attempts: int, wire: WireOf) -> None:
    service = wire([answered(307, None, location=location)])
    with pytest.raises(kind, match=message):
        service.client().me()
    assert len(service.requests) == attempts


def test_exceptions_that_are_not_httpx_s(respx_mock: respx.MockRouter, connect: Clients) -> None:
    respx_mock.get(ME).mock(side_effect=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        connect().me()
    respx_mock.post(CANCEL).mock(side_effect=ConnectionResetError("svc_secret"))
    with pytest.raises(APIConnectionError) as caught:
        connect().bookings.cancel("1")
    assert caught.value.maybe_executed
    assert "svc_secret" not in str(caught.value)


class Dripping(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A response that never ends, and never pauses long enough to time out."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def __iter__(self) -> Any:
        while True:
            self.clock[0] += 1
            yield b" "

    async def __aiter__(self) -> Any:
        for chunk in self:
            yield chunk


def test_an_answer_that_drips_is_given_up(
    respx_mock: respx.MockRouter, connect: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(_attempt_timeout.time, "monotonic", lambda: clock[0])
    respx_mock.get(ME).mock(httpx.Response(200, stream=Dripping(clock)))
    with pytest.raises(APITimeoutError):
        connect(max_retries=0).me()
    assert clock[0] == 31


def test_timeouts_reach_the_transport(wire: WireOf) -> None:
    service = wire([OK])
    client = service.client(timeout=Timeout(20, connect=2))
    client.request("GET", "/x", cast_to=dict)
    client.request("GET", "/x", cast_to=dict, options={"timeout": 3})
    client.with_options(deadline=1.5).request("GET", "/x", cast_to=dict)
    assert [request.extensions["timeout"] for request in service.requests] == [
        {"connect": connect, "read": total, "write": total, "pool": total}
        for connect, total in ((2, 20), (3, 3), (1.5, 1.5))
    ]


def test_each_part_of_an_attempt_has_only_its_remaining_time(
    respx_mock: respx.MockRouter, connect: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, timeouts = [0.0], []
    monkeypatch.setattr(_attempt_timeout.time, "monotonic", lambda: clock[0])

    def slow(request: httpx.Request) -> Any:
        for seconds in (0.0, 4.0, 30.0):
            clock[0] += seconds
            timeouts.append([request.extensions["timeout"].get(part) for part in ("connect", "read", "none")])
        return OK

    respx_mock.get(ME).mock(side_effect=slow)
    with pytest.raises(APITimeoutError):
        connect(timeout=Timeout(10, connect=7), max_retries=0).me()
    assert timeouts == [[7, 10, None], [6, 6, None], [0.001, 0.001, None]]


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_timeout_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(ValueError):
        Timeout(seconds)
    with pytest.raises(ValueError):
        Timeout(connect=seconds)


def test_auth_and_cookies_of_the_callers_client_never_replace_the_key() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={})

    # Not with respx: it replaces httpx's own transport, and this client has another one.
    http_client = httpx.Client(
        transport=httpx.MockTransport(answer),
        auth=("somebody", "else"),
        headers={"X-Own": "kept"},
        base_url="https://other.test",
        follow_redirects=True,
    )
    BookingClient(KEY, base_url=URL, http_client=http_client).request("GET", "/x", cast_to=dict)
    assert requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert requests[0].headers["x-own"] == "kept"
    assert str(requests[0].url) == f"{URL}/x"


def test_a_raw_answer_is_of_one_request_and_parsed_on_demand(wire: WireOf) -> None:
    client = wire([httpx.Response(200, content=b'{"surprise": 1}')]).client()
    for method in (client.bookings.iterate, client.events.follow):
        with pytest.raises(TypeError):
            client.with_raw_response(method)
    answer = client.with_raw_response(client.bookings.get, "1", options={"headers": {"X-Trace": "1"}})
    assert answer.body == b'{"surprise": 1}'
    with pytest.raises(booking_sdk.ResponseValidationError):
        answer.parse()


# Shared and closed


def test_options_make_another_client_on_the_same_connections() -> None:
    client = offline(BookingClient, timeout=10, max_retries=1)
    client.bookings  # noqa: B018 - created, and must not be copied
    other = client.with_options(timeout=2, max_retries=5, default_headers={"X-Tenant": "b"}, api_key="svc_other")
    assert other._transport is client._transport
    assert other.bookings._client is other
    assert (other._config.timeout.total, other._config.max_retries) == (2, 5)
    assert other._config.default_headers == (("x-tenant", "b"),)
    assert other._config.api_key() == "svc_other"
    assert (client._config.timeout.total, client._config.max_retries, client._config.default_headers) == (10, 1, ())
    secretive = offline(BookingClient, webhook_secret="whsec_a")
    assert secretive.with_options(webhook_secret=None)._config.webhook_secret == ()


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown options: colour"):
        offline(BookingClient).with_options(colour="red")
    with pytest.raises(ConfigurationError):
        offline(BookingClient).with_options(timeout=-1)


def test_options_are_copied_while_another_thread_creates_a_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = offline(BookingClient)

    class Meanwhile(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            client.bookings  # noqa: B018 - by the other thread
            return super().__contains__(name)

    monkeypatch.setattr(sync_client, "_RESOURCES", Meanwhile(sync_client._RESOURCES))
    assert client.with_options(timeout=1)._config.timeout.total == 1


def test_a_subclass_keeps_what_is_its_own() -> None:
    class Subclass(BookingClient):
        tenant = "none"

    client = Subclass(KEY, base_url=URL, http_client=httpx.Client())
    client.tenant = "b"
    assert client.with_options(timeout=1).tenant == "b"


def test_the_end_of_a_block_closes_only_connections_of_the_sdk(flavour: str, client_of: ClientOf) -> None:
    client = client_of(URL)
    inner = client._transport._connections.client()
    client.with_options(timeout=1).close()
    assert not inner.is_closed
    leave = client.__exit__ if flavour == "sync" else client.__aexit__
    leave(None, None, None)
    assert inner.is_closed
    with pytest.raises(ConfigurationError, match="closed"):
        client.me()
    http_client = httpx.Client() if flavour == "sync" else httpx.AsyncClient()
    client_of(URL, http_client=http_client).close()
    assert not http_client.is_closed


def test_client_closed_between_attempts_raises_the_error_before_it(wire: WireOf) -> None:
    client = wire([DROPPED]).client()
    pool = getattr(client, "target", client)._transport._connections

    def close(_: Any) -> None:
        pool.is_closed = True

    hooked = client.with_options(hooks=Hooks(on_retry=close))
    with pytest.raises(APIConnectionError) as caught:
        hooked.bookings.cancel("1", idempotency_key="order-0001")
    assert caught.value.maybe_executed
    assert (caught.value.idempotency_key, caught.value.attempts) == ("order-0001", 1)
    assert isinstance(caught.value.__cause__, ConfigurationError)
    with pytest.raises(ConfigurationError, match="closed"):
        hooked.bookings.cancel("1")


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_that_is_dropped_open_is_complained_of(kind: type[Any], runner: asyncio.Runner) -> None:
    clients = [kind(KEY, base_url=URL)]
    if kind is AsyncBookingClient:
        runner.run(clients[0]._transport._connections.client())
    assert warned(lambda: clients[0].with_options(timeout=1)) == []
    assert warned(clients.clear) == [f"unclosed <{kind.__name__} of {URL}>"]


def test_a_client_without_connections_has_nothing_to_close() -> None:
    clients = [AsyncBookingClient(KEY, base_url=URL)]
    assert warned(clients.clear) == []
    with pytest.raises(ConfigurationError):
        BookingClient(KEY, base_url="nowhere")
    gc.collect()


def test_connections_are_not_shared_with_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BookingClient(KEY, base_url=URL)
    connections = client._transport._connections
    before = connections.client()
    assert connections.client() is before
    monkeypatch.setattr(os, "getpid", lambda: -1)
    after = connections.client()
    assert after is not before
    assert connections.client() is after
    monkeypatch.undo()
    before.close()
    client.close()


def test_certificates_are_read_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    _http.ssl_context()
    monkeypatch.setattr(ssl, "create_default_context", None)
    BookingClient(KEY, base_url=URL).close()


def test_a_fork_of_httpx_is_understood_by_the_names_of_its_errors() -> None:
    class RequestError(Exception): ...

    class TransportError(RequestError): ...

    class TimeoutException(TransportError): ...

    class ConnectTimeout(TimeoutException): ...

    class ReadError(TransportError): ...

    losses = [failure_of(error) for error in (ConnectTimeout(), ReadError(), ValueError())]
    assert [failure and (failure.sent, failure.timed_out) for failure in losses] == [(False, True), (True, False), None]
