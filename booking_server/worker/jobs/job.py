"""The base of periodic jobs: work that becomes due by itself, done in turns."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property

POLL_S = 2.0
"""A commit wakes every job at once. Only rows that become due by the time alone wait for the poll: a retry of a refund,
an expired checkout. Each poll is a query of every job, so it decides most of the cost of an idle service."""


class Job(ABC):
    """A periodic job. Each runs in a loop of its own, so a slow mail server delays no refund."""

    name: str

    @property
    def poll_s(self) -> float:
        """Return the seconds between two looks for work while nothing is committed."""
        return POLL_S

    @cached_property
    def results(self) -> Counter[str]:
        """The results of the job by their outcome, for metrics."""
        return Counter()

    @abstractmethod
    async def run_turn(self, stop: asyncio.Event) -> int:
        """Process a share of what is due, and return how many rows that were; 0 when nothing is due.

        When `stop` is set, the turn ends after the batch in hand.
        """

    async def run_once(self) -> int:
        """Run turns until nothing is due, and return how many rows were processed."""
        stop, total = asyncio.Event(), 0
        while count := await self.run_turn(stop):
            total += count
        return total

    async def close(self) -> None:  # noqa: B027 - most jobs hold no resources
        """Release the job's resources."""
