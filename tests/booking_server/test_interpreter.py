"""The interpreter while a service runs."""

import gc
import sys
from collections.abc import Iterator

import pytest

from booking_server import interpreter


@pytest.fixture(autouse=True)
def restored_settings() -> Iterator[None]:
    """Restore the settings, since the service of another test may run in this process."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


def test_a_thread_that_waits_for_the_interpreter_gets_it_sooner() -> None:
    sys.setswitchinterval(0.005)
    with interpreter.frequent_switches():
        assert sys.getswitchinterval() == interpreter.SWITCH_S < 0.005
    assert sys.getswitchinterval() == 0.005


def test_collections_are_rarer_and_skip_objects_loaded_before() -> None:
    gc.set_threshold(701, 11, 12)
    loaded = ["loaded"]
    with interpreter.reduced_collection():
        assert gc.get_threshold() == (20_000, 11, 12)
        assert not any(candidate is loaded for candidate in gc.get_objects())  # frozen, so never searched
    assert gc.get_threshold() == (701, 11, 12)
    assert any(candidate is loaded for candidate in gc.get_objects())
