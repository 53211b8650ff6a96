"""The order of tests in a run of several processes: slow modules first.

pytest-xdist gives each process an equal share of the collected tests, in order, and lets a process without tests take
some from the end of another's share. A slow module at the end of a share would keep one process busy while the others
are idle.
"""

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

SLOW = (
    "tests/architecture/test_new_resource.py",
    "tests/architecture/test_packages.py",
    "tests/booking_cli/commands/webhooks/test_listen.py",
    "tests/booking_cli/framework/test_secret_files.py",
    "tests/booking_core/db/test_plans.py",
    "tests/booking_sdk/test_attempts.py",
    "tests/booking_server/reference",
    "tests/docs",
    "tests/examples",
    "tests/system",
)
"""Modules and folders with tests that take several seconds each."""


class Item(Protocol):
    """A collected test."""

    @property
    def nodeid(self) -> str: ...


ItemT = TypeVar("ItemT", bound=Item)


def is_slow(item: Item) -> bool:
    """Return whether the test belongs to a slow module."""
    return _is_slow(_module(item))


@cache
def _is_slow(module: str) -> bool:
    return any(PurePosixPath(module).is_relative_to(slow) for slow in SLOW)


def slow_first(items: Sequence[ItemT], shares: int) -> list[ItemT]:
    """Sort the tests: each of the equal shares begins with its part of the slow modules.

    Adjacent tests of one module stay adjacent, since they may share an expensive fixture.
    """
    slow: list[list[ItemT]] = [[] for _ in range(shares)]
    for module in _runs([item for item in items if is_slow(item)]):
        min(slow, key=len).extend(module)
    others = [item for item in items if not is_slow(item)]
    ordered: list[ItemT] = []
    for share, first in enumerate(slow):
        size = (len(items) - len(ordered)) // (shares - share)
        count = max(0, size - len(first))
        ordered += first + others[:count]
        others = others[count:]
    return ordered + others


def _runs(items: Sequence[ItemT]) -> list[list[ItemT]]:
    """Return the tests in runs of one module, the longest run first."""
    runs = [list(run) for _, run in groupby(items, key=_module)]
    return sorted(runs, key=len, reverse=True)


def _module(item: Item) -> str:
    return item.nodeid.partition("::")[0]
