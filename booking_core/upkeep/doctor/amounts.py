"""Checks of the amounts of gift cards, payments and refunds.

The payment of a booking that is paid on site or by invoice is the sum of the payments that staff recorded.
"""

from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check

SQL = sql_files.load(__name__)

CHECKS = (
    Check("a gift card's balance is its face value and its ledger", SQL.text("gift_card_balances")),
    Check("the amount taken from a gift card is the amount on the booking", SQL.text("gift_card_redemptions")),
    Check("a booking paid by a gift card has an entry in the card's ledger", SQL.text("redemptions_without_entry")),
    Check("a gift card is restored once, when the booking is cancelled", SQL.text("gift_card_restorations")),
    Check(
        "a card booking has one payment of its total, and no other booking has any", SQL.text("payments_of_bookings")
    ),
    Check(
        "payments recorded by staff add up to the amounts of the payment and the booking", SQL.text("recorded_payments")
    ),
    Check("a booking's payment status agrees with its payment", SQL.text("payment_statuses")),
    Check(
        "a refund belongs to a cancelled booking that was paid here, and is no more than was paid",
        SQL.text("refunds_of_bookings"),
    ),
    Check("a payment has released at least what was refunded for guests who left", SQL.text("released_payments")),
    Check("a payment's refunded amount agrees with its refund", SQL.text("refunded_amounts")),
    Check("a refund settled by hand has an amount, a time and a note", SQL.text("settled_refunds")),
    Check(
        "a refund is sent when it is due",
        SQL.text("overdue_refunds"),
        remedy="check that a worker is running, and BOOKING_STRIPE_API_KEY set",
        needs_worker=True,
    ),
)
