"""Fills an organization with the rows that the lists read."""

import json
from datetime import date, datetime
from zoneinfo import ZoneInfo

from support.world.world import World

from booking_core.db import sql_files

ZONE = "Europe/Oslo"
EXPERIENCES = 25
FIRST_DAY = date(2031, 6, 1)
DAYS = 92
DEPARTURES_PER_DAY = 25
"""They start every quarter of an hour from 06:00 UTC."""
BOOKINGS = 20_000
"""A page costs the same for any number."""
CUSTOMERS = 2_000
PART = 1_000
"""The bookings of one statement, which has a time limit."""

_DAY = 86_400_000_000
_SQL = sql_files.load(__name__)
_PRICE = {"amount_minor": 89000, "currency": "NOK"}
_TIERS = json.dumps([{"id": "adult", "name": "Adult", "price": _PRICE, "seats_per_unit": 1}])
_GUESTS = json.dumps([{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": _PRICE}])
_NOTE = "Arrives by the early ferry, needs a large life vest."


def fill(world: World, *, bookings: int = BOOKINGS) -> None:
    """Insert experiences, departures in `DAYS` days, customers and bookings."""
    for _ in range(EXPERIENCES):
        world.experience(price_tiers=_TIERS, add_ons="[]")
    own, now = {"organization": world.org}, world.clock()
    with world.database.writing() as tx:
        for day in range(DAYS):
            first = midnight(FIRST_DAY) + day * _DAY + _DAY // 4
            slots = {"first": first, "step": _DAY // 96, "count": DEPARTURES_PER_DAY, "now": now}
            tx.run(_SQL.statement("departures"), **own, **slots)
        tx.run(_SQL.statement("customers"), **own, count=CUSTOMERS, now=now)
        tx.run(_SQL.statement("counters"), **own, count=bookings)
        values = own | {"start": now - bookings * 1_000_000, "guests": _GUESTS, "note": _NOTE}
        for first in range(1, bookings + 1, PART):
            tx.run(_SQL.statement("bookings"), **values, first=first, last=min(first + PART - 1, bookings))


def midnight(day: date) -> int:
    """Return the start of a day of the organization, in microseconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)).timestamp()) * 1_000_000
