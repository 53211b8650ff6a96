"""Booking Service: the wire models, the domain logic and the storage that every other distribution stands on.

Rooms are entered by their door, `from booking_core import bookings`; nothing is imported here, so that a reader of
the wire models alone never pays for a database driver.
"""
