"""The common part of jobs that call another service: rows are leased, carried out and settled.

No transaction is open during a call. A process that dies leaves leases that expire; another worker then carries the
rows out once more.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from booking_core.db.engine import Database, Tx

T = TypeVar("T")
UnitT = TypeVar("UnitT")
"""Rows that are carried out with one call of `start`: a single refund, or a batch of mails."""
ResultT = TypeVar("ResultT")


class LeaseJob(ABC, Generic[UnitT, ResultT]):
    """A periodic job that keeps a limited number of units in flight.

    A unit that is slow delays no other: as soon as one has finished, its place is taken by the next one that is due.

    Args:
        in_flight_max: how many units may be in flight at once.
        turn_s: seconds after which a turn claims nothing more, so that a worker that is stopped ends soon.
    """

    def __init__(self, database: Database, *, in_flight_max: int, turn_s: float) -> None:
        self._database = database
        self._in_flight_max = in_flight_max
        self._turn_s = turn_s

    @abstractmethod
    async def claim(self, limit: int) -> tuple[list[UnitT], int]:
        """Lease at most `limit` units that are due; return them, and how many rows this processed or leased."""

    @abstractmethod
    def start(self, unit: UnitT) -> "asyncio.Future[ResultT]":
        """Start carrying out a unit, with no transaction open."""

    @abstractmethod
    async def settle(self, finished: "Sequence[asyncio.Future[ResultT]]") -> None:
        """Record the results of units that finished together, or handle their exceptions."""

    async def run_once(self) -> int:
        """Carry out what is due until nothing is left or the turn's time is over; return how many rows that were."""
        now = asyncio.get_running_loop().time
        ends_at = now() + self._turn_s
        in_flight: set[asyncio.Future[ResultT]] = set()
        try:
            total = count = await self._start_due(in_flight)
            while count or in_flight:
                await self._settle_next(in_flight)
                count = await self._start_due(in_flight) if now() < ends_at else 0
                total += count
            return total
        finally:
            if in_flight:  # The database is away: leases expire, and these units are carried out once more.
                await asyncio.wait(in_flight)

    async def close(self) -> None:
        """Release the job's resources."""

    async def _start_due(self, in_flight: "set[asyncio.Future[ResultT]]") -> int:
        units, count = await self.claim(self._in_flight_max - len(in_flight))
        in_flight.update(map(self.start, units))
        return count

    async def _settle_next(self, in_flight: "set[asyncio.Future[ResultT]]") -> None:
        if in_flight:
            finished, _ = await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
            in_flight -= finished
            await self.settle(list(finished))

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)
