"""Departures: what can be booked when, and with how many seats left.

Beside the verb stand the rules that booking shares with availability, so that the two can never disagree.
"""

from booking_core.departures.rules import closes_at, ends_at, seats_available, status, window
from booking_core.departures.service import find_available

__all__ = ["closes_at", "ends_at", "find_available", "seats_available", "status", "window"]
