"""Keeps the failure of one task from stopping the tasks after it."""

import contextlib
from collections.abc import Iterator

from booking_core.base.errors import is_outage


class FailureIsolation:
    """Holds back the failures of tasks that run one after the other.

    Run each task inside `isolated`, then call `raise_last`, so that the loop around the job still sees a failure.
    """

    def __init__(self) -> None:
        self._last: Exception | None = None

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Hold back what the body raises, unless the database is away: then every other task would fail too."""
        try:
            yield
        except Exception as error:
            if is_outage(error):
                raise
            self._last = error

    def raise_last(self) -> None:
        """Raise the last failure that was held back, if there is one."""
        if self._last:
            raise self._last
