"""Garbage collection while a service runs."""

import gc
from collections.abc import Iterator

import pytest

from booking_server import gc_tuning


@pytest.fixture(autouse=True)
def restored_threshold() -> Iterator[None]:
    """Restore the threshold, since the service of another test may run in this process."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rarer_and_skip_objects_loaded_before() -> None:
    gc.set_threshold(701, 11, 12)
    loaded = ["loaded"]
    with gc_tuning.reduced_collection():
        assert gc.get_threshold() == (20_000, 11, 12)
        assert not any(each is loaded for each in gc.get_objects())  # frozen, so never searched
    assert gc.get_threshold() == (701, 11, 12)
    assert any(each is loaded for each in gc.get_objects())
