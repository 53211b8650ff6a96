"""The health and the metrics of one process, of the API or of a separate worker."""

import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.monitoring.exposition import Processes
from booking_server.monitoring.health import Health, Report
from booking_server.monitoring.metrics import InstallationMetrics, Metrics, WorkerState


class MonitoredHealth(Protocol):
    """The health of a process, as its probes read it."""

    def stop(self) -> None: ...
    def liveness(self) -> Report: ...
    async def readiness(self) -> Report: ...


class ProcessMonitor:
    """The health and the metrics of a process, as its port reads them.

    Args:
        own: the metrics of this process.
        of_installation: returns the metrics that are the same from every process.
        folder: of the processes that share a port with this one, if there are any.
    """

    def __init__(
        self,
        settings: Settings,
        health: MonitoredHealth,
        collector: Collector,
        of_installation: Callable[[], Awaitable[Iterable[Metric]]],
        folder: Path | None,
    ) -> None:
        self.health = health
        self.is_shared = folder is not None
        """Other processes listen on the same ports."""
        self._of_installation = of_installation
        self._processes = Processes(collector, folder)
        self._token = settings.metrics_token

    async def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return await self._processes.exposition(await self._of_installation())

    def is_allowed(self, authorization: str, *, is_own_port: bool) -> bool | None:
        """Return whether a request may read the metrics; None where there are none for anyone.

        On their own port they need a token only where one is set; on the API's port they need one always.
        """
        if self._token is None:
            return True if is_own_port else None
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer the other processes while the body runs."""
        async with self._processes.answering():
            yield


class Monitor(ProcessMonitor):
    """Watches one process.

    Args:
        store: pings the store of rate limits; none in a worker.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        store: Callable[[], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.metrics = Metrics(database)
        self.installation = InstallationMetrics(settings, database)
        super().__init__(
            settings, health := Health(database, store=store), self.metrics.registry, self.installation.families, folder
        )
        self.health: Health = health

    def watch_worker(self, worker: WorkerState) -> None:
        """Watch the worker of this process too."""
        self.health.turns = worker.turns
        self.metrics.worker = worker

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer the other processes while the body runs, and let the threads of health and metrics end."""
        with contextlib.closing(self.health), contextlib.closing(self.installation):
            async with super().running():
                yield
