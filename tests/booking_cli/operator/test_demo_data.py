"""The example catalogues of the demo are valid and have departures on any day."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from booking_cli.operator import demo_data
from booking_cli.operator.demo_organizations import ORGANIZATIONS, DemoOrganization
from booking_core.base.clock import SECOND
from booking_core.catalogue import catalog

DAYS = tuple(date(2026, 11, 25) + timedelta(days=days) for days in (0, 40, 200, 360, 400, 1600))


@pytest.mark.parametrize("today", DAYS, ids=str)
@pytest.mark.parametrize("demo", ORGANIZATIONS, ids=[each.slug for each in ORGANIZATIONS])
def test_each_of_the_next_six_months_has_departures(demo: DemoOrganization, today: date) -> None:
    plan = catalog.validate(demo_data.shifted(json.loads(demo.catalogue.read_text()), today))
    starts = [datetime.fromtimestamp(each.given["starts_at"] / SECOND, UTC).date() for each in plan.departures]
    months = [sum(30 * month <= (start - today).days < 30 * (month + 1) for start in starts) for month in range(6)]
    assert min(months) >= 20
    assert months[0] >= 60
