"""Deliveries: one worker between PostgreSQL and a local sink, compared with a bare loop of the worker's client."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from bench import canned, outgoing
from bench.asking import answer
from bench.kinds import Workload
from bench.load import Plan, Request, Result, drive_in_process
from bench.measure import Meter, Sample, Side, Timing
from bench.processes import HOST, ROOT, Server
from bench.service import BOOKING, Service, Shop
from bench.stage import Stage

ORGANIZATIONS = 2
ENDPOINTS = 10
"""For each organization. A booking causes two deliveries to each endpoint."""
PER_BOOKING = 2 * ENDPOINTS
IN_FLIGHT = 256
"""The number of the worker's slots."""
PER_SECOND = 3_000
"""The number of deliveries per second of the maximal duration; a run creates events for them."""
GIVE_UP_S = 180.0
LOOK_AGAIN_S = 0.02
RUNS = "the worker runs"
"""The text in the worker's log."""


def build(stage: Stage, stack: ExitStack) -> Sequence[Side]:
    sink = stack.enter_context(canned.served({}))
    url = stage.postgres.create_database("deliveries")
    service = Service(url)
    shops = service.open_shops(ORGANIZATIONS, 20)
    service.listen(shops, [f"http://{HOST}:{sink.port}/{number}" for number in range(ENDPOINTS)])
    server = stack.enter_context(service.serve())
    worker = stack.enter_context(_worker(service))
    return [
        WorkerSide("service, one worker", stage.postgres.pid, url, shops, server, worker, sink),
        LoopSide("bare loop, the worker's client", sink.port),
    ]


@contextmanager
def _worker(service: Service) -> Iterator["subprocess.Popen[bytes]"]:
    """`booking worker`, which has started and sleeps."""
    with tempfile.TemporaryDirectory(prefix="bench-worker-") as folder:
        log = Path(folder) / "worker.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                [str(BOOKING), "worker"],
                cwd=ROOT,
                env=os.environ | service.env,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            _wait_for(lambda: RUNS in log.read_text(), "the worker to run")
            child.send_signal(signal.SIGSTOP)
            yield child
        finally:
            child.kill()
            child.wait()


def _wait_for(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not happened():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {GIVE_UP_S:.0f} s for {what}")
        time.sleep(LOOK_AGAIN_S)


@dataclass(frozen=True, slots=True)
class WorkerSide:
    """A worker that is stopped while bookings are created, and continued to deliver their events.

    The time is from the first request at the sink until nothing is queued, because results must also be recorded.
    """

    name: str
    database_pid: int
    url: str
    shops: Sequence[Shop]
    server: Server
    worker: "subprocess.Popen[bytes]"
    sink: Server

    def run(self, timing: Timing) -> Sample:
        wanted = _bookings(timing) * PER_BOOKING
        self._book(_bookings(timing))
        answer(self.sink, Request("GET", "/-/count"))
        meter = Meter(self.worker.pid, self.database_pid)
        self.worker.send_signal(signal.SIGCONT)
        with psycopg.connect(self.url, autocommit=True) as connection:
            _wait_for(lambda: not _is_queued(connection), "the deliveries")
            ended_at = time.monotonic()
            self.worker.send_signal(signal.SIGSTOP)
            counted = connection.execute("SELECT status, count(*) FROM deliveries GROUP BY status").fetchall()
            connection.execute("TRUNCATE attempts, deliveries")
        seen = answer(self.sink, Request("GET", "/-/count"))
        rate = wanted / (ended_at - seen["first_at"])
        return meter.sample(_result(rate, wanted, dict(counted) | {"missing": wanted - seen["count"]}))

    def _book(self, bookings: int) -> None:
        requests = [request for shop in self.shops for request in _without_mails(shop.bookings())]
        made = drive_in_process(Plan(self.server.port, requests, 32, 0.0, GIVE_UP_S, max_requests=bookings))
        if made.statuses != {"201": bookings}:
            raise RuntimeError(f"{bookings} bookings were answered {made.statuses}")

    def failures(self, sample: Sample) -> list[str]:
        return [f"{self.name}: {n} × {s}" for s, n in sample.statuses.items() if n and s != "succeeded"]


def _without_mails(requests: Sequence[Request]) -> list[Request]:
    """Return the requests without mails, which the worker would otherwise write and file during the deliveries."""
    silent = {"send_confirmation_email": False, "notify_staff": False}
    return [replace(each, body=json.dumps(json.loads(each.body or "{}") | silent)) for each in requests]


def _bookings(timing: Timing) -> int:
    return int(timing.duration_s * PER_SECOND / PER_BOOKING)


def _is_queued(connection: "psycopg.Connection[Any]") -> bool:
    """Return whether a delivery is queued or in flight, or an event has no delivery yet."""
    row = connection.execute(_QUEUED).fetchone()
    return bool(row and row[0])


_QUEUED = """
SELECT EXISTS (SELECT FROM deliveries WHERE status = 'queued')
    OR EXISTS (SELECT FROM webhook_cursors c
                 JOIN webhook_subscriptions s USING (organization_id, endpoint_id)
                 JOIN events v ON v.organization_id = c.organization_id AND v.type = s.event_type
                  AND v.sequence > c.served_sequence)"""


@dataclass(frozen=True, slots=True)
class LoopSide:
    """A client without a worker. Its CPU is shown in the client column."""

    name: str
    port: int

    def run(self, timing: Timing) -> Sample:
        wanted = _bookings(timing) * PER_BOOKING
        meter = Meter(None, None)
        done = outgoing.drive(outgoing.Outgoing(self.port, wanted, IN_FLIGHT))
        return meter.sample(_result(done.rate, wanted, {"failed": done.failed}, done.cpu_s))

    def failures(self, sample: Sample) -> list[str]:
        return [f"{self.name}: {n} × {s}" for s, n in sample.statuses.items() if n]


def _result(rate: float, count: int, statuses: dict[str, int], cpu_s: float = 0.0) -> Result:
    """Return a run without latencies: its measure is the time until all work was done."""
    return Result(
        throughput=rate,
        p50_ms=0.0,
        p99_ms=0.0,
        measured=count,
        total=count,
        statuses=statuses,
        client_cpu_s=cpu_s,
        client_busy=0.0,
    )


ENTRIES = (
    Workload(
        "deliveries",
        "deliveries of one worker to a local sink, database work included",
        "a bare loop of the worker's client, 256 in flight",
        0.4,
        build,
    ),
)
