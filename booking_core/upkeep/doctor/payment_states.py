"""Checks of payment methods and of lost refunds, by comparing bookings, payments and the timeline."""

from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check

SQL = sql_files.load(__name__)

CHECKS = (
    Check("a booking's payment status is one that its method allows", SQL.text("payment_states")),
    Check(
        "a payment intent pays for one booking",
        SQL.text("shared_intents"),
        remedy="look up the payment at the gateway: it paid only one of the bookings",
    ),
    Check(
        "a payment intent agrees with the payment of its booking",
        SQL.text("intents_without_payment"),
        remedy="look up the payment at Stripe; if it succeeded, booking storefront pay {subject} --payment-intent PI",
    ),
    Check(
        "a payment intent pays for its own booking",
        SQL.text("intents_of_two_bookings"),
        remedy="look up the payment at Stripe: its metadata has the booking that it was made for",
    ),
    Check(
        "a payment is looked up at Stripe when it is due",
        SQL.text("overdue_checks"),
        remedy="check that a worker is running, and that it reaches Stripe",
        needs_worker=True,
    ),
    Check(
        "payments and refunds in the timeline exist",
        SQL.text("timeline_without_payment"),
        remedy="look up the payment at the gateway, then booking refunds record {subject} --amount A --note TEXT",
    ),
    Check(
        "a paid booking that was cancelled has the refund that the policy requires",
        SQL.text("lost_refunds"),
        remedy="look up at the gateway whether the payment was refunded, since no refund is queued,"
        " then booking refunds record {subject} --amount A --note TEXT",
    ),
)
