"""Booking Service: the models of the API, the domain logic and the storage, for every other distribution.

A domain package is used through its public functions: `from booking_core import bookings`. Nothing is imported here: a
program that needs only the models imports no database driver.
"""
