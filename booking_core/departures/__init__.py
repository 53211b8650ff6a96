"""Departures: what can be booked when, and with how many seats left; closed, reopened, given other seats by staff.

Beside the verbs stand the rules that booking shares with availability, so that the two can never disagree. Cancelling
one belongs to `bookings`, since its bookings go with it.
"""

from booking_core.departures.rules import DepartureRow, closes_at, ends_at, seats_available, status, window
from booking_core.departures.service import close, find_available, get, lock, owners, render, reopen, set_seats

__all__ = [
    "DepartureRow",
    "close",
    "closes_at",
    "ends_at",
    "find_available",
    "get",
    "lock",
    "owners",
    "render",
    "reopen",
    "seats_available",
    "set_seats",
    "status",
    "window",
]
