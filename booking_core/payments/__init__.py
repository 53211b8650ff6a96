"""Card money: payments that are expected and received, and the refunds that are owed.

The room `bookings` says in its own transaction what is owed; the worker claims it, asks the gateway while no
transaction is open, and settles what came of it.
"""

from booking_core.payments.refunds import claim, refer, settle
from booking_core.payments.rules import FIRST_WAIT_S, LONGEST_WAIT_S, Answered, Claimed, Outcome, owed
from booking_core.payments.service import drop, expect, owe_refund, receive, return_late

__all__ = [
    "FIRST_WAIT_S",
    "LONGEST_WAIT_S",
    "Answered",
    "Claimed",
    "Outcome",
    "claim",
    "drop",
    "expect",
    "owe_refund",
    "owed",
    "receive",
    "refer",
    "return_late",
    "settle",
]
