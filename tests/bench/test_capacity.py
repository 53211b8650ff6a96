"""The measurement of the hot path beside many organizations."""

from collections.abc import Callable

from bench.capacity import measure


def test_organizations_are_filled_and_booked(new_database_url: Callable[[str], str]) -> None:
    found = measure(new_database_url("postgresql"), 40, 0.2)
    assert found.organizations == 40
    assert found.bookings_per_s > 0
    assert found.bytes_each > 0
    assert found.bytes_of_booking > 0
