"""How often Python looks for cycles."""

import gc
from collections.abc import Iterator

import pytest

from booking_server import gc_tuning


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Another test's service may run in this process."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_service_looks_more_seldom_and_not_at_what_was_loaded() -> None:
    gc.set_threshold(701, 11, 12)
    loaded = ["loaded"]
    with gc_tuning.seldom():
        assert gc.get_threshold() == (20_000, 11, 12)
        assert not any(each is loaded for each in gc.get_objects())  # frozen, so never looked at
    assert gc.get_threshold() == (701, 11, 12)
    assert any(each is loaded for each in gc.get_objects())
