"""Checks of the guests of bookings: their seats and their customer."""

from typing import Any

import orjson

from booking_core.doctor.checks import RowScan
from booking_core.models.base import email_key


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
    # Every booking is read, with a look-up of its experience and of a move for each. Tiers are compared only if
    # they are those of the sale: neither the experience nor the booking was changed since.
    RowScan(
        "a booking takes the seats of its guests",
        """SELECT b.id, b.id, b.seats, b.guests, e.price_tiers
             FROM bookings b
             LEFT JOIN experiences e ON e.organization_id = b.organization_id AND e.id = b.experience_id
              AND e.updated_at + :skew < b.created_at AND b.updated_at IN (b.created_at, b.confirmed_at)
              AND NOT EXISTS (SELECT 1 FROM events v WHERE v.organization_id = b.organization_id
                                 AND v.resource_id = b.id AND v.type = 'booking.rescheduled')
            WHERE b.organization_id = :organization_id AND b.booking_number IS NOT NULL""",
        "b.id",
        validate_seats,
    ),
    # A look-up of its customer for each booking, and of the customer's changes where the addresses look different. A
    # customer that was changed since may have another address now; the guest's address is never changed.
    RowScan(
        "a booking's customer has the e-mail address of its guest",
        """SELECT b.id, b.id, b.customer_id, b.guest_email, u.email_key
             FROM bookings b
             JOIN customers u ON u.organization_id = b.organization_id AND u.id = b.customer_id
            WHERE b.organization_id = :organization_id AND b.booking_number IS NOT NULL
              AND b.guest_email IS NOT NULL AND lower(b.guest_email) <> u.email_key AND u.updated_at <= b.created_at
              AND NOT EXISTS (SELECT 1 FROM events v WHERE v.organization_id = b.organization_id
                                 AND v.resource_id = u.id AND v.type = 'customer.updated'
                                 AND v.created_at >= b.created_at)""",
        "b.id",
        validate_address,
    ),
)
