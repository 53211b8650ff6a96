"""The bench fills a database with rows that the service itself could have written."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.api import Api
from support.world import SECRET, FixedClock, World, make_world

from bench import fill
from bench.filling import FIRST_DAY, SEATS_LEFT, Amounts
from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_server.app import create_app

AMOUNTS = Amounts(bookings=60, departures=7)

pytestmark = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)


@pytest.fixture
def filled(fresh_database_url: str) -> Iterator[World]:
    database = Database(fresh_database_url)
    world = make_world(database, FixedClock(system_clock()))
    fill.fill(fresh_database_url, world.organization.slug, AMOUNTS)
    yield world
    database.close()


@pytest.fixture
def filled_api(filled: World, fresh_database_url: str) -> Iterator[Api]:
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, rate_limit=None)
    with TestClient(create_app(settings, database=filled.database)) as client:
        yield Api(client, filled)


def everything(api: Api, path: str) -> list[dict[str, Any]]:
    """Return a whole list, oldest first."""
    page = api.get(path, order="asc", limit=100).json()
    found = list(page["data"])
    while page["has_more"]:
        page = api.get(path, order="asc", limit=100, starting_after=page["next_cursor"]).json()
        found += page["data"]
    return found


def test_the_doctor_finds_nothing_in_a_filled_organization(filled: World) -> None:
    assert filled.examine() == []


def test_what_the_events_tell_is_what_the_list_shows(filled_api: Api) -> None:
    bookings = everything(filled_api, "/bookings")
    events = everything(filled_api, "/events")
    assert [booking["booking_number"] for booking in bookings] == list(range(1, AMOUNTS.bookings + 1))
    assert [event["sequence"] for event in events] == list(range(1, AMOUNTS.events + 1))
    shown = {booking["id"]: booking for booking in bookings}
    assert [event["data"]["object"] for event in events] == [shown[event["resource_id"]] for event in events]
    assert [event["type"] for event in events[:2]] == ["booking.created", "booking.confirmed"]


def test_every_departure_lies_in_the_window_and_has_seats_left(filled_api: Api) -> None:
    window = {"from": str(FIRST_DAY), "to": str(FIRST_DAY.replace(month=FIRST_DAY.month + 3))}
    departures = filled_api.get("/availability", **window).json()["data"]
    assert len(departures) == AMOUNTS.departures
    assert {departure["seats_available"] for departure in departures} == {SEATS_LEFT}


def test_an_organization_may_have_no_events(filled: World, fresh_database_url: str) -> None:
    other = make_world(filled.database, filled.clock)
    amounts = Amounts(bookings=10, departures=2, has_events=False)
    fill.fill(fresh_database_url, other.organization.slug, amounts)
    assert len(other.rows(tables.bookings)) == 10
    assert other.rows(tables.events) == []


def test_an_organization_that_sold_already_is_refused(filled: World, fresh_database_url: str) -> None:
    with pytest.raises(SystemExit, match="has bookings already"):
        fill.fill(fresh_database_url, filled.organization.slug, AMOUNTS)
    assert len(filled.rows(tables.bookings)) == AMOUNTS.bookings
