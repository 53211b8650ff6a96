"""Queues of jobs that are fair between owners: the organizations whose requests wait.

Each owner's jobs stay in their order, and the owners take turns. A job waits for at most one job, or one batch, of each
other owner before it, however many jobs they have. The queues are not locked; their executor does that.
"""

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar


class Place(NamedTuple):
    """The place of a job in a queue."""

    owner: Hashable = None
    """The organization, or the client as long as that is unknown."""
    group: Hashable = None
    """The lock that a job waits for. Jobs of a group run together."""


class Placed(Protocol):
    """A job with its place."""

    @property
    def place(self) -> Place: ...


JobT = TypeVar("JobT", bound=Placed)


class JobQueue(ABC, Generic[JobT]):
    """The jobs of an executor."""

    def __init__(self) -> None:
        self._length = 0
        """The number of waiting jobs."""
        self._held: dict[Hashable, int] = {}
        """The number of jobs of each owner, waiting and running."""

    def __len__(self) -> int:
        return self._length

    @property
    def owners(self) -> int:
        """Return the number of owners with jobs, waiting or running."""
        return len(self._held)

    @property
    def of_only_owner(self) -> int:
        """Return the number of all jobs, waiting and running, where one owner has all of them, and else 0."""
        return next(iter(self._held.values())) if len(self._held) == 1 else 0

    def count(self, owner: Hashable) -> int:
        """Return the number of the owner's jobs, waiting and running."""
        return self._held.get(owner, 0)

    def put(self, job: JobT) -> None:
        """Queue a job."""
        self._length += 1
        self._held[job.place.owner] = self.count(job.place.owner) + 1
        self._append(job)

    def take(self, batch: int, threads: int = 1) -> list[JobT]:
        """Return the next batch, empty when none is ready.

        Args:
            batch: the largest number of jobs.
            threads: that share the queue.
        """
        taken = self._take(batch, threads) if self.is_ready else []
        self._length -= len(taken)
        return taken

    def end(self, taken: Sequence[JobT], again: Sequence[JobT] = ()) -> None:
        """Note that a batch has ended.

        Args:
            again: jobs of the batch that return to their places.
        """
        for job in taken:
            _decrease(self._held, job.place.owner)
        for job in reversed(again):
            self._length += 1
            self._held[job.place.owner] = self.count(job.place.owner) + 1
            self._append_left(job)
        self._leave(taken[0].place)

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether `take` would return a batch."""

    @abstractmethod
    def _append(self, job: JobT) -> None: ...

    @abstractmethod
    def _append_left(self, job: JobT) -> None: ...

    @abstractmethod
    def _take(self, batch: int, threads: int) -> list[JobT]: ...

    def _leave(self, place: Place) -> None:
        """Note that the thread whose batch began with that place goes on to others."""


def _decrease(counts: dict[Hashable, int], key: Hashable) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


class MixedQueue(JobQueue[JobT]):
    """A queue whose batches have jobs of many owners, one of each in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: OrderedDict[Hashable, deque[JobT]] = OrderedDict()
        """The waiting jobs by owner, in the order of the owners' turns."""

    @property
    def is_ready(self) -> bool:
        return bool(self._jobs)

    def _append(self, job: JobT) -> None:
        jobs = self._jobs.get(job.place.owner)
        if jobs is None:
            self._jobs[job.place.owner] = deque((job,))
        else:
            jobs.append(job)

    def _append_left(self, job: JobT) -> None:
        """Queue a job before all others: its owner has the next turn."""
        self._jobs.setdefault(job.place.owner, deque()).appendleft(job)
        self._jobs.move_to_end(job.place.owner, last=False)

    def _take(self, batch: int, threads: int) -> list[JobT]:
        """Return a thread's share of the queue: no thread is idle while another one has all jobs."""
        return [self._next() for _ in range(min(batch, -(-self._length // threads)))]

    def _next(self) -> JobT:
        owner, jobs = next(iter(self._jobs.items()))
        job = jobs.popleft()
        if jobs:
            self._jobs.move_to_end(owner)
        else:
            del self._jobs[owner]
        return job


class OwnerQueue(JobQueue[JobT]):
    """A queue whose batches have jobs of one owner each, for work that may take long or wait for locks.

    An owner has at most `threads_per_owner` threads. A batch has jobs of one group, which one thread runs at a time.
    Jobs without a group may be run by several threads.
    """

    def __init__(self, threads_per_owner: int) -> None:
        super().__init__()
        self.threads: Counter[Hashable] = Counter()
        """The number of threads that run jobs of each owner."""
        self._threads_per_owner = threads_per_owner
        self._jobs: dict[Place, deque[JobT]] = {}
        """The waiting jobs."""
        self._ready: dict[Hashable, dict[Place, None]] = {}
        """The places of each owner with waiting jobs whose group does not run."""
        self._turns: dict[Hashable, None] = {}
        """The owners with a ready place and a thread left, in the order of their turns."""
        self._running: set[Place] = set()
        """The places whose group runs."""

    def __contains__(self, place: Place) -> bool:
        """Return whether jobs of the group wait or run."""
        return place in self._running or place in self._jobs

    @property
    def is_ready(self) -> bool:
        return bool(self._turns)

    def _append(self, job: JobT) -> None:
        self._jobs.setdefault(job.place, deque()).append(job)
        self._offer(job.place)

    def _append_left(self, job: JobT) -> None:
        self._jobs.setdefault(job.place, deque()).appendleft(job)

    def _take(self, batch: int, threads: int) -> list[JobT]:
        owner = next(iter(self._turns))
        place = next(iter(self._ready[owner]))
        self._withdraw(place)
        self.threads[owner] += 1
        jobs, sharing = self._jobs[place], 1
        if place.group is None:
            sharing = min(threads, self._threads_per_owner)
        else:
            self._running.add(place)
        taken = [jobs.popleft() for _ in range(min(batch, -(-len(jobs) // sharing)))]
        if not jobs:
            del self._jobs[place]
        self._offer(place)
        return taken

    def _leave(self, place: Place) -> None:
        _decrease(self.threads, place.owner)
        self._running.discard(place)
        self._offer(place)

    def _offer(self, place: Place) -> None:
        """Let threads take jobs of a place, if it has some that may run."""
        owner = place.owner
        if place in self._jobs and place not in self._running:
            self._ready.setdefault(owner, {})[place] = None
        if owner in self._ready and self.threads[owner] < self._threads_per_owner:
            self._turns.setdefault(owner)

    def _withdraw(self, place: Place) -> None:
        """Take a place from those that threads may take, and its owner's turn."""
        del self._turns[place.owner]
        del self._ready[place.owner][place]
        if not self._ready[place.owner]:
            del self._ready[place.owner]
