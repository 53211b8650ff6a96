"""An estimate of how long a job will wait for a thread, from the batches that were run lately."""

import threading
from collections.abc import Callable
from math import ceil

_WEIGHT = 0.25
"""The weight of the latest batch in the mean duration."""


class Load:
    """The duration of the latest batches of an executor, and the batches that run now.

    Args:
        threads: that run batches side by side.
        batch: the largest number of jobs in one batch.
        clock: returns monotonic seconds.
    """

    def __init__(self, threads: int, batch: int, clock: Callable[[], float]) -> None:
        self._threads = threads
        self._batch = batch
        self._mean_jobs: float = batch
        """The number of jobs for which a batch has time."""
        self._clock = clock
        self._mean_s = 0.0
        self._lag_s = 0.0
        self._begun_s: dict[int, float] = {}
        """When the batch of each busy thread began."""

    def begin(self) -> None:
        """Note that the present thread begins a batch."""
        self._begun_s[threading.get_ident()] = self._clock()

    def end(self, jobs_max: int | None = None) -> None:
        """Note that the batch of the present thread has ended.

        Args:
            jobs_max: the jobs for which it had time, when it could not begin all of them.
        """
        begun_s = self._begun_s.pop(threading.get_ident())
        self._mean_s += _WEIGHT * (self._clock() - begun_s - self._mean_s)
        self._mean_jobs += _WEIGHT * ((jobs_max or self._batch) - self._mean_jobs)

    @property
    def running(self) -> int:
        """Return the number of batches that run now."""
        return len(self._begun_s)

    def slow(self, seconds: float) -> int:
        """Return the number of batches that have run for so long."""
        since_s = self._clock() - seconds
        return sum(begun_s <= since_s for begun_s in list(self._begun_s.values()))

    def note_lag(self, seconds: float) -> None:
        """Note how long the event loop took to come to a call from a thread."""
        self._lag_s = seconds

    def wait_s(self, ahead: int) -> float:
        """Return about how long a job will wait with so many jobs ahead of it.

        The event loop's lag counts twice: a request waited as long before it was read, and its answer will.

        Batches are counted and not jobs, since a full batch takes little longer than a small one: the estimate is low
        rather than high. A batch that takes longer than the mean is expected to take as long again, as is usual when
        the database does not answer.
        """
        begun_s = list(self._begun_s.values())
        overdue_s = 0.0
        if len(begun_s) == self._threads:
            overdue_s = max(0.0, self._clock() - max(begun_s) - self._mean_s)
        return 2 * self._lag_s + overdue_s + ceil(ahead / self._mean_jobs) * self._mean_s / self._threads
