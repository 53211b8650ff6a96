"""Measures what metrics and traces cost a booking: the CPU of one process with and without them, in turn, in one run.

`python -m bench.watching_cost` books in the process itself, 32 requests at a time, on an SQLite file; with
BOOKING_DATABASE_URL, on that database, which must be a migrated one of its own. Spans are kept, and sent at the end by
OTLP to a receiver in another process, as many at once as the SDK sends; that is added to the cost of what made them.
"""

import asyncio
import contextlib
import http.server
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from booking_core.db import migrate
from booking_core.db.engine import Database, Tx
from booking_core.settings import Settings
from booking_server.app import create_app
from booking_server.execution import executor
from booking_server.tracing.tracing import Tracing

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.api import booking_body
from support.world import SECRET, FixedClock, World, make_world

CYCLES = int(os.environ.get("CYCLES", "100"))
REQUESTS = 64
AT_ONCE = 32
WARMING = 2
SENT_AT_ONCE = 512
SHARES = tuple(map(float, os.environ.get("SHARES", "0,0.001,0.01,1").split(",")))
"""Of the requests that are recorded."""


# What is switched on -------------------------------------------------------------------------------------------------


class Uncounted:
    """Counts nothing, in the place of the metrics of requests."""

    def observe_request(self, *_: object) -> None: ...
    def observe_refusal(self, *_: object) -> None: ...


@contextlib.contextmanager
def without_metrics(app: Any) -> Iterator[None]:
    """Count nothing while the body runs."""
    lanes, requests = app.state.service.executors, app.state.observer
    observers, counts, tally = [lane.observe for lane in lanes], requests.counts, Tx.tally
    for lane in lanes:
        lane.observe = executor._ignore
    requests.counts = Uncounted()
    Tx.tally = lambda *_: None  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for lane, observe in zip(lanes, observers, strict=True):
            lane.observe = observe
        requests.counts = counts
        Tx.tally = tally  # type: ignore[method-assign]


class Kept(SpanProcessor):
    """Keeps the spans that ended until they are sent."""

    def __init__(self, port: int) -> None:
        self._exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces")
        self._spans: list[ReadableSpan] = []
        self.sending_s = 0.0
        """CPU seconds that it took to send the spans so far."""

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def send(self, at_least: int = 1) -> None:
        """Send the spans if there are so many."""
        if len(self._spans) < at_least:
            return
        begun_s = time.process_time()
        self._exporter.export(self._spans)
        self.sending_s += time.process_time() - begun_s
        self._spans.clear()


class Traces:
    """Traces of a share of the requests."""

    def __init__(self, share: float, port: int) -> None:
        self.kept = Kept(port)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.kept)
        self._tracing = Tracing(provider, share=share)

    @contextlib.contextmanager
    def made(self, app: Any) -> Iterator[None]:
        """Make spans while the body runs."""
        service, requests = app.state.service, app.state.observer
        service.trace(self._tracing)
        requests.tracer = self._tracing
        try:
            yield
        finally:
            service.trace(None)
            requests.tracer = None


class _Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def _receive(port: Any) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Receiver) as server:
        port.put(server.server_port)
        server.serve_forever()


@contextlib.contextmanager
def receiver() -> Iterator[int]:
    """Run a receiver of spans in another process, and yield its port."""
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    process = context.Process(target=_receive, args=(port,), daemon=True)
    process.start()
    try:
        yield port.get(timeout=30)
    finally:
        process.terminate()


# Measuring -----------------------------------------------------------------------------------------------------------


async def _book_all(client: httpx.AsyncClient, world: World, departure: str, name: str) -> None:
    key = {"Authorization": f"Bearer {world.key()}"}
    body = booking_body(departure)
    places = asyncio.Semaphore(AT_ONCE)

    async def book(number: int) -> None:
        async with places:
            headers = key | {"Idempotency-Key": f"{name}-{number:08}"}
            assert (await client.post("/api/v1/bookings", json=body, headers=headers)).status_code == 201

    await asyncio.gather(*map(book, range(REQUESTS)))


async def _measure(url: str, port: int) -> dict[str, list[float]]:
    """Return the CPU seconds of one booking, by what was switched on, each list in the order of the cycles."""
    database = Database(url, clock=(clock := FixedClock()))
    app = create_app(Settings(database_url=url, secret_key=SECRET, rate_limit=None), database=database)
    world = make_world(database, clock)
    departure = world.departure(world.experience(), seats=1_000_000)
    arms: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
        "nothing": lambda: without_metrics(app),
        "metrics": contextlib.nullcontext,
    }
    traces = {f"metrics and traces of {share:.1%}": Traces(share, port) for share in SHARES}
    for name, each in traces.items():
        arms[name] = lambda each=each: each.made(app)
    found: dict[str, list[float]] = {name: [] for name in arms}
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for cycle in range(-WARMING, CYCLES):
            # There and back, so that none is always the later one, in a database that grows.
            for name in list(arms) if cycle % 2 else reversed(arms):
                begun_s = time.process_time()
                with arms[name]():
                    await _book_all(client, world, departure, f"{name.replace(' ', '-')}-{cycle}")
                if cycle >= 0:
                    found[name].append((time.process_time() - begun_s) / REQUESTS)
            for each in traces.values():
                each.kept.send(SENT_AT_ONCE)
    for name, each in traces.items():
        each.kept.send()
        sending_s = each.kept.sending_s / (CYCLES + WARMING) / REQUESTS
        found[name] = [seconds + sending_s for seconds in found[name]]
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, receiver() as port:
        url = os.environ.get("BOOKING_DATABASE_URL") or f"sqlite:///{folder}/booking.db"
        migrate.upgrade(url)
        found = asyncio.run(_measure(url, port))
    for name, seconds in found.items():
        quarter, of_nothing = _quickest(seconds), _quickest(found["nothing"])
        share = (quarter / of_nothing - 1) * 100
        print(f"{name:<30} {quarter * 1e6:7.1f} us of CPU for a booking, {share:+5.1f} %")


def _quickest(seconds: list[float]) -> float:
    """Return the mean of the quarter of the rounds that was disturbed least by what else runs on the machine."""
    return statistics.mean(sorted(seconds)[: max(1, len(seconds) // 4)])


if __name__ == "__main__":
    main()
