"""Checks of the guests of bookings: their seats, their customer, and the erasure of their data."""

from typing import Any

import orjson

from booking_core.db import sql_files
from booking_core.models.base import email_key
from booking_core.upkeep.doctor.checks import Check, RowScan

SQL = sql_files.load(__name__)


def validate_seats(row: list[Any]) -> str | None:
    """Compare the seats of a booking with its guests, if the price tiers of the sale are known."""
    seats, guests, price_tiers = row
    try:
        lines = [(line["tier_id"], line["count"]) for line in orjson.loads(guests)]
        per_unit = {tier["id"]: tier["seats_per_unit"] for tier in orjson.loads(price_tiers or "[]")}
    except (ValueError, TypeError, KeyError):
        return None  # another check reads the lines
    if not seats and sum(count for _, count in lines):
        return "takes no seats, but has guests"
    if price_tiers is None or any(tier not in per_unit for tier, _ in lines):
        return None
    needed = sum(count * per_unit[tier] for tier, count in lines)
    return None if needed == seats else f"takes {seats} seats, its guests need {needed}"


def validate_address(row: list[Any]) -> str | None:
    """Compare the customer's e-mail address with the guest's. The message does not show the addresses."""
    customer_id, guest_email, key = row
    return None if email_key(guest_email) == key else f"customer {customer_id} has another e-mail address"


CHECKS = (
    RowScan("a booking takes the seats of its guests", SQL.text("seats"), "b.id", validate_seats),
    RowScan(
        "a booking's customer has the e-mail address of its guest", SQL.text("addresses"), "b.id", validate_address
    ),
    Check("the creation of a booking is in the timeline of its customer", SQL.text("bookings_without_timeline")),
    Check(
        "the data of an anonymized customer is replaced by the worker",
        SQL.text("unfinished_erasures"),
        remedy="check that a worker is running; booking customers anonymize {subject} --org {org} says how far it is",
        needs_worker=True,
    ),
    Check("a booking of an anonymized customer has no personal data", SQL.text("unerased_bookings")),
    Check("an anonymized customer has an erasure", SQL.text("customers_without_erasure")),
)
