"""Calls whose requests respx answers: the SDK's own HTTP client, its own connections, and no network."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import respx

from booking_sdk import APIError, AsyncBookingClient, BookingClient
from booking_sdk.testing import ManualClock, on_clock
from sdk_support.blocking import blocking

KEY = "svc_" + "k" * 40
URL = "https://api.test"

Answer = httpx.Response | type[httpx.TransportError]
ClientOf = Callable[..., Any]

OK = httpx.Response(200, json={"fine": True})
REFUSED = httpx.ConnectError
UNRESOLVED = httpx.ConnectTimeout
DROPPED = httpx.ReadError
TIMED_OUT = httpx.ReadTimeout


def answered(status: int, code: str | None = None, **headers: str) -> httpx.Response:
    """Return an error response; `_` in header names means `-`."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if code is None:
        return httpx.Response(status, headers=pairs, html="<html>")
    return httpx.Response(status, headers=pairs, json={"error": "No.", "code": code})


def as_json(value: Any, status: int = 200, **headers: str) -> httpx.Response:
    """Return a success with a JSON body; `_` in header names means `-`."""
    return httpx.Response(status, headers={name.replace("_", "-"): text for name, text in headers.items()}, json=value)


class Clients:
    """Clients of one flavour with their own connections, on a clock that never waits.

    respx answers them: a test takes the fixture `respx_mock` and writes its routes before it makes a client.
    """

    def __init__(self, flavour: str, runner: asyncio.Runner) -> None:
        self.clock = ManualClock()
        self._flavour = flavour
        self._runner = runner
        self._clients: list[BookingClient | AsyncBookingClient] = []

    def __call__(self, **options: Any) -> Any:
        """Return a client. The async client has blocking methods, like the sync client."""
        kind = BookingClient if self._flavour == "sync" else AsyncBookingClient
        client = kind(**{"api_key": KEY, "base_url": URL, **options})
        self._clients.append(client)
        return blocking(on_clock(client, self.clock), self._runner)

    def close(self) -> None:
        """Close every client that was made."""
        for client in self._clients:
            blocking(client, self._runner).close()


def repeated(answers: Iterable[Answer]) -> Callable[[httpx.Request], httpx.Response]:
    """Return a side effect for a route: the responses in order, with the last one repeated."""
    remaining = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        following = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(following, httpx.Response):
            return httpx.Response(following.status_code, headers=following.headers.raw, content=following.content)
        raise following(following.__name__, request=request)

    return answer


class Wire:
    """Clients whose requests get these responses in order, and the requests since the last `Wire` of the test."""

    def __init__(self, route: respx.Route, connect: Clients, answers: list[Answer]) -> None:
        self.client, self.clock = connect, connect.clock
        self._route = route.mock(side_effect=repeated(answers) if answers else None)
        self._route.calls.clear()

    @property
    def requests(self) -> list[httpx.Request]:
        return [call.request for call in self._route.calls]


WireOf = Callable[[list[Answer]], Wire]


@dataclass
class Played:
    """The record of a call: requests, result and error."""

    sent: list[httpx.Request] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    result: Any = None
    error: APIError | None = None

    @property
    def failure(self) -> APIError:
        """The error of a call that failed."""
        assert self.error is not None
        return self.error

    @property
    def keys(self) -> set[str | None]:
        return {request.headers.get("idempotency-key") for request in self.sent}

    @property
    def timeouts(self) -> list[tuple[float, float]]:
        """Return the total and the connect timeout of each attempt."""
        return [
            (request.extensions["timeout"]["read"], request.extensions["timeout"]["connect"]) for request in self.sent
        ]


def play(
    call: Callable[[BookingClient], Any],
    answers: Iterable[Answer],
    *,
    clock: ManualClock | None = None,
    took_s: float = 0,
    api_key: Any = KEY,
    **options: Any,
) -> Played:
    """Make a call to a service with these responses; each attempt takes `took_s`."""
    played, clock, answer = Played(), clock or ManualClock(), repeated(answers)

    def slow(request: httpx.Request) -> httpx.Response:
        clock.advance(took_s)
        return answer(request)

    with respx.mock(base_url=URL) as router, BookingClient(api_key, base_url=URL, **options) as client:
        route = router.route().mock(side_effect=slow)
        try:
            played.result = call(on_clock(client, clock))
        except APIError as error:
            played.error = error
        finally:
            played.sent = [one.request for one in route.calls]
            played.slept = clock.sleeps
    return played
