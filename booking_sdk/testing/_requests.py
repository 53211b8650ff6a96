"""Received requests, their answers through httpx, and the failures of the next ones."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl

import httpx

from booking_sdk._retries import AttemptResult
from booking_sdk.response import Response


@dataclass(eq=False, repr=False)
class FakeRequest:
    """A request that the fake received. `json` is its parsed body; `headers` have lower-case names."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, raw: httpx.Request) -> Self:
        """Return the request of httpx as tests inspect it."""
        headers = {name.lower(): value for name, value in raw.headers.items()}
        query = dict(parse_qsl(raw.url.query.decode(), keep_blank_values=True))
        return cls(raw.method, raw.url.path, query, headers, raw.content)

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    @property
    def idempotency_key(self) -> str | None:
        return self.headers.get("idempotency-key")

    def __repr__(self) -> str:
        return f"<FakeRequest {self.method} {self.path}>"


@dataclass(slots=True)
class PlannedFault:
    """A failure of the next matching requests."""

    result: AttemptResult
    times: int
    method: str | None = None
    path: str | None = None
    after_commit: bool = False

    def matches(self, request: FakeRequest) -> bool:
        return self.method in (None, request.method) and (self.path is None or request.path.startswith(self.path))


def take_fault(coming: list[PlannedFault], request: FakeRequest) -> PlannedFault | None:
    """Return the failure of a request, and count it. The first requested failure comes first."""
    fault = next((fault for fault in coming if fault.matches(request)), None)
    if fault is not None:
        fault.times -= 1
        if fault.times <= 0:
            coming.remove(fault)
    return fault


def mock_transport(respond: Callable[[httpx.Request], AttemptResult]) -> httpx.MockTransport:
    """Return a transport for `httpx.Client` and `httpx.AsyncClient` that calls a function instead of the network."""

    def handle(request: httpx.Request) -> httpx.Response:
        result = respond(request)
        if isinstance(result, Response):
            return httpx.Response(result.status_code, headers=list(result.raw_headers), content=result.body)
        if not result.sent:
            raise httpx.ConnectError(result.reason, request=request)
        kind = httpx.ReadTimeout if result.timed_out else httpx.ReadError
        raise kind(result.reason, request=request)

    return httpx.MockTransport(handle)
