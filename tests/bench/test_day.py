"""The day of the bench has the requests of its assumptions."""

from collections import Counter

import pytest

from bench import day
from bench.load import Result
from bench.service import Shop

SHOPS = [Shop(str(number), f"key-{number}", ("departure",)) for number in range(100)]


def sent() -> Counter[tuple[str, str]]:
    """Count the requests of all parts of the day by key and method."""
    requests = [request for number in range(len(day.SHARES)) for request in day.part_requests(SHOPS, number)]
    return Counter((request.headers["Authorization"], request.method) for request in requests)


def test_the_day_is_a_hundredth_of_the_busiest_of_a_year() -> None:
    counts = Counter(method for _, method in sent().elements())
    assert counts["POST"] == pytest.approx(10_000 * 1_000 / 365 * 3 / 100, abs=len(day.SHARES))
    assert counts["GET"] == 30 * counts["POST"]


def test_a_quarter_of_the_organizations_is_only_read() -> None:
    counts = sent()
    readers = [shop for shop in SHOPS if not counts[shop.authorization["Authorization"], "POST"]]
    assert set(SHOPS[::4]) <= set(readers)
    assert all(counts[shop.authorization["Authorization"], "GET"] for shop in SHOPS)


def test_the_first_organization_in_season_sells_most() -> None:
    counts = sent()
    sales = {shop.id: counts[shop.authorization["Authorization"], "POST"] for shop in SHOPS}
    assert max(sales, key=lambda shop: sales[shop]) == "1"


def test_the_whole_day_has_the_rate_of_its_busiest_part() -> None:
    parts = [Result(rate, 1, 1, 1, 3, {"200": 2, "503": 1}, 0.1) for rate in (10, 30, 20)]
    whole = day.whole(parts)
    assert (whole.throughput, whole.total, whole.statuses) == (30, 9, {"200": 6, "503": 3})
