"""The health of a process, by parts: whether it works, and whether it should get requests (decision 0033).

A part that fails makes the process unready. A part that is degraded does not: without the store of rate limits requests
pass, and without a worker deliveries and mails wait. To take every process of the API out of service would make it
worse.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from booking_core.db import revisions
from booking_core.db.engine import Database, Tx
from booking_core.db.revisions import SchemaState
from booking_core.upkeep import worker_heartbeats
from booking_core.upkeep.worker_heartbeats import Heartbeats

CHECK_TIMEOUT_S = 1.0
"""The time limit of a check; a load balancer asks every few seconds."""
KEPT_S = 1.0
"""The result of a check is used again for so many seconds."""
STALLED_S = 600.0
"""Seconds without a turn after which a loop of the worker counts as stalled. The longest turns wait for mail
servers and for statements of a database that is slow."""


class Status(StrEnum):
    """The state of a part, or of all of them."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


_ORDER = tuple(Status)


@dataclass(frozen=True, slots=True)
class Part:
    """The state of one part, and its problem."""

    status: Status
    message: str | None = None

    def as_json(self) -> dict[str, str]:
        return {"status": self.status} | ({"message": self.message} if self.message else {})


OK = Part(Status.OK)
HealthParts = Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class Report:
    """The parts of a process; it is as well as the worst of them."""

    parts: HealthParts

    @property
    def status(self) -> Status:
        return max((part.status for part in self.parts.values()), key=_ORDER.index, default=Status.OK)

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, "parts": {name: part.as_json() for name, part in self.parts.items()}}


class LoopTurns(Protocol):
    """The loops of a worker."""

    def stalled(self, seconds: float) -> Sequence[str]: ...


def failed(name: str, status: Status, timeout_s: float) -> Callable[[Exception], HealthParts]:
    """Return the function that reports a part after its check has failed."""

    def report(error: Exception) -> HealthParts:
        late = isinstance(error, TimeoutError)
        message = f"no answer within {timeout_s:g} s" if late else f"failed with {type(error).__name__}"
        return {name: Part(status, message)}

    return report


class Health:
    """The health of one process.

    Args:
        store: returns nothing when the store of rate limits answers, and raises when it does not; none in a worker.
    """

    def __init__(
        self,
        database: Database,
        *,
        store: Callable[[], None] | None = None,
        timeout_s: float = CHECK_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_stopping = False
        """True from SIGTERM on."""
        self.turns: LoopTurns | None = None
        """The loops of the worker of this process, if it has one."""
        self._head = revisions.head()
        self._readers = database.open_readers(1, name="health", statement_timeout_s=timeout_s)
        checks: list[tuple[str, Callable[[], HealthParts], Status]] = [
            ("database", self._check_database, Status.FAILED)
        ]
        if store:
            checks.append(("rate_limit_store", lambda: {"rate_limit_store": store() or OK}, Status.DEGRADED))
        bounds: dict[str, Any] = {"timeout_s": timeout_s, "kept_s": KEPT_S, "clock": clock}
        self._checks = [
            Polled(name, check, failed(name, status, timeout_s), **bounds) for name, check, status in checks
        ]

    def stop(self) -> None:
        """Let the process be unready from now on."""
        self.is_stopping = True

    def liveness(self) -> Report:
        """Report whether the process works: a supervisor that restarts it otherwise does no harm."""
        return Report({"process": OK, **self._loops()})

    async def readiness(self) -> Report:
        """Report whether the process should get requests."""
        process = {"process": Part(Status.FAILED, "the process is stopping") if self.is_stopping else OK}
        results = await asyncio.gather(*(check.result() for check in self._checks))
        merged = process | {name: part for parts in results for name, part in parts.items()}
        return Report(merged | self._loops())

    def close(self) -> None:
        for check in self._checks:
            check.close()

    def _loops(self) -> dict[str, Part]:
        stalled = self.turns.stalled(STALLED_S) if self.turns else ()
        if not stalled:
            return {}
        return {"worker": Part(Status.FAILED, f"without a turn for {STALLED_S:.0f} s: {', '.join(stalled)}")}

    def _check_database(self) -> HealthParts:
        with self._readers.reading() as tx:
            return {"database": OK, "schema": self._schema(tx), "worker": worker_part(worker_heartbeats.read(tx))}

    def _schema(self, tx: Tx) -> Part:
        return _SCHEMA_PARTS[revisions.state_of(tx, self._head)]


_SCHEMA_PARTS = {
    SchemaState.CURRENT: OK,
    SchemaState.NEWER: Part(Status.DEGRADED, "a newer release has upgraded the schema, which this one can still use"),
    SchemaState.TOO_NEW: Part(Status.FAILED, "the schema belongs to a newer release: install that release"),
    SchemaState.OLDER: Part(Status.FAILED, "the schema is older than this release's: run `booking db upgrade`"),
}


def worker_part(heartbeats: Heartbeats) -> Part:
    """Return the state of all workers together."""
    if not heartbeats.is_late:
        return OK
    if heartbeats.age_s is None:
        return Part(Status.DEGRADED, "no worker runs")
    return Part(Status.DEGRADED, f"no worker was seen for {heartbeats.age_s:.0f} s")


# Checks ---------------------------------------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")


class Polled(Generic[ResultT]):
    """Runs a function in a thread, one call at a time, and keeps its result for a moment: probes need no key, and must
    not become load.

    Args:
        on_failure: returns the result instead of the function that raised, or did not answer in time.
        timeout_s: the time limit of the function.
        kept_s: a result is used again for so many seconds.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], ResultT],
        on_failure: Callable[[Exception], ResultT],
        *,
        timeout_s: float,
        kept_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._function = function
        self._on_failure = on_failure
        self._timeout_s = timeout_s
        self._kept_s = kept_s
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, name)
        self._running: asyncio.Future[ResultT] | None = None
        self._last: tuple[float, ResultT] | None = None

    async def result(self) -> ResultT:
        """Return the function's result, or the result of its failure."""
        if self._last and self._clock() - self._last[0] < self._kept_s:
            return self._last[1]
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._function)
        try:
            result = await asyncio.wait_for(asyncio.shield(self._running), self._timeout_s)
        except Exception as error:  # noqa: BLE001 - a probe reports any failure
            result = self._on_failure(error)
        self._last = self._clock(), result
        return result

    def close(self) -> None:
        """Let the thread end; a call that hangs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)


# The shutdown ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def announced(announce: Callable[[], None], delay_s: float) -> Iterator[None]:
    """Call `announce` at SIGTERM, and the handler that was set before after a delay, or at the next SIGTERM.

    A load balancer learns by its next probe that a process is unready. Until then it sends requests, which would find a
    closed port if the process closed it at once.

    Outside the main thread, and where no handler is set, nothing is changed.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    handler = announcing(announce, previous, delay_s, asyncio.get_running_loop())
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, previous)


def announcing(
    announce: Callable[[], None], previous: Callable[..., Any], delay_s: float, loop: asyncio.AbstractEventLoop
) -> Callable[..., None]:
    """Return the handler of SIGTERM."""
    is_announced = False

    def handle(number: int, frame: Any) -> None:
        nonlocal is_announced
        announce()
        if is_announced or not delay_s:
            previous(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, delay_s, previous, number, None)
        is_announced = True

    return handle
