"""Checks of seats, booking numbers, totals, and the status of bookings.

A booking without a number is a legacy row, to which other rules applied.
"""

from typing import Any

import orjson

from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check, RowScan

SQL = sql_files.load(__name__)


def validate_lines(row: list[Any]) -> str | None:
    """Compare a booking's lines with its subtotal and its currency."""
    number, guests, add_ons, subtotal, currency = row
    try:
        lines = [*orjson.loads(guests), *orjson.loads(add_ons)]
        amount = sum(line["count"] * line["unit_price"]["amount_minor"] for line in lines)
        currencies = {line["unit_price"]["currency"] for line in lines}
    except (ValueError, TypeError, KeyError) as error:
        return f"its lines cannot be read: {error}"
    if number is None and not lines:
        return None
    if amount != subtotal:
        return f"subtotal is {subtotal} minor {currency}, its lines come to {amount} minor {currency}"
    if currencies - {currency}:
        return f"is in {currency}, its lines in {', '.join(sorted(map(str, currencies)))}"
    return None


CHECKS = (
    Check(
        "seats taken are the seats of pending and confirmed bookings",
        SQL.text("seats_taken"),
        remedy="set seats_taken of the departure to the seats of its pending and confirmed bookings",
    ),
    Check("no departure is sold beyond its highest capacity", SQL.text("oversold_departures")),
    Check("a hold has seats, and ends after it began", SQL.text("holds")),
    Check("a hold that was booked has ended, and its booking exists and took no other", SQL.text("booked_holds")),
    Check(
        "live holds keep no more seats than were left for them",
        SQL.text("overbooked_holds"),
        remedy="release holds of the departure with `booking storefront release`",
    ),
    Check(
        "booking numbers are 1 to n without a gap, and n is the counter",
        SQL.text("booking_numbers"),
        remedy="never lower a counter: raise it to the highest number, and accept the gap",
    ),
    Check("every organization has its counters", SQL.text("missing_counters")),
    Check("booking numbers follow the order of the booking.created events", SQL.text("order_of_numbers")),
    Check("totals add up", SQL.text("totals")),
    RowScan("a subtotal is the sum of its lines, in one currency", SQL.text("lines"), "b.id", validate_lines),
    Check("a booking has the experience of its departure", SQL.text("experiences")),
    Check("a booking's status agrees with its timestamps", SQL.text("statuses")),
    Check(
        "a booking is last changed no earlier than it is created, confirmed and cancelled", SQL.text("order_of_changes")
    ),
    Check("a booking that is checked in or a no-show was confirmed, and is not both", SQL.text("attendance")),
    Check("no row is changed before it is created", SQL.text("early_changes")),
    Check(
        "a pending booking expires when its time to pay ends",
        SQL.text("overdue_bookings"),
        remedy="check that a worker is running",
        needs_worker=True,
    ),
)
