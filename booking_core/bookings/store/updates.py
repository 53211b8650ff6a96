"""Updates of bookings and of their departures, which a transaction collects."""

from booking_core.db.tables import bookings, departures
from booking_core.db.unit_of_work import Update
from booking_core.records.departure_touches import ANNOUNCE

TAKE_SEATS = Update("take_seats", departures, sets=("updated_at",), adds=("seats_taken",), merges=(ANNOUNCE,))
"""A negative number gives seats back. The check of the table refuses more seats than the ceiling."""
CANCEL = Update(
    "cancel_booking",
    bookings,
    sets=("status", "payment_status", "cancelled_at", "cancel_reason", "cancel_note", "expires_at", "updated_at"),
)
CONFIRM = Update(
    "confirm_booking",
    bookings,
    sets=("status", "payment_status", "confirmed_at", "expires_at", "updated_at"),
)
PAY = Update("pay_booking", bookings, sets=("payment_status", "updated_at"))
RECORD = Update(
    "record_payment", bookings, sets=("payment_status", "invoice_due", "updated_at"), adds=("recorded_minor",)
)
MOVE = Update(
    "move_booking",
    bookings,
    sets=("departure_id", "experience_id", "manage_expires_at", "checked_in_at", "no_show_at", "updated_at"),
)
CHANGE_PARTY = Update(
    "change_party",
    bookings,
    sets=(
        *("guests", "add_ons", "seats", "subtotal_minor", "discount_minor", "gift_card_minor", "total_minor"),
        *("payment_method", "payment_source", "payment_status", "invoice_due", "on_site_fee_minor", "updated_at"),
    ),
    adds=("recorded_minor",),
)
ATTEND = Update("attend_booking", bookings, sets=("checked_in_at", "no_show_at", "updated_at"))
CANCEL_DEPARTURE = Update(
    "cancel_departure",
    departures,
    sets=("status", "cancelling", "updated_at"),
    adds=("seats_taken",),
    merges=(ANNOUNCE,),
)
"""Includes the seats of the bookings that are cancelled with it, because a transaction writes a row once."""
CHECK_MINIMUM = Update("check_minimum", departures, sets=("minimum_checked_at",))
