"""The metrics of one process.

They are read when Prometheus asks: requests, batches, queues, pools, loops and tallies have counts of their own, which
cost a part of what prometheus_client's cost for each observation.
"""

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import Scope

from booking_core.db.engine import Database

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
UNROUTED = "(unrouted)"
"""The operation of a request for a path or a method that does not exist, or that was refused before it was routed."""
NO_RESPONSE = "none"
"""The status of a request whose client had disconnected."""
STRIPE_OUTCOMES = (
    *("done", "ignored", "unknown", "needs_review"),
    *("unsigned", "wrong_signature", "no_account", "refused", "failed"),
)
"""Outcomes of webhooks of Stripe: those of the second line were refused."""


class Executor(Protocol):
    """A lane of the API, as metrics see it."""

    name: str
    threads: int
    observe: Callable[[int, float], None]

    @property
    def waiting_jobs(self) -> int: ...
    @property
    def busy_threads(self) -> int: ...


class WorkerState(Protocol):
    """The worker of this process, as metrics see it."""

    @property
    def queue(self) -> Any: ...
    @property
    def jobs(self) -> Iterable[Any]: ...
    @property
    def turns(self) -> Any: ...


@dataclass(slots=True)
class Durations:
    """The durations of the requests for one operation."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    """Requests by the first of SECONDS that they did not exceed; the last: those that exceeded all."""
    total_s: float = 0.0


class Batches:
    """The batches of one lane, counted by its threads: their sizes, and the waits of their first jobs."""

    def __init__(self) -> None:
        self.sizes = [0] * (len(BATCH_SIZES) + 1)
        self.waits = Durations()
        self.jobs = 0
        self._lock = Lock()

    def observe(self, size: int, waited_s: float) -> None:
        """Count a batch, in any thread."""
        with self._lock:
            self.sizes[bisect_left(BATCH_SIZES, size)] += 1
            self.jobs += size
            self.waits.counts[bisect_left(SECONDS, waited_s)] += 1
            self.waits.total_s += waited_s


@dataclass(slots=True)
class Requests:
    """The requests for one operation that had the same status."""

    operation: str
    status: int
    durations: Durations
    count: int = 0


class Metrics:
    """Counts the requests and batches of one process, and reads the rest when it is collected."""

    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self.worker: WorkerState | None = None
        """The worker of this process, if it has one."""
        self._requests: dict[tuple[Any, int], Requests] = {}
        """By endpoint, which is cheaper to find than its name, and status."""
        self._durations: dict[str, Durations] = {}
        """By operation."""
        self._refused = self._counter("booking_http_unavailable", "Requests answered 503, by reason.", "reason")
        # From 0: Prometheus takes no first value for an increase.
        self._stripe: dict[str, float] = dict.fromkeys(STRIPE_OUTCOMES, 0)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(_Collector(lambda: request_families(list(self._requests.values()))))
        self.registry.register(_Collector(lambda: [_stripe_webhooks(self._stripe)]))
        self.registry.register(_Collector(lambda: database_families(database)))
        self.registry.register(_Collector(lambda: worker_families(self.worker) if self.worker else ()))

    def observe_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, on the event loop.

        Args:
            status: of the response; 0 if the client had disconnected before it began.
        """
        endpoint = scope.get("endpoint")
        requests = self._requests.get((endpoint, status)) or self._new_requests(scope, endpoint, status)
        requests.count += 1
        durations = requests.durations
        durations.total_s += seconds
        durations.counts[bisect_left(SECONDS, seconds)] += 1

    def observe_refusal(self, reason: str) -> None:
        """Count a request that is answered 503."""
        self._refused.labels(reason).inc()

    def observe_stripe_webhook(self, outcome: str) -> None:
        """Count a webhook of Stripe by one of `STRIPE_OUTCOMES`, on the event loop."""
        self._stripe[outcome] += 1

    def observe_executors(self, executors: Iterable[Executor], failures: Callable[[], int]) -> None:
        """Count the batches of the executors, and read their queues when metrics are collected.

        Args:
            failures: returns how often the store of rate limits did not answer.
        """
        lanes = list(executors)
        batches = {lane.name: Batches() for lane in lanes}
        for lane in lanes:
            lane.observe = batches[lane.name].observe
        self.registry.register(_Collector(lambda: batch_families(batches)))
        self.registry.register(_Collector(lambda: lane_families(lanes)))
        self.registry.register(_Collector(lambda: [_store_failures(failures())]))

    def _new_requests(self, scope: Scope, endpoint: Any, status: int) -> "Requests":
        name = operation_of(scope)
        found = Requests(name, status, self._durations.setdefault(name, Durations()))
        self._requests[endpoint, status] = found
        return found

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


def operation_of(scope: Scope) -> str:
    """Return the name of the operation that a request was routed to."""
    route = scope.get("route")
    return getattr(route, "operation_id", None) or getattr(route, "name", None) or UNROUTED


class _Collector(Collector):
    """Reads families when they are collected."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._read()


def gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def counter(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a counter with one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


# Read when they are collected ----------------------------------------------------------------------------------------

_TALLIES = {
    "bookings": ("booking_bookings_created", "Bookings that this process committed."),
    "seats_sold": ("booking_seats_sold", "Seats of the bookings that this process committed."),
    "cancellations": ("booking_bookings_cancelled", "Cancellations that this process committed."),
}


_JOBS = {
    "mail": ("booking_mail_attempts", "Attempts by outcome."),
    "refunds": ("booking_refund_attempts", "Attempts by outcome."),
    "payments": ("booking_payment_checks", "Look-ups of payments at Stripe, by what it said."),
    "announcements": ("booking_departure_announcements", "Departures that may have changed, by outcome."),
}
"""The counter of each job that has results."""


def request_families(found: Sequence[Requests]) -> Iterator[Metric]:
    """Return the requests by operation and status, and their durations by operation."""
    counts: Counts[tuple[str, str]] = Counts()
    for each in found:
        counts[each.operation, str(each.status or NO_RESPONSE)] += each.count
    labels = ["operation", "status"]
    requests = CounterMetricFamily("booking_http_requests", "Requests by operation and status.", labels=labels)
    for key, count in counts.items():
        requests.add_metric(key, count)
    yield requests
    text = "Seconds from a request to its response."
    seconds = HistogramMetricFamily("booking_http_request_duration_seconds", text, labels=labels[:1])
    for operation, durations in {each.operation: each.durations for each in found}.items():
        seconds.add_metric([operation], _buckets(SECONDS, durations.counts), durations.total_s)
    yield seconds


def batch_families(lanes: Mapping[str, Batches]) -> Iterator[Metric]:
    """Return the sizes of the batches of each lane, and the waits of their first jobs."""
    sizes = HistogramMetricFamily("booking_lane_batch_size", "Jobs in a batch.", labels=["lane"])
    waits = HistogramMetricFamily("booking_lane_wait_seconds", "Wait of the first job of a batch.", labels=["lane"])
    for name, batches in lanes.items():
        sizes.add_metric([name], _buckets(BATCH_SIZES, batches.sizes), batches.jobs)
        waits.add_metric([name], _buckets(SECONDS, batches.waits.counts), batches.waits.total_s)
    yield sizes
    yield waits


def _buckets(bounds: Iterable[float], counts: Iterable[int]) -> list[tuple[str, int]]:
    """Return the buckets of a histogram as Prometheus has them: each counts what those below it count too."""
    return list(zip([*map(floatToGoString, bounds), "+Inf"], accumulate(counts), strict=True))


def _stripe_webhooks(counts: Mapping[str, float]) -> Metric:
    return counter("booking_stripe_webhooks", "Webhooks of Stripe by outcome.", "outcome", counts)


def lane_families(lanes: Iterable[Executor]) -> Iterator[Metric]:
    """Return the queues and threads of the lanes."""
    lanes = list(lanes)
    yield gauge("booking_lane_waiting", "Jobs that wait for a thread.", "lane", {x.name: x.waiting_jobs for x in lanes})
    yield gauge("booking_lane_busy", "Threads that run a batch.", "lane", {x.name: x.busy_threads for x in lanes})
    yield gauge("booking_lane_threads", "Threads of the lane.", "lane", {x.name: x.threads for x in lanes})


def database_families(database: Database) -> Iterator[Metric]:
    """Return the connections, retries and tallies of a process."""
    pools = database.pools
    yield gauge("booking_pool_in_use", "Connections in use.", "pool", {pool.name: pool.in_use for pool in pools})
    yield gauge("booking_pool_size", "Connections at most.", "pool", {pool.name: pool.size for pool in pools})
    retries = dict(database.retries)
    yield counter("booking_transaction_retries", "Transactions run again, by SQLSTATE.", "sqlstate", retries)
    counts = database.tallies.read()
    for name, (metric, text) in _TALLIES.items():
        by_organization = {organization: count for (kind, organization), count in counts.items() if kind == name}
        yield counter(metric, text, "organization", by_organization)


def worker_families(worker: WorkerState) -> Iterator[Metric]:
    """Return what the worker of this process has done."""
    queue = worker.queue
    yield counter("booking_delivery_attempts", "Attempts by outcome.", "outcome", dict(queue.attempts))
    yield CounterMetricFamily(
        "booking_delivery_leases_lost", "Leases that expired without a result.", value=queue.lost_leases
    )
    yield GaugeMetricFamily("booking_deliveries_in_flight", "Attempts in flight.", value=queue.in_flight)
    ages = worker.turns.ages_s()
    yield gauge("booking_worker_turn_age_seconds", "Seconds since a loop began its last turn.", "loop", ages)
    for job in worker.jobs:
        if family := _JOBS.get(job.name):
            yield counter(*family, "outcome", dict(job.results))


def _store_failures(count: int) -> Metric:
    text = "Times that the store of rate limits did not answer, and requests were let through."
    return CounterMetricFamily("booking_rate_limit_store_failures", text, value=count)
