"""The worker, which delivers webhooks and runs the periodic jobs: beside the HTTP API, or as a separate process.

Any number of workers may run beside one PostgreSQL. An idle one is woken by commits, and by these timers:

| Loop | Looks for work |
|---|---|
| deliveries | each second (`deliveries.POLL_S`), and for expired leases each 5 s |
| each job | each 2 s (`periodic.POLL_S`), with one to three queries; tasks with longer intervals less often |
| upkeep of deliveries | each 2 s (`queue.UPKEEP_EVERY`), each 0.25 s while a recovery goes on |
| heartbeat | writes a row each 15 s (`worker_heartbeats.EVERY`) |
| notifier | none: PostgreSQL wakes it |
"""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from booking_core.base.context import Installation
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.db.sqlite import SqliteDriver
from booking_core.upkeep import secret_keys
from booking_server import interpreter
from booking_server.adapters.webhook_client import WebhookSender
from booking_server.monitoring.monitor import Monitor
from booking_server.tracing import open_tracing
from booking_server.worker.deliveries import DeliveryLoop, Sender
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.jobs.periodic import Job
from booking_server.worker.loops import FailureLog, Heartbeat, JobLoop, Turns
from booking_server.worker.notifier import listen
from booking_server.worker.queue import DeliveryQueue, UpkeepJob

if TYPE_CHECKING:
    from booking_server.tracing.tracing import Tracing

log = logging.getLogger("booking.worker")


class Worker:
    """The delivery loop, and a loop for each periodic job."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        installation: Installation,
        sender: Sender,
        jobs: Sequence[Job] = (),
    ) -> None:
        failures = FailureLog()
        self.turns = Turns()
        self.queue = DeliveryQueue(settings, database, installation)
        self.jobs: Sequence[Job] = (*jobs, UpkeepJob(database))
        self._deliveries = DeliveryLoop(self.queue, sender, failures, self.turns)
        self._loops = [JobLoop(job, failures, self.turns) for job in self.jobs]
        self._heartbeat = Heartbeat(database, self.turns, failures)

    def wake(self) -> None:
        """Let all loops look for work now, since something was committed."""
        self._deliveries.wake()
        for loop in self._loops:
            loop.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Run all loops until `stop` is set, and until the attempts in flight are recorded."""
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                group.create_task(loop.run(stop))
            group.create_task(self._heartbeat.run(stop))
            group.create_task(self._deliveries.run(stop))
        for loop in self._loops:
            await loop.close()

    async def run_once(self) -> int:
        """Run each job until nothing is due, deliver all that is due, and return the number of delivery attempts."""
        for job in self.jobs:
            await job.run_once()
        return await self._deliveries.run_once()


@contextlib.asynccontextmanager
async def running_worker(
    settings: Settings, database: Database, installation: Installation, tracing: "Tracing | None" = None
) -> AsyncIterator[Worker]:
    """Run a worker with all periodic jobs while the body runs."""
    sender = _sender(settings, tracing)
    jobs = periodic_jobs(settings, database, installation)
    worker = Worker(settings, database, installation, sender, jobs)
    async with running(worker, sender):
        yield worker


def _sender(settings: Settings, tracing: "Tracing | None") -> Sender:
    sender = WebhookSender(settings)
    if tracing is None:
        return sender
    from booking_server.tracing.tracing import TracedSender

    return TracedSender(sender, tracing)


@contextlib.asynccontextmanager
async def running(worker: Worker, sender: Sender) -> AsyncIterator[None]:
    """Run the worker while the body runs, then stop it and close its sender."""
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task
        await sender.close()


async def serve_forever(settings: Settings, health_address: tuple[str, int] | None = None) -> None:
    """Run a worker in this process until SIGINT or SIGTERM.

    A second signal ends the process at once; another worker takes over its attempts when their leases have expired.

    Args:
        health_address: the host and port that serve `/healthz`, `/readyz` and `/metrics`.
    """
    stop = stop_on_signal()
    with interpreter.reduced_collection():
        async with working(settings, health_address) as (monitor, _):
            log.info("the worker runs")
            await stop.wait()
            monitor.health.stop()
            log.info("the worker stops")


@contextlib.asynccontextmanager
async def working(
    settings: Settings,
    health_address: tuple[str, int] | None = None,
    *,
    check: Callable[[Database], None] = lambda _: None,
) -> AsyncIterator[tuple[Monitor, Database]]:
    """Run a worker on the database of the settings while the body runs, and yield its health and metrics, and the
    database.

    Args:
        check: called with the database before the worker runs.
    """
    tracing = open_tracing(settings)
    with contextlib.ExitStack() as stack:
        if tracing:
            stack.callback(tracing.close)
        database = stack.enter_context(contextlib.closing(Database(settings.database_url)))
        database.is_traced = tracing is not None
        if isinstance(database.driver, SqliteDriver):
            database.driver.checkpoints = True
        check(database)
        installation = secret_keys.with_link_keys(database, settings.installation())
        async with (
            _monitored(settings, database, health_address) as monitor,
            running_worker(settings, database, installation, tracing) as worker,
            listen(database, worker.wake, direct_url=settings.database_direct_url),
        ):
            monitor.watch_worker(worker)
            yield monitor, database


async def unready_while(
    settings: Settings, address: tuple[str, int], work: Callable[[Callable[[float], object]], None]
) -> None:
    """Run the work that prepares this process in a thread, and serve the health of the process meanwhile.

    Args:
        work: called with a function that pauses for so many seconds, and returns True once the process ends.
    """
    ended = threading.Event()
    with contextlib.closing(Database(settings.database_url)) as database:
        async with _monitored(settings, database, address):
            try:
                await asyncio.to_thread(work, ended.wait)
            finally:
                ended.set()


@contextlib.asynccontextmanager
async def _monitored(settings: Settings, database: Database, address: tuple[str, int] | None) -> AsyncIterator[Monitor]:
    """Watch this process while the body runs, and serve its state where an address is given."""
    monitor = Monitor(settings, database)
    async with monitor.running():
        if address is None:
            yield monitor
            return
        # A worker without such a port does not pay for importing a web server.
        from booking_server.monitoring.app import listen as listen_for_probes
        from booking_server.monitoring.app import serving

        async with serving(monitor, listen_for_probes(monitor, *address)):
            yield monitor


def stop_on_signal() -> asyncio.Event:
    """Return an event that the first signal sets, which also restores the default handling for the second one."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers of the event loop
            loop.add_signal_handler(number, end)
    return stop
