"""The common part of jobs that call another service: rows are leased, carried out and settled.

No transaction is open during a call. A process that dies leaves leases that expire; another worker then carries the
rows out once more. Organizations are served in turn, and each has a limited share of the calls in flight: a service
that hangs for one organization leaves calls for the others.
"""

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from booking_core.due_work.sweep import Sweep
from booking_server.worker.jobs.periodic import Job

log = logging.getLogger("booking.jobs")

POLL_S = 0.1
"""Seconds between two looks for due rows while calls are in flight: a call that hangs delays another organization no
longer than an idle job does."""

RowT = TypeVar("RowT")
ResultT = TypeVar("ResultT")


class LeaseJob(Job, Generic[RowT, ResultT]):
    """A periodic job that keeps a limited number of units in flight: a single row, or a few rows of one organization.

    A unit that is slow delays no other: when one has finished, the next due unit takes its place.

    Args:
        claims: leases due rows.
        in_flight_max: how many units may be in flight at once.
        of_one_max: how many of them may belong to one organization.
        unit_rows: rows of a unit at most.
    """

    def __init__(self, claims: Sweep[RowT], *, in_flight_max: int, of_one_max: int, unit_rows: int = 1) -> None:
        self._claims = claims
        self._in_flight_max = in_flight_max
        self._of_one_max = of_one_max
        self._unit_rows = unit_rows
        self._in_flight: dict[asyncio.Future[ResultT], str] = {}
        """The organization of each unit."""

    @abstractmethod
    async def carry_out(self, unit: Sequence[RowT]) -> ResultT:
        """Carry out a unit, with no transaction open."""

    @abstractmethod
    async def settle(self, finished: "Sequence[asyncio.Future[ResultT]]") -> None:
        """Record the results of units that finished together, or handle their exceptions."""

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Settle finished units and lease due rows; return the number of rows leased or processed.

        While nothing is due it waits for the units in flight, and looks for due rows now and then.
        """
        while not stop.is_set():
            await self._settle_finished()
            count = await self.start_due(stop)
            if count or not self._in_flight:
                return count
            await self._wait(stop)
        return 0

    async def close(self) -> None:
        """Wait for the units in flight and record their results."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)
            await self._settle_finished()

    async def start_due(self, stop: asyncio.Event) -> int:
        """Lease due rows of the organizations in turn while there are free places; return how many rows were leased."""
        total = 0
        while not stop.is_set() and (free := self._in_flight_max - len(self._in_flight)):
            organizations = self._with_places(await self._claims.organizations(2 * self._in_flight_max))[:free]
            share = max(1, free // max(1, len(organizations)))
            count = sum([await self._start_some(organization_id, share) for organization_id in organizations])
            if not count:
                break
            total += count
        return total

    def _with_places(self, organization_ids: Iterable[str]) -> list[str]:
        in_flight = Counter(self._in_flight.values())
        return [owner for owner in organization_ids if in_flight[owner] < self._of_one_max]

    async def _start_some(self, organization_id: str, units: int) -> int:
        in_flight = sum(owner == organization_id for owner in self._in_flight.values())
        limit = min(units, self._of_one_max - in_flight) * self._unit_rows
        batch = await self._claims.run_batch(organization_id, limit=limit)
        for start in range(0, len(batch.results), self._unit_rows):
            unit = batch.results[start : start + self._unit_rows]
            self._in_flight[asyncio.ensure_future(self.carry_out(unit))] = organization_id
        return batch.count

    async def _settle_finished(self) -> None:
        finished = [future for future in self._in_flight if future.done()]
        for future in finished:
            del self._in_flight[future]
        if finished:
            await self.settle(finished)

    async def _wait(self, stop: asyncio.Event) -> None:
        """Wait until a unit has finished or `stop` is set, and no longer than until the next look for due rows."""
        stopped = asyncio.ensure_future(stop.wait())
        waiting: set[asyncio.Future[Any]] = {stopped, *self._in_flight}
        try:
            await asyncio.wait(waiting, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
