"""Counts of what this process has committed, by organization, for metrics.

The organizations that come first are counted apart, up to a bound; the others are counted together, so that the number
of series does not grow with the number of organizations.
"""

import threading
from collections import Counter
from collections.abc import Iterable

ORGANIZATIONS_MAX = 100
OTHER = "(other)"
"""Stands for all organizations that are not counted apart. No organization has such a slug."""

Tally = tuple[str, str, int]
"""A name, the slug of an organization, and the amount to add."""


class Tallies:
    """Counters by name and organization, which threads share."""

    def __init__(self, organizations_max: int = ORGANIZATIONS_MAX) -> None:
        self._max = organizations_max
        self._lock = threading.Lock()
        self._organizations: set[str] = set()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, tallies: Iterable[Tally]) -> None:
        """Add the amounts of a transaction that was committed."""
        with self._lock:
            for name, organization, amount in tallies:
                self._counts[name, self._label(organization)] += amount

    def read(self) -> dict[tuple[str, str], int]:
        """Return the counts by name and organization."""
        with self._lock:
            return dict(self._counts)

    def _label(self, organization: str) -> str:
        if organization not in self._organizations:
            if len(self._organizations) >= self._max:
                return OTHER
            self._organizations.add(organization)
        return organization
