"""Bookings: read, created (many at once), cancelled."""

from booking_core.bookings.create import Create, create_many
from booking_core.bookings.service import cancel, find, get

__all__ = ["Create", "cancel", "create_many", "find", "get"]
