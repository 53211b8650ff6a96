"""The order in which a job serves organizations: each in turn, beginning behind the one that was served last."""

from collections.abc import Callable, Iterator
from itertools import islice

from booking_core.db.due import NIL_ID, Owner

EXAMINED_AT_ONCE = 500
"""Organizations that one statement examines."""

Examine = Callable[[str, int], list[Owner]]
"""Returns organizations behind an id, in the order of their ids."""


class Rotation:
    """Remembers, in this process, which organization was served last."""

    def __init__(self) -> None:
        self._last = NIL_ID

    def due(self, examine: Examine, limit: int) -> list[Owner]:
        """Return the organizations with due rows that come next, at most `limit`."""
        behind = list(islice(_walk(examine, self._last, None), limit))
        if self._last == NIL_ID:
            return behind
        return behind + list(islice(_walk(examine, NIL_ID, self._last), limit - len(behind)))

    def was_served(self, organization_id: str) -> None:
        """Continue behind this organization."""
        self._last = organization_id


def _walk(examine: Examine, after: str, last: str | None) -> Iterator[Owner]:
    """Yield the organizations with due rows behind `after`, up to `last`."""
    while page := examine(after, EXAMINED_AT_ONCE):
        for owner in page:
            if last is not None and owner.id > last:
                return
            if owner.is_due:
                yield owner
        if len(page) < EXAMINED_AT_ONCE:
            return
        after = page[-1].id
