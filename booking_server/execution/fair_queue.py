"""A queue that takes the jobs of its tenants in turn."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

JobT = TypeVar("JobT")

_WEIGHT = 0.25
"""The weight of the latest batch in the average of its tenant."""


@dataclass(slots=True)
class _Tenant(Generic[JobT]):
    """A tenant with jobs that wait or run."""

    waiting: deque[JobT] = field(default_factory=deque)
    running: int = 0
    average_s: float = 0.0


class FairQueue(Generic[JobT]):
    """Jobs by tenant: those of one tenant in the order of their arrival, the tenants in turn. Not thread-safe.

    A tenant is passed over while `per_tenant` of its batches run.
    """

    def __init__(self, per_tenant: int) -> None:
        self._per_tenant = per_tenant
        self._tenants: dict[str, _Tenant[JobT]] = {}
        self._in_turn: deque[str] = deque()
        """Each tenant with a waiting job that may run."""
        self._size = 0

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return self._size

    @property
    def has_runnable(self) -> bool:
        """Return True if a waiting job may run."""
        return bool(self._in_turn)

    def ahead(self, name: str, lanes: int) -> tuple[int, float]:
        """Return the number of the tenant's waiting jobs, and the seconds that its next job is expected to wait."""
        tenant = self._tenants.get(name)
        if tenant is None or not tenant.waiting:
            return 0, 0.0
        waiting = len(tenant.waiting)
        return waiting, waiting * tenant.average_s / min(lanes, self._per_tenant)

    def put(self, name: str, job: JobT, *, first: bool = False) -> None:
        """Add a job behind the tenant's others, or before them."""
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant()
        if first:
            tenant.waiting.appendleft(job)
        else:
            tenant.waiting.append(job)
        self._size += 1
        if len(tenant.waiting) == 1 and tenant.running < self._per_tenant:
            self._in_turn.append(name)

    def take_of_all(self, most: int) -> list[tuple[str, JobT]]:
        """Remove at most so many jobs, one of each tenant in turn, and return them with their tenants."""
        taken: list[tuple[str, JobT]] = []
        while len(taken) < most and self._in_turn:
            taken += self.take_of_one(1, 1)
        return taken

    def take_of_one(self, most: int, lanes: int) -> list[tuple[str, JobT]]:
        """Remove at most so many jobs of the tenant whose turn it is, its part for one of several lanes."""
        if not self._in_turn:
            return []
        name = self._in_turn.popleft()
        tenant = self._tenants[name]
        part = -(-len(tenant.waiting) // lanes)
        taken = [(name, tenant.waiting.popleft()) for _ in range(min(most, part))]
        tenant.running += 1
        self._size -= len(taken)
        if tenant.waiting and tenant.running < self._per_tenant:
            self._in_turn.append(name)
        return taken

    def finish(self, names: Iterable[str], seconds: float) -> None:
        """Note that jobs have ended, each after so many seconds."""
        for name in names:
            tenant = self._tenants[name]
            tenant.average_s += (seconds - tenant.average_s) * (_WEIGHT if tenant.average_s else 1.0)
            tenant.running -= 1
            if tenant.waiting:
                if tenant.running == self._per_tenant - 1:
                    self._in_turn.append(name)
            elif not tenant.running:
                del self._tenants[name]
