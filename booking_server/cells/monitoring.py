"""The health and the metrics of a process that serves several cells.

A cell that has failed leaves the process ready while another one works: a process that is taken out of service answers
for none. Metrics have the label `cell`, one value for each cell of the settings.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric

from booking_core.base.settings import Settings
from booking_server.cells.slots import Slot
from booking_server.monitoring.exposition import Families, labelled
from booking_server.monitoring.health import OK, Part, Report, Status
from booking_server.monitoring.metrics import gauge
from booking_server.monitoring.monitor import Monitor, ProcessMonitor

_OF_PROCESS = ("process_", "python_")
"""Metrics that all cells of a process have in common."""


class CellsHealth:
    """The health of a process by cell and part: `c2.database` is the database of the cell c2."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._is_stopping = False

    def stop(self) -> None:
        """Let the process be unready from now on."""
        self._is_stopping = True

    def liveness(self) -> Report:
        """Report whether the process works. The state of a cell does not tell."""
        reports = {name: monitor.health.liveness() for name, monitor in _opened(self._slots)}
        return Report({"process": OK} | _named(reports))

    async def readiness(self) -> Report:
        """Report whether the process should get requests: while it is not stopping and one cell works."""
        process = Part(Status.FAILED, "the process is stopping") if self._is_stopping else OK
        found = await asyncio.gather(*map(_readiness_of, self._slots))
        parts = _named({slot.name: report for slot, report in zip(self._slots, found, strict=True)})
        if any(report.status is not Status.FAILED for report in found):
            failed = {name: part.message for name, part in parts.items() if part.status is Status.FAILED}
            parts |= {name: Part(Status.DEGRADED, message) for name, message in failed.items()}
        return Report({"process": process} | parts)


def _opened(slots: Iterable[Slot]) -> list[tuple[str, Monitor]]:
    """Return the names and monitors of the cells that are open."""
    return [(slot.name, slot.opened.monitor) for slot in slots if slot.opened]


def _named(reports: dict[str, Report]) -> dict[str, Part]:
    """Return the parts of all cells, except those of the process."""
    return {
        f"{cell}.{name}": part
        for cell, report in reports.items()
        for name, part in report.parts.items()
        if name != "process"
    }


async def _readiness_of(slot: Slot) -> Report:
    if slot.opened:
        return await slot.opened.monitor.health.readiness()
    return Report({"cell": Part(Status.FAILED, f"cannot be opened: {type(slot.error).__name__}")})


class CellsMonitor(ProcessMonitor):
    """Watches a process that serves several cells.

    Args:
        folder: of the processes that share a port with this one, if there are any.
    """

    def __init__(self, settings: Settings, slots: Sequence[Slot], folder: Path | None = None) -> None:
        self._slots = slots
        health = CellsHealth(slots)
        super().__init__(settings, health, Families(self._families), self._installations, folder)
        self.health: CellsHealth = health

    async def _installations(self) -> Iterator[Metric]:
        """Return the metrics of the cells' databases."""
        opened = _opened(self._slots)
        found = await asyncio.gather(*(monitor.installation.families() for _, monitor in opened))
        return labelled("cell", zip((name for name, _ in opened), found, strict=True))

    def _families(self) -> Iterator[Metric]:
        """Return the metrics of this process by cell."""
        text = "1 if this process has opened the cell."
        yield gauge("booking_cell_open", text, "cell", {slot.name: bool(slot.opened) for slot in self._slots})
        found = ((name, monitor.metrics.registry.collect()) for name, monitor in _opened(self._slots))
        yield from labelled("cell", found, shared=_OF_PROCESS)
