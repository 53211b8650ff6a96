"""Metrics of the whole installation, read from its database: the same from every process.

They are read on a connection that nothing else uses, and kept for some seconds: several scrapes cost one look.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import SettingError, Settings
from booking_core.db.engine import Database, Tx
from booking_core.records import parked
from booking_core.upkeep import backlog, sandboxes, secret_keys, worker_heartbeats
from booking_server.monitoring.metrics import gauge
from booking_server.monitoring.polled import Polled

log = logging.getLogger("booking.metrics")

KEPT_S = 10.0
STATEMENT_TIMEOUT_S = 3.0
ANSWER_S = 4.0
"""The time limit of the database; then the scrape goes without these metrics; Prometheus waits for ten."""
KEYS_EVERY_S = 300.0
"""Seconds between two looks at values that the secret keys have to open."""


class Installation:
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
        text = "1 if the secret keys open what the database holds."
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
    text = "Seconds for which the oldest of them has been due."
    yield gauge("booking_backlog_age_seconds", text, "kind", {x.kind: x.age_s for x in waiting})
    yield gauge("booking_endpoints", "Webhook endpoints by status.", "status", {x.status: x.total for x in endpoints})
    failing = {x.status: x.failing for x in endpoints}
    yield gauge("booking_endpoints_failing", "Webhook endpoints whose last attempt failed.", "status", failing)
    yield gauge("booking_parked_rows", "Rows that a job cannot process.", "job", parked.count(tx))
    yield GaugeMetricFamily("booking_workers_running", "Workers seen within a minute.", value=heartbeats.running)
    yield GaugeMetricFamily("booking_sandboxes", "Organizations that are sandboxes.", value=sandboxes.count(tx))


def _up(value: int) -> Metric:
    return GaugeMetricFamily("booking_database_up", "1 if the database answers the queries of metrics.", value=value)
