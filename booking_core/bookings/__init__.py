"""Bookings: read, created (many at once through the API, or one by staff), confirmed, paid, moved, cancelled."""

from booking_core.bookings.cancelling import (
    abandon_due,
    cancel,
    cancel_departure,
    cancel_on,
    cancel_under_minimum,
)
from booking_core.bookings.confirming import confirm, pay
from booking_core.bookings.create import Create, Outcome, PutOff, create_many
from booking_core.bookings.recording import record_payment, void_payment
from booking_core.bookings.rescheduling import reschedule
from booking_core.bookings.sale import Draft
from booking_core.bookings.service import find, get, lock, owner, refer
from booking_core.bookings.single import create, seats_left

__all__ = [
    "Create",
    "Draft",
    "Outcome",
    "PutOff",
    "abandon_due",
    "cancel",
    "cancel_departure",
    "cancel_on",
    "cancel_under_minimum",
    "confirm",
    "create",
    "create_many",
    "find",
    "get",
    "lock",
    "owner",
    "pay",
    "record_payment",
    "refer",
    "reschedule",
    "seats_left",
    "void_payment",
]
