"""Judges a cell: the neighbour's operations during a misbehaviour, as a ratio to the same operations without it.

Waiting for a lock, a lane or a turn counts against the service. Sharing the processors of the machine does not. An
operation that seems too slow is therefore compared again, with a quiet service on the same database. Burners then use
as much processor time as the misbehaviour did, inside the service and outside of it.
"""

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
from support.databases import connect

from booking_core.base.clock import SECOND
from booking_server.worker.jobs.expiry import ABANDON_EVERY
from isolation.operations import USUAL, Effort, Measured, Operation
from isolation.processes import Lateness, burners
from isolation.world import Scene

FACTOR = {"postgresql": 3.0, "sqlite": 5.0}
"""The maximum ratio of the neighbour's p99 to its quiet p99."""
CLEAR = 4.0
"""Above this multiple of the limit a cell is not measured again: no machine is that noisy."""
QUICK = Effort(rounds=8, budget_s=3.0, patience_s=4.0, pause_s=0.04, answer_s=8.0)
WARM_UP = Effort(rounds=1, budget_s=10.0, patience_s=30.0)
_WORTH_BURNING = 0.05
"""The smallest share of a processor that burners are started for."""


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """A row of the table.

    Args:
        does: the misbehaviour in words.
        run: a context manager that misbehaves while its body runs.
        prepare: creates the rows that exist before the service starts.
        settings: settings of the service, if the usual settings do not show the misbehaviour.
        operations: the neighbour's operations that are measured.
        on_sqlite: the operations on SQLite, if they are fewer; empty: the misbehaviour does not exist there.
    """

    name: str
    does: str
    run: Callable[[Scene], AbstractContextManager[Any]]
    prepare: Callable[[Scene], None] = lambda _: None
    settings: dict[str, Any] = field(default_factory=dict)
    operations: tuple[Operation, ...] = USUAL
    on_sqlite: tuple[Operation, ...] | None = None

    def measured_on(self, backend: str) -> tuple[Operation, ...]:
        """Return the operations that are measured on a database."""
        return self.on_sqlite if backend == "sqlite" and self.on_sqlite is not None else self.operations


@dataclass(frozen=True, slots=True)
class Cell:
    """The times of an operation during a misbehaviour, in seconds: the 99th percentile, or the worst of few."""

    operation: Operation
    quiet_s: float
    reference_s: float
    """The quiet time on the shared processors, including the noise of the machine."""
    disturbed_s: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.disturbed_s / self.reference_s

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.limit

    def __str__(self) -> str:
        quiet, reference, disturbed = (
            f"{value * 1e3:.1f}" for value in (self.quiet_s, self.reference_s, self.disturbed_s)
        )
        return f"{self.operation}: {disturbed} ms, quiet {quiet}, reference {reference}: {self.ratio:.1f} x"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cells of one misbehaviour, and failures regardless of any ratio: lost, sent twice, answered 5xx."""

    cells: tuple[Cell, ...]
    failures: tuple[str, ...]

    @property
    def complaints(self) -> list[str]:
        """Return a description of each problem."""
        slow = [f"{cell} (at most {cell.limit:g})" for cell in self.cells if not cell.is_met]
        return [*slow, *dict.fromkeys(self.failures)]


class Loads:
    """The processor time of the service and of everything else that belongs to the run, as shares of a processor."""

    def __init__(self, scene: Scene) -> None:
        self._service = scene.service.pid
        self._own = [psutil.Process(), *psutil.Process().children(recursive=True)]
        self._own = [each for each in self._own if each.pid != self._service] + _backends(scene)
        self._began = time.perf_counter()
        self._before = {each.pid: _cpu_s(each) for each in self._own}
        self._service_before = _cpu_s(psutil.Process(self._service))

    def shares(self) -> tuple[float, float]:
        """Return the shares of the service and of the rest since the beginning."""
        wall = time.perf_counter() - self._began
        service = _cpu_s(psutil.Process(self._service)) - self._service_before
        rest = {each.pid: each for each in [*self._own, *psutil.Process().children(recursive=True)]}
        rest.pop(self._service, None)
        used = sum(max(0.0, _cpu_s(each) - self._before.get(pid, 0.0)) for pid, each in rest.items())
        return service / wall, used / wall


def _backends(scene: Scene) -> list[psutil.Process]:
    """Return the processes of PostgreSQL, if it runs on this machine."""
    if scene.is_sqlite:
        return []
    with connect(scene.url) as connection:
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    try:
        return psutil.Process(pid).parent().children()
    except (psutil.Error, AttributeError):
        return []


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


class Trial:
    """Measures the cells of one misbehaviour in one scene."""

    def __init__(self, scene: Scene, misbehaviour: Misbehaviour, backend: str, effort: Effort = QUICK) -> None:
        self._scene = scene
        self._misbehaviour = misbehaviour
        self._operations = misbehaviour.measured_on(backend)
        self._effort = effort
        self._factor = FACTOR[backend]
        self._lateness = Lateness()

    def run(self, *, takes: int = 6, plants: Collection[Any] = (), is_thorough: bool = False) -> Verdict:
        """Measure the cells, and repeat those that are too slow, up to `takes` measurements in all.

        One take suffices to show that an operation does not wait: an operation that has to wait does so in each take.

        Args:
            is_thorough: compare with the burners in any case.
        """
        self._plants = tuple(plants)
        try:
            self._misbehaviour.prepare(self._scene)
            self._start()
            loads = Loads(self._scene)
            quiet = self._measure()
            self._own_shares = loads.shares()
            if quiet.failures:
                return Verdict((), tuple(f"while it was quiet: {failure}" for failure in quiet.failures))
            verdict = self._take(quiet, is_thorough=is_thorough)
            for _ in range(takes - 1):
                if not self._is_worth_another(verdict):
                    break
                self._start()
                verdict = _better(verdict, self._take(quiet, is_thorough=is_thorough))
            return verdict
        finally:
            self._lateness.close()

    def _start(self) -> None:
        self._scene.start(self._plants)
        self._scene.neighbour.measure(WARM_UP, self._operations)

    def _measure(self) -> Measured:
        """Measure without the misbehaviour, with timeouts that are long enough for a busy machine."""
        return self._scene.neighbour.measure(replace(self._effort, patience_s=WARM_UP.patience_s), self._operations)

    def _measure_disturbed(self, quiet: Measured) -> Measured:
        """Measure during the misbehaviour, and wait for missing results for longer than any limit allows."""
        slowest = max(quiet.worst(operation) for operation in self._operations)
        patience_s = max(self._effort.patience_s, 2 * self._factor * slowest)
        return self._scene.neighbour.measure(replace(self._effort, patience_s=patience_s), self._operations)

    def _take(self, quiet: Measured, *, is_thorough: bool) -> Verdict:
        with self._misbehaviour.run(self._scene):
            self._lateness.worst_s()
            loads = Loads(self._scene)
            disturbed = self._measure_disturbed(quiet)
            shares = [max(0.0, all_ - own) for all_, own in zip(loads.shares(), self._own_shares, strict=True)]
            late = self._lateness.worst_s()
        verdict = self._verdict(quiet, quiet, disturbed, late)
        if is_thorough or (not disturbed.failures and any(not cell.is_met for cell in verdict.cells)):
            verdict = self._verdict(quiet, self._burned(*shares), disturbed, late)
        return verdict

    def _burned(self, service: float, rest: float) -> Measured:
        """Measure the neighbour without the misbehaviour, while burners use as much processor time."""
        scene = self._scene
        scene.forget_queues()
        self._start()
        if scene.is_sqlite:  # which searches within the service, and leaves the interpreter to others meanwhile
            service, rest = service / 2, rest + service / 2
        if service > _WORTH_BURNING:
            scene.service.burn(service, self._effort.budget_s + self._effort.patience_s)
        with burners(rest if rest > _WORTH_BURNING else 0.0):
            return self._measure()

    def _verdict(self, quiet: Measured, beside: Measured, disturbed: Measured, late_s: float) -> Verdict:
        cells = tuple(
            Cell(
                operation,
                quiet.worst(operation),
                _longest(operation, quiet, beside) + late_s,
                disturbed.worst(operation),
                self._factor,
            )
            for operation in self._operations
            if operation in disturbed.seconds
        )
        return Verdict(cells, tuple(disturbed.failures))

    def _is_worth_another(self, verdict: Verdict) -> bool:
        if verdict.failures:
            return False
        return any(not cell.is_met for cell in verdict.cells) and all(
            cell.ratio < CLEAR * cell.limit for cell in verdict.cells
        )


def _longest(operation: Operation, *measured: Measured) -> float:
    """Return the longest of the times; for an expiry at least the pause of its job."""
    least = ABANDON_EVERY / SECOND if operation is Operation.EXPIRY else 0.0
    return max(least, *(each.worst(operation) for each in measured if operation in each.seconds))


def _better(first: Verdict, second: Verdict) -> Verdict:
    """Return the take with the shorter wait for each operation."""
    of_second = {cell.operation: cell for cell in second.cells}
    cells = tuple(min(cell, of_second.get(cell.operation, cell), key=lambda each: each.ratio) for cell in first.cells)
    return Verdict(cells, second.failures)
