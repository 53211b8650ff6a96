"""The load client: keep-alive connections that send pre-rendered requests and count the answers.

It runs in a separate process, over raw `asyncio.Protocol`: no HTTP library, and no parsing of headers except status and
Content-Length. It sends all requests of the bench, to the service and to the floors, so no ratio compares two clients.
It reports its CPU time: if it uses nearly one full core, it is the bottleneck.

The load is a closed loop: each connection sends its next request after the previous answer. So under saturation, the
latencies are for N waiting clients, and not for an arrival rate. A plan with a rate is an open loop: requests are sent
at that rate, without waiting for answers, each on a free connection.
"""

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from typing import cast

import uvloop

from bench.processes import HOST, beside

FRESH = "{fresh}"
"""A placeholder in a header value or a body for 32 hexadecimal digits that are new in each request. The first half is
the time of sending, in nanoseconds since 1970."""

MAX_REQUESTS = 200_000
DRAIN_S = 15.0
"""The seconds that requests in flight at the end of the time may take before they are given up and counted."""

_TICK_S = 0.002
"""The pause between two checks for due requests of an open loop."""

RequestFactory = Callable[[], bytes]


def sent_at(fresh: str) -> float:
    """Return the time of sending, in seconds, of a request with these digits."""
    return int(fresh[:16], 16) / 1e9


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a plan."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The requests to send, the number of clients, the duration, and the most requests of a run."""

    port: int
    requests: Sequence[Request]
    clients: int = 32
    warmup_s: float = 1.0
    duration_s: float = 4.0
    max_requests: int = MAX_REQUESTS
    rate: float = 0.0
    """Requests a second of an open loop; 0 for a closed loop."""
    counted: str = ""
    """The status whose answers are measured; all by default."""
    by_key: bool = False
    """Each connection sends requests of one key only, like a client. By default it sends any, like a proxy that shares
    its connections among clients."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a plan.

    Rates and latencies are of the measured window; counts are of the whole run, including the warm-up.
    """

    throughput: float
    p50_ms: float
    p99_ms: float
    last_ms: float
    """The time from the first request to the last answer."""
    total: int
    statuses: dict[str, int]
    client_cpu_s: float

    def failures(self, expected: Container[str]) -> list[str]:
        """Return the counts of the other statuses."""
        return [f"{count} × {status}" for status, count in self.statuses.items() if status not in expected]


def render(request: Request, port: int) -> bytes:
    """Return the request as bytes, still with the FRESH marks (they count as the 32 digits that replace them)."""
    head = [f"{request.method} {request.path} HTTP/1.1", f"Host: {HOST}:{port}"]
    head += [f"{name}: {value}" for name, value in request.headers.items()]
    body = (request.body or "").encode()
    if request.body is not None:
        length = len(body) + body.count(FRESH.encode()) * (32 - len(FRESH))
        head += ["Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def request_factory(requests: Sequence[Request], port: int) -> RequestFactory:
    """Return a function that yields the next request's bytes: the plan's requests in a fixed shuffled order,
    endlessly."""
    rendered = [render(request, port).split(FRESH.encode()) for request in requests]
    random.Random(1).shuffle(rendered)
    templates, numbers = cycle(rendered), count()

    def fresh() -> bytes:
        return b"%016x%016x".__mod__((time.time_ns(), next(numbers))).join(next(templates))

    return fresh


def factories(plan: Plan) -> list[RequestFactory]:
    """Return the functions that make requests, which are assigned to the connections round-robin."""
    if not plan.by_key:
        return [request_factory(plan.requests, plan.port)]
    requests_by_key: dict[str, list[Request]] = {}
    for request in plan.requests:
        requests_by_key.setdefault(request.headers["Authorization"], []).append(request)
    return [request_factory(requests, plan.port) for requests in requests_by_key.values()]


class _Run:
    """The shared state of the connections: the clock, the samples, the number of requests that may still be sent."""

    def __init__(self, plan: Plan) -> None:
        self.allowance = plan.max_requests
        self.latencies: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.counted = plan.counted
        self.idle: deque[_Connection] = deque()
        """The connections without a request, in an open loop."""
        self.is_open = bool(plan.rate)
        self.began = self.start = self.end = self.last = 0.0

    def begin(self, plan: Plan) -> None:
        """Start the clock: all connections are open."""
        self.began = self.last = time.perf_counter()
        self.start = self.began + plan.warmup_s
        self.end = self.start + plan.duration_s


class _Connection(asyncio.Protocol):
    """A client: it has one request in flight, and sends the next one when its answer is complete."""

    __slots__ = ("completion", "expected", "factory", "head", "received", "run", "sent_at", "transport")

    def __init__(self, run: _Run, factory: RequestFactory) -> None:
        self.run = run
        self.factory = factory
        self.completion = asyncio.get_running_loop().create_future()
        self.head = b""
        self.received = 0
        self.expected = 0
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        if self.run.allowance <= 0:
            self.finish()
            return
        self.run.allowance -= 1
        self.sent_at = time.perf_counter()
        self.transport.write(self.factory())

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if not self.expected:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            self.expected = end + 4 + content_length(self.head[:end])
        # From here on bytes are only counted: joining a large answer would use CPU that the server shares.
        if self.received >= self.expected:
            self.answered()

    def answered(self) -> None:
        run, now = self.run, time.perf_counter()
        status = self.head[9:12].decode()
        run.statuses[status] += 1
        run.last = now
        if run.start <= now <= run.end and run.counted in ("", status):
            run.latencies.append(now - self.sent_at)
        self.head, self.received, self.expected = b"", 0, 0
        if now >= run.end:
            self.finish()
        elif run.is_open:
            run.idle.append(self)
        else:
            self.send()

    def finish(self) -> None:
        if not self.completion.done():
            self.completion.set_result(None)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.run.idle:  # closed because of its silence
            self.run.idle.remove(self)
        elif not self.completion.done():
            self.run.statuses["lost"] += 1
        if not self.completion.done():
            self.completion.set_result(None)


def content_length(head: bytes) -> int:
    """Return the length of the body, from the head of an answer."""
    _, name, rest = head.lower().partition(b"\r\ncontent-length:")
    if not name:
        raise ValueError(f"an answer without Content-Length: {head[:200]!r}")
    return int(rest.partition(b"\r\n")[0])


async def drive(plan: Plan) -> Result:
    """Send the plan's requests until its time or its count is used up, and return the result."""
    loop = asyncio.get_running_loop()
    cpu_s, run = time.process_time(), _Run(plan)
    connections: list[_Connection] = []
    for _, factory in zip(range(plan.clients), cycle(factories(plan)), strict=False):
        _, connection = await loop.create_connection(partial(_Connection, run, factory), HOST, plan.port)
        connections.append(connection)
    run.begin(plan)
    if run.is_open:
        run.idle.extend(connections)
        await _send_at(plan.rate, run)
    else:
        for connection in connections:
            connection.send()
    unanswered = await asyncio.wait(
        [connection.completion for connection in connections], timeout=run.end - time.perf_counter() + DRAIN_S
    )
    run.statuses["unanswered"] += len(unanswered[1])
    return _result(run, time.process_time() - cpu_s)


async def _send_at(rate: float, run: _Run) -> None:
    """Send requests at a rate until the end of the run. A request without a free connection is counted as not sent."""
    sent = 0
    while (now := time.perf_counter()) < run.end:
        due = int((now - run.began) * rate) - sent
        sent += due
        for _ in range(due):
            if run.idle:
                run.idle.popleft().send()
            else:
                run.statuses["unsent"] += 1
        await asyncio.sleep(_TICK_S)
    for connection in run.idle:
        connection.finish()


def _result(run: _Run, cpu_s: float) -> Result:
    now = time.perf_counter()
    latencies = sorted(run.latencies)
    return Result(
        throughput=len(latencies) / max(min(run.end, now) - run.start, 1e-9),
        p50_ms=percentile(latencies, 0.50) * 1e3,
        p99_ms=percentile(latencies, 0.99) * 1e3,
        last_ms=(run.last - run.began) * 1e3,
        total=sum(number for status, number in run.statuses.items() if status.isdigit()),
        statuses={status: number for status, number in sorted(run.statuses.items()) if number},
        client_cpu_s=cpu_s,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; NaN if there are none."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def sending(plan: Plan) -> AbstractContextManager[Callable[[], Result]]:
    """Run the plan in another process, until the end of the block; yield the function that waits for its result."""
    return beside(_run, plan)


def _run(plan: Plan) -> Result:
    return uvloop.run(drive(plan))


def drive_in_process(plan: Plan) -> Result:
    """Run the plan in another process, and return its result."""
    with sending(plan) as result:
        return result()
