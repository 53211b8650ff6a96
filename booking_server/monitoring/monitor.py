"""The health and the metrics of one process, of the API or of a worker by itself."""

import contextlib
import hmac
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.monitoring.exposition import Processes, exposition
from booking_server.monitoring.health import Health, Report
from booking_server.monitoring.installation import Installation
from booking_server.monitoring.metrics import Metrics, WorkerState


def may_read(token: str | None, authorization: str, *, is_own_port: bool) -> bool | None:
    """Return whether a request may read the metrics; None where there are none for anyone.

    On a port of their own they need a token only where one is set; beside the API they need one always.
    """
    if token is None:
        return True if is_own_port else None
    return hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())


class MonitoredHealth(Protocol):
    """The health of a process, as its probes read it."""

    def stop(self) -> None: ...
    def liveness(self) -> Report: ...
    async def readiness(self) -> Report: ...


class Monitored(Protocol):
    """The health and the metrics of a process, as its port reads them."""

    @property
    def health(self) -> MonitoredHealth: ...
    @property
    def is_shared(self) -> bool: ...
    async def exposition(self) -> bytes: ...
    def is_allowed(self, authorization: str, *, is_own_port: bool) -> bool | None: ...


class Monitor:
    """Watches one process.

    Args:
        store: pings the store of rate limits; none in a worker.
        folder: of the processes that share a port with this one, if there are any.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        store: Callable[[], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.health = Health(database, store=store)
        self.metrics = Metrics(database)
        self.is_shared = folder is not None
        """Other processes listen on the same ports."""
        self.installation = Installation(settings, database)
        self._processes = Processes(self.metrics.registry, folder)
        self._token = settings.metrics_token

    def watch_worker(self, worker: WorkerState) -> None:
        """Watch the worker of this process too."""
        self.health.turns = worker.turns
        self.metrics.worker = worker

    async def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return await exposition(self._processes, await self.installation.families())

    def is_allowed(self, authorization: str, *, is_own_port: bool) -> bool | None:
        """Return whether a request may read the metrics; None where there are none for anyone."""
        return may_read(self._token, authorization, is_own_port=is_own_port)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer the other processes while the body runs."""
        with contextlib.closing(self.health), contextlib.closing(self.installation):
            async with self._processes.answering():
                yield
