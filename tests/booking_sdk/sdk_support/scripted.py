"""Scripted results of attempts, for tests that respx cannot express: a flow without httpx, or several responses."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from booking_sdk import APIError, AsyncBookingClient, BookingClient
from booking_sdk._config import configure
from booking_sdk._flow import Send, Sleep, flow
from booking_sdk._parse import parser_for
from booking_sdk._retries import AttemptResult, Failure
from booking_sdk.request import RequestSpec
from booking_sdk.response import Response
from booking_sdk.testing import ManualClock, on_clock
from booking_sdk.testing._requests import mock_transport
from sdk_support.blocking import blocking

KEY = "svc_" + "k" * 40

DROPPED = Failure(sent=True, timed_out=False, reason="the connection broke")


def answered(status: int, code: str | None = None, **headers: str) -> Response:
    """Return an error response; `_` in header names means `-`."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    body = b"<html>" if code is None else json.dumps({"error": "No.", "code": code}).encode()
    return Response(status, pairs, body)


@dataclass
class Played:
    """The record of a call: requests, result and error."""

    sent: list[Send] = field(default_factory=list)
    result: Any = None
    error: APIError | None = None


SETTINGS = configure(
    api_key=KEY,
    base_url="https://api.test",
    timeout=30.0,
    deadline=None,
    max_retries=2,
    retry=None,
    default_headers=None,
    webhook_secret=None,
    hooks=None,
    user_agent_suffix=None,
)


def play(spec: RequestSpec, outcomes: Sequence[AttemptResult]) -> Played:
    """Perform the steps of a call as a client would; the last result is repeated."""
    played, clock = Played(), ManualClock()
    steps = flow(spec, parser_for(dict), SETTINGS, clock)
    reply: AttemptResult | None = None
    try:
        while True:
            step = steps.send(reply)
            if isinstance(step, Sleep):
                clock.sleep(step.seconds)
                reply = None
            else:
                played.sent.append(step)
                reply = outcomes[min(len(played.sent), len(outcomes)) - 1]
    except StopIteration as done:
        played.result = done.value
    except APIError as error:
        played.error = error
    return played


class Wire:
    """Clients whose transport responds from a list or a function, on a manual clock."""

    def __init__(self, answers: Iterable[AttemptResult] | Callable[[httpx.Request], AttemptResult]) -> None:
        self.requests: list[httpx.Request] = []
        self.clock = ManualClock()
        self._answers = answers if callable(answers) else iter(answers)

    def _answer(self, request: httpx.Request) -> AttemptResult:
        self.requests.append(request)
        return self._answers(request) if callable(self._answers) else next(self._answers)

    def client(self, flavour: str, runner: asyncio.Runner, **options: Any) -> Any:
        transport = mock_transport(self._answer)
        arguments = {"base_url": "https://api.test", **options}
        if flavour == "sync":
            return on_clock(BookingClient(KEY, http_client=httpx.Client(transport=transport), **arguments), self.clock)
        http_client = httpx.AsyncClient(transport=transport)
        return blocking(on_clock(AsyncBookingClient(KEY, http_client=http_client, **arguments), self.clock), runner)


def as_json(value: Any, status: int = 200, **headers: str) -> Response:
    """Return a success with a JSON body."""
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return Response(status, [(b"content-type", b"application/json"), *pairs], json.dumps(value).encode())
