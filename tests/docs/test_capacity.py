"""The page about capacity has the figures that follow from the measured costs."""

import pytest

from scripts import capacity

COSTS = {
    "postgresql": {
        name: {"server_us": 1000, "database_us": 100, "wal_bytes": 10_000, "row_bytes": 5_000}
        for name in (capacity.BOOKING, capacity.DELIVERY, capacity.POLL, *capacity.MIX)
    }
}


def test_the_tables_of_the_page_are_those_of_the_costs() -> None:
    page = capacity.PAGE.read_text(encoding="utf-8")
    assert capacity.written(page) == page


def test_the_needs_of_a_year_are_rates_times_costs() -> None:
    bookings = 100_000 * 1_000 / 365 * 3 * 0.08 / 3600
    rates = capacity.rates(100_000)
    assert rates[capacity.BOOKING] == pytest.approx(bookings)
    assert sum(rates[name] for name in capacity.MIX) == pytest.approx(30 * bookings)
    assert (rates[capacity.DELIVERY], rates[capacity.POLL]) == pytest.approx((2 * bookings, 1_000))
    busy = (33 * bookings + 1_000) / 1_000
    assert capacity.cores(COSTS, 100_000, "server_us") == pytest.approx(busy)
    assert capacity.cores(COSTS, 100_000, "database_us") == pytest.approx(busy / 10)
    assert capacity.processes(COSTS, 100_000) == 4
    assert capacity.processes(COSTS, 10) == 2


def test_the_disk_of_a_year_has_a_month_of_deliveries() -> None:
    assert capacity.disk(COSTS, 1) == pytest.approx(1_000 * 5_000 * (1 + 2 * 30 / 365) + 2_000)
    assert capacity.wal(COSTS, 1) == pytest.approx(1_000 / 365 * 3 * 30_000)


@pytest.mark.parametrize(
    ("count", "text"), [(10, ""), (2_000, "2.0 kB"), (840_000, "840 kB"), (1_234_000_000, "1.2 GB")]
)
def test_a_size_has_its_largest_unit(count: int, text: str) -> None:
    assert capacity.size(count) == text
