"""A queue that takes the jobs of its tenants in turn."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

JobT = TypeVar("JobT")

_WEIGHT = 0.25
"""The weight of the latest job in the average of its tenant."""


@dataclass(slots=True)
class _Tenant(Generic[JobT]):
    """A tenant with jobs that wait or run."""

    waiting: deque[JobT] = field(default_factory=deque)
    running: int = 0
    average_s: float = 0.0


class FairQueue(Generic[JobT]):
    """Jobs by tenant: those of one tenant in the order of their arrival, the tenants in turn.

    A tenant with `per_tenant` running jobs is passed over until one of them ends. Not thread-safe.
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

    def waiting(self, name: str) -> int:
        """Return the number of the tenant's waiting jobs."""
        tenant = self._tenants.get(name)
        return len(tenant.waiting) if tenant else 0

    def expected_wait_s(self, name: str, lanes: int) -> float:
        """Return the seconds that the tenant's next job will wait, by the average duration of its latest jobs."""
        tenant = self._tenants.get(name)
        return len(tenant.waiting) * tenant.average_s / min(lanes, self._per_tenant) if tenant else 0.0

    def put(self, name: str, job: JobT) -> None:
        """Add a job behind the tenant's others."""
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant()
        tenant.waiting.append(job)
        self._size += 1
        if len(tenant.waiting) == 1 and tenant.running < self._per_tenant:
            self._in_turn.append(name)

    def take(self, most: int) -> list[tuple[str, JobT]]:
        """Remove at most so many jobs, one of each tenant in turn, and return them with their tenants."""
        taken: list[tuple[str, JobT]] = []
        while len(taken) < most and self._in_turn:
            name = self._in_turn.popleft()
            tenant = self._tenants[name]
            taken.append((name, tenant.waiting.popleft()))
            tenant.running += 1
            self._size -= 1
            if tenant.waiting and tenant.running < self._per_tenant:
                self._in_turn.append(name)
        return taken

    def finish(self, name: str, seconds: float) -> None:
        """Note that a job that was taken has ended after so many seconds."""
        tenant = self._tenants[name]
        tenant.average_s += (seconds - tenant.average_s) * (_WEIGHT if tenant.average_s else 1.0)
        tenant.running -= 1
        if tenant.waiting and tenant.running == self._per_tenant - 1:
            self._in_turn.append(name)
        elif not tenant.waiting and not tenant.running:
            del self._tenants[name]
