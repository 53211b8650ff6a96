"""An error reporter records no secret in the local variables of a failed call."""

import asyncio
import json
import logging
import socket
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from sdk_support.blocking import error_of
from sdk_support.raw import Script, answer, drip, scripted_server
from sdk_support.routed import ClientOf

import booking_sdk
from booking_sdk import (
    AsyncBookingClient,
    BookingClient,
    Hooks,
    WebhookEndpointWithSecret,
    parse_event_unverified,
    unwrap,
)
from booking_sdk.testing import make_booking, make_customer, make_event, make_gift_card
from webhook_verify import Verifier, generate_secret, verify
from webhook_verify.testing import signed_request, stale, tampered

KEY = "svc_" + "HUSH" * 10
SECRET = "whsec_" + "HUSH" * 8
GUEST = {"name": "HUSH Lovelace", "email": "HUSH@example.com", "phone": "+47 HUSH"}
ORDER: dict[str, Any] = {
    "departure_id": "d1",
    "guests": [{"tier_id": "adult", "count": 1}],
    "customer": GUEST,
    "payment": "invoice",
    "note": "HUSH",
}
HEADERS = {"X-Token": "HUSH"}


def reported(error: BaseException) -> list[str]:
    """Return the variables that a reporter records of an exception and its causes, except the frames of this file."""
    lines, pending, visited = [], [error], set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in visited:
            continue
        visited.add(id(one))
        stack = traceback.TracebackException.from_exception(one, capture_locals=True).stack
        frames = [frame for frame in stack if frame.filename != __file__ and "/sdk_support/" not in frame.filename]
        lines += [f"{f.filename}:{f.name}: {name}={value}" for f in frames for name, value in (f.locals or {}).items()]
        lines += [f"{type(one).__name__}: {one!s} {one!r}", *getattr(one, "__notes__", ())]
        pending += [one.__cause__, one.__context__]
    return lines


def failed(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the test inspects it
        return error
    raise AssertionError("the call did not fail")


def assert_discreet(error: BaseException) -> None:
    lines = reported(error)
    assert not [line for line in lines if "HUSH" in line]


def of(status: str, **body: Any) -> Script:
    return lambda connection, _: connection.sendall(answer(json.dumps({"error": "No.", **body}).encode(), status))


LEAKY = json.dumps(
    {**make_booking(customer=GUEST, note="HUSH", manage_url="https://a.test/HUSH").to_json(), "id": ["HUSH"]}
).encode()

STAGES: dict[str, Script] = {
    "refused": of("409 Conflict", code="insufficient_capacity", seats_available=1, manage_url="HUSH"),
    "of the wrong shape": of("400 Bad Request", code="validation_failed"),
    "unauthorized": of("401 Unauthorized", code="api_key_invalid"),
    "not the API's": lambda connection, _: connection.sendall(answer(b"<html>", "404 Not Found")),
    "failed": of("500 Internal Server Error", code="internal_error"),
    "unreadable": lambda connection, _: connection.sendall(answer(LEAKY, "201 Created")),
    "dropped": lambda connection, _: connection.close(),
    "garbage": lambda connection, _: connection.sendall(b"HUSH\r\n\r\n"),
    "too slow": lambda connection, _: drip(connection, b"x", b"HTTP/1.1 200 OK\r\nX: "),
}

CALLS: dict[str, Callable[[Any], object]] = {
    "create": lambda client: client.bookings.create(**ORDER),
    "create a customer": lambda client: client.customers.create(**GUEST),
    "find a customer": lambda client: client.customers.list(email=GUEST["email"]),
    "walk": lambda client: client.customers.iterate(options={"query": {"email": GUEST["email"]}}).first(),
    "request": lambda client: client.request(
        "POST", "/api/v1/x", json=GUEST, params=GUEST, cast_to=booking_sdk.Booking
    ),
    "raw": lambda client: client.with_raw_response(client.bookings.create, **ORDER).parse(),
    "options": lambda client: client.bookings.get("b1", options={"headers": HEADERS}),
    "follow": lambda client: next(iter(client.events.follow(poll=None, patience=0, options={"headers": HEADERS}))),
}


@pytest.fixture
def secretive(client_of: ClientOf) -> ClientOf:
    """Make clients with secret settings."""
    settings = {"api_key": KEY, "webhook_secret": SECRET, "default_headers": HEADERS}
    return partial(client_of, **settings, timeout=0.3)


@pytest.mark.exhaustive(but="async")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_shows_nothing_secret(stage: str, call: str, secretive: ClientOf) -> None:
    with scripted_server(STAGES[stage]) as url:
        client = secretive(url, max_retries=0)
        error = failed(lambda: CALLS[call](client))
    assert not isinstance(error, AssertionError), error
    assert_discreet(error)


def broken(_: httpx.Request) -> httpx.Response:
    """Raise an unknown exception in a transport of httpx, which has the request among its variables."""
    raise RuntimeError


@pytest.mark.parametrize("call", CALLS)
def test_foreign_exception_shows_nothing_secret(call: str, flavour: str, secretive: ClientOf) -> None:
    # Not respx: the test inspects the frames of a transport.
    http_client = (httpx.Client if flavour == "sync" else httpx.AsyncClient)(transport=httpx.MockTransport(broken))
    client = secretive("https://api.test", max_retries=0, http_client=http_client)
    error = failed(lambda: CALLS[call](client))
    assert isinstance(error, RuntimeError)
    assert_discreet(error)
    names = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    assert names & {"handle_request", "handle_async_request"}, "the traceback keeps its lines"


def test_a_cancelled_call_shows_nothing_secret() -> None:
    async def run() -> BaseException:
        arrival, loop = asyncio.Event(), asyncio.get_running_loop()

        def unanswered(connection: socket.socket, _: bytes) -> None:
            loop.call_soon_threadsafe(arrival.set)
            connection.recv(1)

        with scripted_server(unanswered) as url:
            async with AsyncBookingClient(KEY, base_url=url) as client:
                task = asyncio.ensure_future(client.bookings.create(**ORDER))
                await arrival.wait()
                task.cancel()
                error = await error_of(task)
        assert isinstance(error, asyncio.CancelledError)
        return error

    assert_discreet(asyncio.run(run()))


MISUSES: dict[str, Callable[[Any], object]] = {
    "lines": lambda client: client.bookings.create(**{**ORDER, "guests": GUEST}),
    "customer": lambda client: client.bookings.create(**{**ORDER, "customer": "HUSH"}),
    "unknown": lambda client: client.bookings.create(**ORDER, colour="HUSH"),
    "key": lambda client: client.bookings.create(**ORDER, idempotency_key="HUSH"),
    "unknown option": lambda client: client.bookings.create(**ORDER, options={"colour": "HUSH"}),
    "header": lambda client: client.bookings.get("b1", options={"headers": {"X-Token": "HUSH\n"}}),
    "id": lambda client: client.bookings.get("HUSH/"),
    "with_options": lambda client: client.with_options(api_key="svc_HUSH\n"),
    "secret": lambda client: client.with_options(webhook_secret="HUSH HUSH"),
}


@pytest.mark.parametrize("call", [*CALLS.values(), *MISUSES.values()], ids=[*CALLS, *MISUSES])
def test_a_call_without_sense_or_service_shows_nothing_secret(call: Any, secretive: ClientOf) -> None:
    client = secretive("http://127.0.0.1:1", max_retries=0)
    assert_discreet(failed(lambda: call(client)))


@pytest.mark.parametrize("kind", [BookingClient, AsyncBookingClient])
@pytest.mark.parametrize("wrong", [{"timeout": -1}, {"base_url": "nowhere"}, {"webhook_secret": "HUSH HUSH"}])
def test_a_client_that_cannot_be_made_shows_nothing_secret(kind: Any, wrong: dict[str, Any]) -> None:
    options = {"base_url": "https://a.test", "webhook_secret": SECRET, "default_headers": HEADERS, **wrong}
    assert_discreet(failed(lambda: kind(KEY, **options)))


def test_hooks_that_fail_show_nothing_secret(secretive: ClientOf, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    with scripted_server(STAGES["failed"]) as url, caplog.at_level(logging.INFO, "booking_sdk"):
        hooks = Hooks(on_send=fail, on_response=fail, on_retry=fail)
        client = secretive(url, hooks=hooks, max_retries=1, retry=fail)
        assert_discreet(failed(lambda: client.bookings.create(**ORDER)))
    records = [record for record in caplog.records if record.exc_info]
    assert len(records) == 2 + 2 + 1 + 1
    for record in records:
        assert record.exc_info
        assert record.exc_info[1]
        assert_discreet(record.exc_info[1])
    assert "HUSH" not in caplog.text


# Deliveries

EVENT = make_event("booking.created", about=make_booking(customer=GUEST, note="HUSH")).to_json()
RECEIVED: dict[str, Callable[[bytes, dict[str, str]], object]] = {
    "verify": lambda body, headers: verify(body, headers, SECRET),
    "Verifier": lambda body, headers: Verifier(SECRET).verify(body, headers),
    "Verifier.unwrap": lambda body, headers: Verifier(SECRET).unwrap(body, headers),
    "unwrap": lambda body, headers: unwrap(body, headers, SECRET),
    "client": lambda body, headers: BookingClient(
        KEY, base_url="https://a.test", webhook_secret=SECRET, http_client=httpx.Client()
    ).webhooks.unwrap(body, headers),
}


@pytest.mark.parametrize("receive", RECEIVED)
@pytest.mark.parametrize(
    "attack", [tampered, stale, lambda event, secret: ({}, b"HUSH")], ids=["tampered", "stale", "no headers"]
)
def test_a_delivery_that_is_refused_shows_nothing_secret(receive: str, attack: Any) -> None:
    headers, body = attack(EVENT, SECRET)
    assert_discreet(failed(lambda: RECEIVED[receive](body, headers)))


@pytest.mark.parametrize("receive", ["unwrap", "client", "Verifier.unwrap"])
@pytest.mark.parametrize("body", [b'{"type": "booking.created", "data": {"object": "HUSH"}', b'"HUSH'])
def test_a_delivery_that_cannot_be_read_shows_nothing_secret(receive: str, body: bytes) -> None:
    headers, body = signed_request(body, SECRET)
    assert_discreet(failed(lambda: RECEIVED[receive](body, headers)))


@pytest.mark.parametrize("secrets", ["HUSH HUSH", [SECRET, ""], b"HUSH", ["HUSH", 7]])
def test_a_secret_that_cannot_be_used_is_not_shown(secrets: Any) -> None:
    for make in (Verifier, lambda secret: verify(b"", {}, secret)):
        assert_discreet(failed(lambda make=make: make(secrets)))


def test_an_event_that_cannot_be_read_shows_nothing_secret() -> None:
    for payload in (b'{"HUSH"', {**EVENT, "data": {"object": "HUSH"}}):
        assert_discreet(failed(lambda payload=payload: parse_event_unverified(payload)))


# Results


def test_no_model_shows_personal_data_or_secrets() -> None:
    contact = {"name": "HUSH", "email": "HUSH"}
    booking = make_booking(customer=GUEST, note="HUSH", manage_url="HUSH")
    card = make_gift_card(code="HUSH", purchaser=contact, recipient=contact)
    fields = dict.fromkeys(WebhookEndpointWithSecret.model_fields)
    endpoint = WebhookEndpointWithSecret.model_construct(**{**fields, "secret": "HUSH"})
    assert [booking.manage_url, booking.to_json()["manage_url"], card.code, endpoint.secret] == ["HUSH"] * 4
    models = [
        booking,
        card,
        endpoint,
        make_customer(**GUEST),
        make_event("booking.created", about=booking),
        make_event("spaceship.landed", about={"id": "s1", "pilot": "HUSH"}),
        make_event("gift_card.issued", about=card),
        booking_sdk.GuestInput(**{**GUEST, "email": "HUSH@example.com"}),
        type(booking).model_validate({**booking.to_json(), "of_tomorrow": "HUSH"}),
    ]
    for model in models:
        assert "HUSH" not in f"{model!r} {model!s}"
    assert "of_tomorrow=..." in repr(models[-1])


def test_validation_error_of_a_model_contains_no_value() -> None:
    for make in (
        lambda: booking_sdk.GuestInput(name="Ada", email="HUSH"),
        lambda: booking_sdk.Booking.model_validate({"id": ["HUSH"]}),
    ):
        assert "HUSH" not in str(failed(make))


def test_a_generated_secret_is_not_in_a_frame_either() -> None:
    secret = generate_secret()
    headers, body = stale(EVENT, secret)
    assert not [line for line in reported(failed(lambda: verify(body, headers, secret))) if secret in line]
