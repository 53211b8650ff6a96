"""Queues of jobs that are fair between owners: the organizations whose requests wait.

Each owner's jobs stay in their order, and the owners take turns, so that a job waits for at most one job of each other
owner before it, however many those have. The queues are not locked; their executor does that.
"""

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar


class Place(NamedTuple):
    """The place of a job in a queue."""

    owner: Hashable = None
    """The organization, or the client as long as that is unknown. None for jobs that are not told apart."""
    group: Hashable = None
    """Jobs that wait for the same lock, and can be run together. None for a job that is run alone."""


class Placed(Protocol):
    """A job with its place."""

    @property
    def place(self) -> Place: ...


JobT = TypeVar("JobT", bound=Placed)


class JobQueue(Protocol[JobT]):
    """The waiting jobs of an executor."""

    def __len__(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """Return True if `take` would return a batch."""
        ...

    def put(self, job: JobT) -> None: ...

    def take(self, batch: int, *, first: Sequence[JobT] = (), threads: int = 1) -> list[JobT]:
        """Return the next batch, empty when none is ready.

        Args:
            batch: the largest number of jobs.
            first: jobs that were taken before and not done. The batch begins with them.
            threads: that share the queue.
        """
        ...

    def put_back(self, jobs: Sequence[JobT]) -> None:
        """Return jobs that were taken and not begun to their places, before `leave`."""
        ...

    def done(self, jobs: Sequence[JobT]) -> None:
        """Note that jobs which were taken have ended."""
        ...

    def leave(self, job: JobT) -> None:
        """Note that the thread which ran the job goes on to others."""
        ...

    @property
    def owners(self) -> int:
        """Return the number of owners with jobs, waiting or running."""
        ...

    @property
    def of_only_owner(self) -> int:
        """Return the number of all jobs, waiting and running, where one owner has all of them, and else 0."""
        ...

    def count(self, owner: Hashable) -> int:
        """Return the number of the owner's jobs, waiting and running."""
        ...

    def ahead_of(self, owner: Hashable) -> int:
        """Return the largest number of jobs that would be taken before a new one of the owner."""
        ...


class _ByOwner(Generic[JobT]):
    """Counts of the jobs of each owner."""

    def __init__(self) -> None:
        self._length = 0
        self._held: dict[Hashable, int] = {}
        """The jobs of each owner, waiting and running."""

    def __len__(self) -> int:
        return self._length

    @property
    def owners(self) -> int:
        return len(self._held)

    @property
    def of_only_owner(self) -> int:
        return next(iter(self._held.values())) if len(self._held) == 1 else 0

    def count(self, owner: Hashable) -> int:
        return self._held.get(owner, 0)

    def done(self, jobs: Sequence[JobT]) -> None:
        for job in jobs:
            _decrease(self._held, job.place.owner)

    def _hold(self, owner: Hashable) -> None:
        """Count a job that is put into the queue."""
        self._length += 1
        self._held[owner] = self._held.get(owner, 0) + 1

    def _ahead(self, own: int, owners: int) -> int:
        """Return the largest number of jobs ahead of a new one, when its owner has so many and so many owners wait."""
        others = owners - (own > 0)
        return min(self._length, own + others * (own + 1))


def _decrease(counts: dict[Hashable, int], key: Hashable) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


class _InOrder(_ByOwner[JobT]):
    """The waiting jobs of each owner, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[Hashable, deque[JobT]] = {}

    def ahead_of(self, owner: Hashable) -> int:
        return self._ahead(len(self._jobs.get(owner, ())), len(self._jobs))

    def put_back(self, jobs: Sequence[JobT]) -> None:
        self._length += len(jobs)
        for job in reversed(jobs):
            self._jobs.setdefault(job.place.owner, deque()).appendleft(job)


class MixedQueue(_InOrder[JobT]):
    """A queue whose batches have jobs of many owners, one of each in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: deque[Hashable] = deque()

    @property
    def is_ready(self) -> bool:
        return bool(self._turns)

    def put(self, job: JobT) -> None:
        owner = job.place.owner
        self._hold(owner)
        jobs = self._jobs.get(owner)
        if jobs is None:
            self._jobs[owner] = deque((job,))
            self._turns.append(owner)
        else:
            jobs.append(job)

    def take(self, batch: int, *, first: Sequence[JobT] = (), threads: int = 1) -> list[JobT]:
        """Return the next batch: with several threads this one's share, so that none is idle while one has all jobs."""
        taken = list(first)
        if not taken and self._turns:
            taken.append(self._next())
        share = min(batch - len(taken), -(-self._length // threads))
        return taken + [self._next() for _ in range(share)]

    def _next(self) -> JobT:
        owner = self._turns.popleft()
        jobs = self._jobs[owner]
        self._length -= 1
        job = jobs.popleft()
        if jobs:
            self._turns.append(owner)
        else:
            del self._jobs[owner]
        return job

    def put_back(self, jobs: Sequence[JobT]) -> None:
        """Return jobs to their places: their owners have the next turns, in the order of the jobs."""
        super().put_back(jobs)
        owners = dict.fromkeys(job.place.owner for job in jobs)
        self._turns = deque((*owners, *(each for each in self._turns if each not in owners)))

    def leave(self, job: JobT) -> None:
        """Do nothing: threads are not counted."""


class OwnerQueue(_InOrder[JobT]):
    """A queue whose batches have jobs of one owner each, of whom at most `threads_per_owner` run at a time."""

    def __init__(self, threads_per_owner: int) -> None:
        super().__init__()
        self._threads_per_owner = threads_per_owner
        self._turns: dict[Hashable, None] = {}
        """The owners that have a waiting job and a thread left, in the order of their turns."""
        self._threads: dict[Hashable, int] = {}

    @property
    def is_ready(self) -> bool:
        return bool(self._turns)

    def put(self, job: JobT) -> None:
        owner = job.place.owner
        self._hold(owner)
        jobs = self._jobs.get(owner)
        if jobs is None:
            self._jobs[owner] = deque((job,))
            self._give_turn(owner)
        else:
            jobs.append(job)

    def take(self, batch: int, *, first: Sequence[JobT] = (), threads: int = 1) -> list[JobT]:
        """Return the next batch: of an owner's jobs the share of one of its threads."""
        taken = list(first)
        if not taken and not self._turns:
            return []
        owner = taken[0].place.owner if taken else self._begin()
        jobs = self._jobs.get(owner)
        if not jobs:
            return taken
        share = min(batch - len(taken), -(-len(jobs) // min(threads, self._threads_per_owner)))
        taken += [jobs.popleft() for _ in range(share)]
        self._length -= share
        if jobs:
            self._give_turn(owner)
        else:
            del self._jobs[owner]
            self._turns.pop(owner, None)
        return taken

    def _begin(self) -> Hashable:
        """Return the owner whose turn it is, with one more thread."""
        owner = next(iter(self._turns))
        del self._turns[owner]
        self._threads[owner] = self._threads.get(owner, 0) + 1
        return owner

    def _give_turn(self, owner: Hashable) -> None:
        """Add the owner behind the others, unless it has its turn, no waiting job, or all its threads."""
        if owner in self._jobs and self._threads.get(owner, 0) < self._threads_per_owner:
            self._turns.setdefault(owner)

    def leave(self, job: JobT) -> None:
        _decrease(self._threads, job.place.owner)
        self._give_turn(job.place.owner)


class SeparateQueue(_ByOwner[JobT]):
    """A queue whose batches have jobs of one group each, for work that may wait for locks.

    A group is run by one thread at a time, and the groups of one owner by at most `threads_per_owner`: an owner whose
    rows are locked cannot hold all threads.
    """

    def __init__(self, threads_per_owner: int) -> None:
        super().__init__()
        self._threads_per_owner = threads_per_owner
        self._jobs: dict[Hashable, deque[JobT]] = {}
        """The waiting jobs by group."""
        self._ready: dict[Hashable, deque[Hashable]] = {}
        """The groups of each owner that wait and do not run."""
        self._turns: deque[Hashable] = deque()
        """The owners that have a ready group and a thread left."""
        self._waiting: dict[Hashable, int] = {}
        """The number of waiting jobs of each owner."""
        self._running: set[Hashable] = set()
        self._threads: Counter[Hashable] = Counter()

    def __contains__(self, group: Hashable) -> bool:
        """Return True if jobs of the group wait or run."""
        return group in self._running or group in self._jobs

    @property
    def is_ready(self) -> bool:
        return bool(self._turns)

    def threads_of(self, owner: Hashable) -> int:
        """Return the number of threads that run jobs of the owner."""
        return self._threads[owner]

    def ahead_of(self, owner: Hashable) -> int:
        return self._ahead(self._waiting.get(owner, 0), len(self._waiting))

    def put(self, job: JobT) -> None:
        owner, group = job.place.owner, _group_of(job)
        self._hold(owner)
        self._waiting[owner] = self._waiting.get(owner, 0) + 1
        if group in self._jobs:
            self._jobs[group].append(job)
            return
        self._jobs[group] = deque([job])
        if group not in self._running:
            self._make_ready(owner, group)

    def _make_ready(self, owner: Hashable, group: Hashable) -> None:
        groups = self._ready.setdefault(owner, deque())
        groups.append(group)
        if len(groups) == 1 and self._threads[owner] < self._threads_per_owner:
            self._turns.append(owner)

    def take(self, batch: int, *, first: Sequence[JobT] = (), threads: int = 1) -> list[JobT]:
        taken = list(first)
        if not taken and not self._turns:
            return []
        group = _group_of(taken[0]) if taken else self._begin(self._turns.popleft())
        jobs = self._jobs.get(group, deque())
        while jobs and len(taken) < batch:
            taken.append(jobs.popleft())
            self._length -= 1
            _decrease(self._waiting, taken[-1].place.owner)
        if not jobs:
            self._jobs.pop(group, None)
        return taken

    def _begin(self, owner: Hashable) -> Hashable:
        """Return the owner's next group, which runs now."""
        groups = self._ready[owner]
        group = groups.popleft()
        self._running.add(group)
        self._threads[owner] += 1
        if not groups:
            del self._ready[owner]
        elif self._threads[owner] < self._threads_per_owner:
            self._turns.append(owner)
        return group

    def put_back(self, jobs: Sequence[JobT]) -> None:
        self._length += len(jobs)
        for job in reversed(jobs):
            owner = job.place.owner
            self._jobs.setdefault(_group_of(job), deque()).appendleft(job)
            self._waiting[owner] = self._waiting.get(owner, 0) + 1

    def leave(self, job: JobT) -> None:
        owner, group = job.place.owner, _group_of(job)
        was_capped = self._threads[owner] == self._threads_per_owner
        _decrease(self._threads, owner)
        self._running.discard(group)
        if was_capped and owner in self._ready:
            self._turns.append(owner)
        if group in self._jobs:
            self._make_ready(owner, group)


def _group_of(job: Placed) -> Hashable:
    return id(job) if job.place.group is None else job.place.group
