"""Fills a PostgreSQL database with the rows that the lists read, and with organizations that sell nothing."""

import json
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from support.world import rows
from support.world.world import World, organization_row

from bench.isolation import bulk
from bench.isolation.bulk import Sql
from booking_core.base.clock import system_clock
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

_DAY = 86_400_000_000
_PRICE = {"amount_minor": 89000, "currency": "NOK"}
_TIERS = json.dumps([{"id": "adult", "name": "Adult", "price": _PRICE, "seats_per_unit": 1}])
_GUESTS = json.dumps([{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": _PRICE}])
_ON_SITE = {"payment_method": "pay_on_site", "payment_source": "on_site", "payment_status": "unpaid", "source": "admin"}


def fill(world: World, *, bookings: int = BOOKINGS) -> None:
    """Insert experiences, departures in `DAYS` days, customers and bookings of two adults."""
    url, now = world.database.url.render_as_string(hide_password=False), world.clock()
    experiences = [world.experience(price_tiers=_TIERS, add_ons="[]") for _ in range(EXPERIENCES)]
    departures, customers, count = bulk.new_ids(url), bulk.new_ids(url), DAYS * DEPARTURES_PER_DAY
    departure = rows.departure(world.org, departures, _one_of(experiences, "n"), now) | {
        "starts_at": Sql(
            f"{midnight(FIRST_DAY)} + {_DAY // 4} + (n - 1) / {DEPARTURES_PER_DAY} * {_DAY}"
            f" + (n - 1) % {DEPARTURES_PER_DAY} * {_DAY // 96}"
        )
    }
    bulk.insert(url, tables.departures, count, departure | {"seats_total": 20, "seats_ceiling": 20, "seats_taken": 8})
    email = Sql("'filled' || n || '@example.com'")
    customer = rows.customer(world.org, "", now) | {"id": customers, "email": email, "email_key": email}
    bulk.insert(url, tables.customers, CUSTOMERS, customer)
    of_booking: dict[str, Any] = {
        "booking_number": Sql("n"),
        "customer_id": _numbered(customers, f"1 + n % {CUSTOMERS}"),
        "guest_phone": "+4790000000",
        "guests": _GUESTS,
        "seats": 2,
        "subtotal_minor": 178000,
        "total_minor": 178000,
        "note": "Arrives by the early ferry, needs a large life vest.",
    }
    place = f"(1 + n % {count})"
    bulk.bookings(
        url, world, _numbered(departures, place), _one_of(experiences, place), bookings, **(of_booking | _ON_SITE)
    )


def _numbered(ids: Sql, number: str) -> Sql:
    """Return the expression of another row's id of a series."""
    return Sql(ids.text.replace("to_hex(n)", f"to_hex({number})"))


def _one_of(ids: list[str], number: str) -> Sql:
    return Sql(f"('{{{','.join(ids)}}}'::uuid[])[1 + {number} % {len(ids)}]")


def fill_quiet(url: str, count: int) -> None:
    """Insert organizations with an experience and a departure, which sell nothing."""
    now, owners = system_clock(), bulk.new_ids(url)
    slug = {"slug": Sql("'quiet-' || n")}
    bulk.insert(url, tables.organizations, count, organization_row(now, id=owners) | slug)
    bulk.insert(url, tables.counters, count, {"organization_id": owners})
    bulk.insert(url, tables.experiences, count, rows.experience("", "", now) | slug | _of(owners, "id"))
    departure = rows.departure("", "", "", now + _DAY) | _of(owners, "id", "experience_id")
    bulk.insert(url, tables.departures, count, departure)


def _of(owners: Sql, *columns: str) -> dict[str, Sql]:
    """Return the columns of rows that have the id of their organization: ids are unique in each organization."""
    return dict.fromkeys(("organization_id", *columns), owners)


def midnight(day: date) -> int:
    """Return the start of a day of the organization, in microseconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)).timestamp()) * 1_000_000
