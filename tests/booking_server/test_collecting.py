"""How often Python looks for cycles."""

import gc

from booking_server import collecting


def test_the_collector_is_as_it_was_when_the_service_has_stopped() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with collecting.seldom():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
