"""Customers are anonymized when their last booking ended longer ago than guests' data is kept."""

from typing import Any

import pytest
from support.databases import databases
from support.world.guests import ADA, Guests
from support.world.world import DAY, NOON

from booking_core.base.clock import HOUR, MINUTE
from booking_core.customers import erasures
from booking_core.db import tables
from booking_core.models.bookings import GuestInput
from booking_core.records import retention_clock

KEPT_DAYS = 30
ENDS = NOON + 2 * DAY + 150 * MINUTE
"""The end of the departure that guests book."""


def expire(guests: Guests) -> list[str]:
    """Anonymize customers past their retention as the worker does, and return their ids."""
    world, work = guests.world, erasures.candidates(KEPT_DAYS)
    page = world.database.read(lambda tx: work.find(tx, world.org, after=None, limit=100))
    ids = [row.key for row in page.rows]
    expired = guests.act(lambda tx: erasures.expire(tx, world.org, ids, retention_days=KEPT_DAYS))
    return [str(customer_id) for customer_id in expired.finished]


@pytest.fixture(autouse=True)
def retention_clock_at_noon(guests: Guests) -> None:
    guests.act(lambda tx: retention_clock.advance(tx, None, 0.0))
    set_retention_clock(guests, NOON)


def set_retention_clock(guests: Guests, at: int) -> None:
    databases.run(guests.url, f"UPDATE retention_clock SET at = {at}")


def advance_to(guests: Guests, at: int) -> None:
    guests.world.clock.at = at
    set_retention_clock(guests, at)


def test_a_customer_is_anonymized_so_many_days_after_the_last_booking_ended(guests: Guests) -> None:
    guests.book("booked")
    customer_id = guests.customer_id()
    advance_to(guests, ENDS + KEPT_DAYS * DAY)
    assert expire(guests) == []
    advance_to(guests, ENDS + KEPT_DAYS * DAY + 1)
    assert expire(guests) == [customer_id]
    assert expire(guests) == [], "a customer is anonymized once"
    guests.erase()
    assert guests.traces() == set()
    assert guests.api.event_types().count("customer.updated") == 1


def test_retention_counts_from_the_moved_end_or_the_cancellation(guests: Guests) -> None:
    later = guests.world.departure(guests.experience, starts_at=NOON + 300 * DAY)
    cancelled = guests.book("cancelled", experience_date_id=later)
    guests.book("booked")
    guests.world.clock.at = NOON + DAY
    guests.api.cancel(cancelled["id"])
    advance_to(guests, ENDS + KEPT_DAYS * DAY + 1)
    guests.world.change(tables.departures, guests.departure, ends_at=ENDS + HOUR)
    assert expire(guests) == []
    guests.world.change(tables.departures, guests.departure, ends_at=ENDS)
    assert len(expire(guests)) == 1


def test_a_clock_that_leaps_forward_anonymizes_nothing(guests: Guests) -> None:
    guests.book("booked")
    guests.world.clock.at = NOON + 400 * DAY
    assert expire(guests) == []


def test_a_customer_who_is_owed_a_refund_is_kept(guests: Guests) -> None:
    booking_id = guests.ops.check_out(guests.departure, customer=GuestInput(**ADA))["id"]
    guests.ops.pay(booking_id)
    guests.ops.cancel(booking_id)
    advance_to(guests, NOON + 300 * DAY)
    assert expire(guests) == []


def test_a_customer_without_bookings_counts_from_the_last_change(guests: Guests) -> None:
    guests.post("customer", "/customers", ADA)
    guests.world.clock.at = NOON + DAY
    guests.ops.update_customer(guests.customer_id(), phone="+47 33")
    advance_to(guests, NOON + (KEPT_DAYS + 1) * DAY)
    assert expire(guests) == []
    advance_to(guests, NOON + (KEPT_DAYS + 1) * DAY + 1)
    assert len(expire(guests)) == 1


def test_customers_that_expire_together_publish_in_one_statement(guests: Guests, monkeypatch: Any) -> None:
    for number in range(5):
        guests.api.post("/customers", {"email": f"guest-{number}@example.com", "name": "Guest"})
    advance_to(guests, NOON + 300 * DAY)
    texts: list[str] = []
    monkeypatch.setattr(guests.world.database, "observer", texts.append)
    assert len(expire(guests)) == 5
    assert len([text for text in texts if text.startswith("UPDATE counters")]) == 1
