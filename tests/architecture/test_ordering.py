"""The order of tests in a run of several processes, and the ids of their rows."""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from support.ordering import SLOW, is_slow, slow_first

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Test:
    __test__ = False
    nodeid: str


def collected(*modules: tuple[str, int]) -> list[Test]:
    return [Test(f"{module}::test_{number}") for module, count in modules for number in range(count)]


COLLECTED = collected(
    ("tests/booking_core/base/test_clock.py", 40),
    ("tests/system/test_crash.py", 6),
    ("tests/contract/test_lists.py", 30),
    ("tests/system/test_rush.py", 4),
    ("tests/examples/test_channel_manager.py", 5),
)


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_each_share_begins_with_slow_tests_and_no_test_is_lost(shares: int) -> None:
    ordered = slow_first(COLLECTED, shares)
    assert sorted(ordered, key=lambda each: each.nodeid) == sorted(COLLECTED, key=lambda each: each.nodeid)
    start = 0
    for share in range(min(shares, 3)):  # there are three slow modules
        assert is_slow(ordered[start])
        start += (len(ordered) - start) // (shares - share)


def test_the_tests_of_a_slow_module_stay_together() -> None:
    ordered = slow_first(COLLECTED, 3)
    modules = [module for module, _ in groupby(ordered, key=lambda each: each.nodeid.partition("::")[0])]
    slow = [module for module in modules if is_slow(Test(module))]
    assert len(slow) == len(set(slow)) == 3


@pytest.mark.parametrize("path", SLOW)
def test_each_slow_module_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("row", [object(), (object(),), {"a": [lambda: 0]}], ids=["object", "in tuple", "in dict"])
def test_a_row_of_a_table_that_pytest_would_number_is_refused(pytestconfig: pytest.Config, row: object) -> None:
    with pytest.raises(pytest.UsageError, match="the rows of row need ids"):
        pytestconfig.hook.pytest_make_parametrize_id(config=pytestconfig, val=row, argname="row")
