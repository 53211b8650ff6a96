"""The metrics of one process, and the metrics of the whole installation, which every process reports alike.

Queues, pools and loops are read when Prometheus asks. The installation's are read from its database, on a connection
that nothing else uses, and kept for some seconds: several scrapes cost one look.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import Scope

from booking_core import sandboxes
from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import SettingError, Settings
from booking_core.db.engine import Database, Tx
from booking_core.due_work import parked
from booking_core.upkeep import backlog, secret_keys, worker_heartbeats
from booking_server.execution.executor import BatchExecutor
from booking_server.monitoring.exposition import Families
from booking_server.monitoring.health import Polled

disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
UNROUTED = "(unrouted)"
"""The operation of a request for a path or a method that does not exist, or that was refused before the application."""
COUNTED_ORGANIZATIONS_MAX = 100
"""The organizations that come first are counted apart, and the others together: the number of series does not grow with
the number of organizations."""
OTHERS = "(other)"
"""The name of all organizations that are not counted apart. No organization has such a slug."""
NO_RESPONSE = "none"
"""The status of a request whose client had disconnected."""
STRIPE_OUTCOMES = (
    *("done", "ignored", "unknown", "needs_review"),
    *("unsigned", "wrong_signature", "no_account", "refused", "failed"),
)
"""Outcomes of webhooks of Stripe. Webhooks with an outcome of the second line were refused."""
_SALES = {
    "bookings": ("booking_bookings_created", "Bookings that this process committed."),
    "seats_sold": ("booking_seats_sold", "Seats of the bookings that this process committed."),
    "cancellations": ("booking_bookings_cancelled", "Cancellations that this process committed."),
}


class WorkerState(Protocol):
    """The worker of this process, as metrics see it."""

    @property
    def queue(self) -> Any: ...
    @property
    def jobs(self) -> Iterable[Any]: ...
    @property
    def turns(self) -> Any: ...


class Metrics:
    """Counts the requests and batches of one process, and reads the rest when it is collected."""

    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self.worker: WorkerState | None = None
        """The worker of this process, if it has one."""
        self._requests: dict[tuple[Any, int], tuple[Counter, Histogram]] = {}
        """By endpoint, which is cheaper to find than its name, and status."""
        text, labels = "Requests by operation and status.", ["operation", "status"]
        self._counts = Counter("booking_http_requests", text, labels, registry=self.registry)
        text = "Seconds from a request to its response."
        name = "booking_http_request_duration_seconds"
        self._durations = Histogram(name, text, labels[:1], registry=self.registry, buckets=SECONDS)
        text = "Requests answered 503, by reason."
        self._refused = Counter("booking_http_unavailable", text, ["reason"], registry=self.registry)
        text = "Webhooks of Stripe by outcome."
        self._stripe = Counter("booking_stripe_webhooks", text, ["outcome"], registry=self.registry)
        for outcome in STRIPE_OUTCOMES:  # from 0: Prometheus takes no first value for an increase
            self._stripe.labels(outcome)
        self._sales = {
            name: Counter(metric, text, ["organization"], registry=self.registry)
            for name, (metric, text) in _SALES.items()
        }
        self._organizations: set[str] = set()
        self._places = iter(range(COUNTED_ORGANIZATIONS_MAX))
        """The places for organizations that are counted apart. Each is taken once, whichever threads take them."""
        database.on_tally = self.observe_sale
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(Families(lambda: database_families(database)))
        self.registry.register(Families(lambda: worker_families(self.worker) if self.worker else ()))

    def observe_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, on the event loop.

        Args:
            status: of the response; 0 if the client had disconnected before it began.
        """
        endpoint = scope.get("endpoint")
        count, duration = self._requests.get((endpoint, status)) or self._new_requests(scope, endpoint, status)
        count.inc()
        duration.observe(seconds)

    def observe_refusal(self, reason: str) -> None:
        """Count a request that is answered 503."""
        self._refused.labels(reason).inc()

    def observe_stripe_webhook(self, outcome: str) -> None:
        """Count a webhook of Stripe by one of `STRIPE_OUTCOMES`, on the event loop."""
        self._stripe.labels(outcome).inc()

    def observe_sale(self, name: str, organization: str, amount: int) -> None:
        """Count committed work by one of `_SALES`, in any thread."""
        if organization not in self._organizations and next(self._places, None) is not None:
            self._organizations.add(organization)
        label = organization if organization in self._organizations else OTHERS
        self._sales[name].labels(label).inc(amount)

    def observe_executors(self, executors: Iterable[BatchExecutor[Any, Any]], failures: Callable[[], int]) -> None:
        """Count the batches of the executors, and read their queues when metrics are collected.

        Args:
            failures: returns how often the store of rate limits did not answer.
        """
        lanes = list(executors)
        options: dict[str, Any] = {"labelnames": ["lane"], "registry": self.registry}
        sizes = Histogram("booking_lane_batch_size", "Jobs in a batch.", buckets=BATCH_SIZES, **options)
        waits = Histogram("booking_lane_wait_seconds", "Wait of the first job of a batch.", buckets=SECONDS, **options)
        for lane in lanes:
            lane.observe = observing_batches(sizes.labels(lane.name), waits.labels(lane.name))
        self.registry.register(Families(lambda: lane_families(lanes)))
        self.registry.register(Families(lambda: [_store_failures(failures())]))

    def _new_requests(self, scope: Scope, endpoint: Any, status: int) -> tuple[Counter, Histogram]:
        name = operation_of(scope)
        pair = self._counts.labels(name, str(status or NO_RESPONSE)), self._durations.labels(name)
        self._requests[endpoint, status] = pair
        return pair


def observing_batches(sizes: Histogram, waits: Histogram) -> Callable[[int, float], None]:
    """Return the function that counts a batch by its size and the seconds that its first job waited, in any thread."""

    def observe(size: int, waited_s: float) -> None:
        sizes.observe(size)
        waits.observe(waited_s)

    return observe


def operation_of(scope: Scope) -> str:
    """Return the name of the operation that a request was routed to."""
    route = scope.get("route")
    return getattr(route, "operation_id", None) or getattr(route, "name", None) or UNROUTED


def gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one label."""
    return _filled(GaugeMetricFamily(name, text, labels=[label]), values)


def counter(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a counter with one label."""
    return _filled(CounterMetricFamily(name, text, labels=[label]), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for key, value in values.items():
        family.add_metric([key], value)
    return family


# Read when they are collected ----------------------------------------------------------------------------------------

_JOBS = {
    "mail": ("booking_mail_attempts", "Attempts by outcome."),
    "refunds": ("booking_refund_attempts", "Attempts by outcome."),
    "payments": ("booking_payment_checks", "Look-ups of payments at Stripe, by its answer."),
    "announcements": ("booking_departure_announcements", "Departures that may have changed, by outcome."),
}
"""The counter of each job that has results."""


def lane_families(lanes: Sequence[BatchExecutor[Any, Any]]) -> Iterator[Metric]:
    """Return the queues and threads of the lanes."""
    yield gauge("booking_lane_waiting", "Jobs that wait for a thread.", "lane", {x.name: x.waiting_jobs for x in lanes})
    yield gauge("booking_lane_busy", "Threads that run a batch.", "lane", {x.name: x.busy_threads for x in lanes})
    yield gauge("booking_lane_threads", "Threads of the lane.", "lane", {x.name: x.threads for x in lanes})


def database_families(database: Database) -> Iterator[Metric]:
    """Return the connections and retries of a process."""
    pools = database.pools
    yield gauge("booking_pool_in_use", "Connections in use.", "pool", {pool.name: pool.in_use for pool in pools})
    yield gauge("booking_pool_size", "Connections at most.", "pool", {pool.name: pool.size for pool in pools})
    retries = dict(database.retries)
    yield counter("booking_transaction_retries", "Transactions run again, by SQLSTATE.", "sqlstate", retries)


def worker_families(worker: WorkerState) -> Iterator[Metric]:
    """Return the counts of the worker of this process."""
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


# The installation -----------------------------------------------------------------------------------------------------

log = logging.getLogger("booking.metrics")

KEPT_S = 10.0
STATEMENT_TIMEOUT_S = 3.0
ANSWER_S = 4.0
"""The time limit of the database; then the scrape goes without these metrics; Prometheus waits for ten."""
KEYS_EVERY_S = 300.0
"""Seconds between two looks at values that the secret keys have to open."""


class InstallationMetrics:
    """Reads the metrics of the installation.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, settings: Settings, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._database = database
        self._clock = clock
        self._readers = database.open_readers(1, name="metrics", statement_timeout_s=STATEMENT_TIMEOUT_S)
        self._polled = Polled("metrics", self.read, self._failed, timeout_s=ANSWER_S, kept_s=KEPT_S, clock=clock)
        self._failures = RepeatedLog(log)
        self._keys: tuple[float, float] = (float("-inf"), 1.0)
        self.families = self._polled.result
        """Returns the metrics; without an answer of the database only `booking_database_up`, which is 0."""
        self.close = self._polled.close

    def _failed(self, error: Exception) -> list[Metric]:
        text = f"the database did not answer the query of metrics: {type(error).__name__}"
        self._failures.note(logging.WARNING, type(error).__name__, text)
        return [_up(0)]

    def read(self) -> list[Metric]:
        """Read the metrics now."""
        with self._readers.reading() as tx:
            return [_up(1), *backlog_families(tx), *self._secret_keys()]

    def _secret_keys(self) -> Iterable[Metric]:
        at_s, opens = self._keys
        if self._clock() - at_s >= KEYS_EVERY_S:
            opens = 1.0 if self._opens() else 0.0
            self._keys = self._clock(), opens
        text = "1 if the secret keys open the sealed values of the database."
        return [GaugeMetricFamily("booking_secret_keys_valid", text, value=opens)]

    def _opens(self) -> bool:
        try:
            problem = secret_keys.find_problem(self._settings, self._database)
            return problem is None or problem.is_damage
        except SettingError:
            return False


def backlog_families(tx: Tx) -> Iterator[Metric]:
    """Return the queues, endpoints, parked rows and workers of the installation."""
    waiting, endpoints, heartbeats = backlog.read(tx), backlog.read_endpoints(tx), worker_heartbeats.read(tx)
    yield gauge("booking_backlog_due", "Rows that wait for the worker.", "kind", {x.kind: x.rows for x in waiting})
    text = "Age of the oldest due row, in seconds."
    yield gauge("booking_backlog_age_seconds", text, "kind", {x.kind: x.age_s for x in waiting})
    yield gauge("booking_endpoints", "Webhook endpoints by status.", "status", {x.status: x.total for x in endpoints})
    failing = {x.status: x.failing for x in endpoints}
    yield gauge("booking_endpoints_failing", "Webhook endpoints whose last attempt failed.", "status", failing)
    yield gauge("booking_parked_rows", "Rows that a job cannot process.", "job", parked.count(tx))
    yield GaugeMetricFamily("booking_workers_running", "Workers seen within a minute.", value=heartbeats.running)
    yield GaugeMetricFamily("booking_sandboxes", "Organizations that are sandboxes.", value=sandboxes.count(tx))


def _up(value: int) -> Metric:
    return GaugeMetricFamily("booking_database_up", "1 if the database answers the queries of metrics.", value=value)
