"""Fills a PostgreSQL database with the rows that the lists read, and with organizations that sell nothing."""

import json
from collections.abc import Iterator
from datetime import date, datetime
from zoneinfo import ZoneInfo

from support.databases import databases
from support.world import rows
from support.world.rows import Row
from support.world.world import ADULT, DAY, HOUR, World, organization_row

from booking_core.base.clock import system_clock
from booking_core.base.tokens import new_id
from booking_core.db import tables

ZONE = "Europe/Oslo"
EXPERIENCES = 25
FIRST_DAY = date(2031, 6, 1)
DAYS = 92
DEPARTURES_PER_DAY = 25
"""They start every quarter of an hour from 06:00 UTC."""
BOOKINGS = 20_000
"""A page costs the same for any number."""
CUSTOMERS = 2_000

_SEATS = {"seats_total": 20, "seats_ceiling": 20, "seats_taken": 8}
_GUESTS = [{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": ADULT["price"]}]
_BOOKING = {
    "source": "admin",
    "guest_phone": "+4790000000",
    "guests": json.dumps(_GUESTS),
    "seats": 2,
    "subtotal_minor": 178000,
    "total_minor": 178000,
    "note": "Arrives by the early ferry, needs a large life vest.",
    "payment_method": "pay_on_site",
    "payment_source": "on_site",
    "payment_status": "unpaid",
}


def fill(world: World, *, bookings: int = BOOKINGS) -> None:
    """Insert experiences, departures in `DAYS` days, customers and bookings of two adults."""
    url = world.database.url.render_as_string(hide_password=False)
    experiences = [world.experience(price_tiers=json.dumps([ADULT]), add_ons="[]") for _ in range(EXPERIENCES)]
    departures = list(_departures(world, experiences))
    customers = [rows.customer(world.org, new_id(), world.clock()) for _ in range(CUSTOMERS)]
    databases.fill(url, tables.departures, departures)
    databases.fill(url, tables.customers, customers)
    databases.fill(url, tables.bookings, _bookings(world, departures, customers, bookings))


def _departures(world: World, experiences: list[str]) -> Iterator[Row]:
    for number in range(DAYS * DEPARTURES_PER_DAY):
        day, place = divmod(number, DEPARTURES_PER_DAY)
        starts_at = midnight(FIRST_DAY) + day * DAY + 6 * HOUR + place * HOUR // 4
        experience = experiences[number % EXPERIENCES]
        yield rows.departure(world.org, new_id(), experience, world.clock()) | _SEATS | {"starts_at": starts_at}


def _bookings(world: World, departures: list[Row], customers: list[Row], count: int) -> Iterator[Row]:
    """Yield bookings, a second apart, the newest now."""
    for number in range(count):
        departure, customer = departures[number % len(departures)], customers[number % len(customers)]
        created_at = world.clock() - (count - number) * 1_000_000
        numbered = {"booking_number": number + 1, "customer_id": customer["id"]}
        row = rows.booking(world.org, new_id(), departure["id"], departure["experience_id"], created_at)
        yield row | _BOOKING | numbered


def fill_quiet(url: str, count: int) -> None:
    """Insert organizations with an experience and a departure, which sell nothing."""
    now = system_clock()
    organizations = [organization_row(now) for _ in range(count)]
    ids = [row["id"] for row in organizations]
    databases.fill(url, tables.organizations, organizations)
    databases.fill(url, tables.counters, ({"organization_id": row_id} for row_id in ids))
    # Ids are unique in each organization.
    databases.fill(url, tables.experiences, (rows.experience(row_id, row_id, now) for row_id in ids))
    databases.fill(url, tables.departures, (rows.departure(row_id, row_id, row_id, now + DAY) for row_id in ids))


def midnight(day: date) -> int:
    """Return the start of a day of the organization, in microseconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)).timestamp()) * 1_000_000
