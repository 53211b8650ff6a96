"""The interpreter while a service runs."""

import sys
from collections.abc import Iterator

import pytest

from booking_server import interpreter


@pytest.fixture(autouse=True)
def restored_interval() -> Iterator[None]:
    """Restore the interval, since the service of another test may run in this process."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_a_thread_that_waits_for_the_interpreter_gets_it_sooner() -> None:
    sys.setswitchinterval(0.005)
    with interpreter.frequent_switches():
        assert sys.getswitchinterval() == interpreter.SWITCH_S < 0.005
    assert sys.getswitchinterval() == 0.005
