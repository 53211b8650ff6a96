"""Bookings: read, created (many at once through the API, or one by staff), confirmed, paid, moved, cancelled."""

from booking_core.bookings.cancelling import (
    CancelledBatch,
    abandon_due,
    cancel,
    cancel_departure,
    cancel_departure_batch,
    cancel_on,
    cancel_under_minimum,
)
from booking_core.bookings.confirming import confirm, pay
from booking_core.bookings.create import Create, Outcome, PutOff, create_many
from booking_core.bookings.departing import (
    WithBookings,
    count_live_bookings,
    find_departures,
    get_departure,
    live_bookings,
    manifest,
)
from booking_core.bookings.recording import record_payment, void_payment
from booking_core.bookings.rescheduling import reschedule
from booking_core.bookings.sale import Draft
from booking_core.bookings.searching import Search, as_number, refer, search
from booking_core.bookings.service import find, get, lock, owner
from booking_core.bookings.single import create, create_once, seats_left

__all__ = [
    "CancelledBatch",
    "Create",
    "Draft",
    "Outcome",
    "PutOff",
    "Search",
    "WithBookings",
    "abandon_due",
    "as_number",
    "cancel",
    "cancel_departure",
    "cancel_departure_batch",
    "cancel_on",
    "cancel_under_minimum",
    "confirm",
    "count_live_bookings",
    "create",
    "create_many",
    "create_once",
    "find",
    "find_departures",
    "get",
    "get_departure",
    "live_bookings",
    "lock",
    "manifest",
    "owner",
    "pay",
    "record_payment",
    "refer",
    "reschedule",
    "search",
    "seats_left",
    "void_payment",
]
