"""The health and the metrics of a process that serves several cells.

A cell that has failed leaves the process ready while another one works: a process that is taken out of service answers
for none. Metrics have the label `cell`, one value for each cell of the settings.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric

from booking_core.base.settings import Settings
from booking_server.cells.slots import Slot
from booking_server.monitoring.exposition import Families, labelled
from booking_server.monitoring.health import OK, Part, Report, Status
from booking_server.monitoring.metrics import gauge
from booking_server.monitoring.monitor import ProcessMonitor

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
        parts = {"process": OK}
        for slot in self._slots:
            if slot.opened:
                found = slot.opened.monitor.health.liveness().parts
                parts |= {f"{slot.name}.{name}": part for name, part in found.items() if name != "process"}
        return Report(parts)

    async def readiness(self) -> Report:
        """Report whether the process should get requests: while it is not stopping and one cell works."""
        process = Part(Status.FAILED, "the process is stopping") if self._is_stopping else OK
        reports = await asyncio.gather(*map(_readiness_of, self._slots))
        works = any(report.status is not Status.FAILED for report in reports)
        parts = {"process": process}
        for slot, report in zip(self._slots, reports, strict=True):
            parts |= {f"{slot.name}.{name}": _softened(part, works) for name, part in report.parts.items()}
        return Report(parts)


async def _readiness_of(slot: Slot) -> Report:
    if slot.opened is None:
        return Report({"cell": Part(Status.FAILED, f"cannot be opened: {type(slot.error).__name__}")})
    parts = (await slot.opened.monitor.health.readiness()).parts
    return Report({name: part for name, part in parts.items() if name != "process"})


def _softened(part: Part, works: bool) -> Part:
    return Part(Status.DEGRADED, part.message) if works and part.status is Status.FAILED else part


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
        opened = [(slot.name, slot.opened) for slot in self._slots if slot.opened]
        found = await asyncio.gather(*(each.monitor.installation.families() for _, each in opened))
        return labelled("cell", zip((name for name, _ in opened), found, strict=True))

    def _families(self) -> Iterator[Metric]:
        """Return the metrics of this process by cell."""
        text = "1 if this process has opened the cell."
        yield gauge("booking_cell_open", text, "cell", {slot.name: bool(slot.opened) for slot in self._slots})
        opened = [(slot.name, slot.opened) for slot in self._slots if slot.opened]
        found = ((name, each.monitor.metrics.registry.collect()) for name, each in opened)
        yield from labelled("cell", found, shared=_OF_PROCESS)
