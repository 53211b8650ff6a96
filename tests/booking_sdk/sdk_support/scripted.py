"""Scripted results of attempts, for tests that respx cannot express: a flow without httpx, or several responses."""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import httpx
import pytest

from booking_sdk import APIError, AsyncBookingClient, BookingClient
from booking_sdk._flow import flow
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


def failure(spec: RequestSpec, outcome: AttemptResult) -> APIError:
    """Return the error of a call with one attempt and this result, without an HTTP client."""
    client = BookingClient(KEY, base_url="https://api.test", max_retries=0)
    steps = flow(spec, parser_for(dict), client._config, ManualClock())
    next(steps)
    with closing(client), pytest.raises(APIError) as caught:
        steps.send(outcome)
    return caught.value


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
