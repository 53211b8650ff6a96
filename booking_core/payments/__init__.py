"""Payments and refunds: card money that is expected, received and returned, and money that staff takes by hand.

The room `bookings` says in its own transaction what is owed; the worker claims it, asks the gateway while no
transaction is open, and settles what came of it. What no gateway can do staff does: it records payments, and settles
or reopens refunds. `outcome_of` says what happens to the money of a cancelled booking.
"""

from booking_core.payments.by_hand import record, record_refund, reopen_refund, settle_refund, void
from booking_core.payments.listing import (
    DueBooking,
    MoneyOutcome,
    MoneyState,
    OwnedRefund,
    Record,
    Refund,
    RefundFilter,
    find_due,
    find_records,
    find_refund,
    find_refunds,
    full_refunds,
    get_record,
    get_refund,
    outcome_of,
    outcomes_of,
    present_due,
    present_record,
    present_refund,
    record_owner,
)
from booking_core.payments.refunds import claim, refer, settle
from booking_core.payments.rules import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    Answered,
    Claimed,
    Outcome,
    by_policy,
    gateway_unit,
    owed,
)
from booking_core.payments.service import drop, expect, lock, owe_by_hand, owe_refund, receive, return_late
from booking_core.payments.store import PaymentRow

__all__ = [
    "FIRST_WAIT_S",
    "LONGEST_WAIT_S",
    "Answered",
    "Claimed",
    "DueBooking",
    "MoneyOutcome",
    "MoneyState",
    "Outcome",
    "OwnedRefund",
    "PaymentRow",
    "Record",
    "Refund",
    "RefundFilter",
    "by_policy",
    "claim",
    "drop",
    "expect",
    "find_due",
    "find_records",
    "find_refund",
    "find_refunds",
    "full_refunds",
    "gateway_unit",
    "get_record",
    "get_refund",
    "lock",
    "outcome_of",
    "outcomes_of",
    "owe_by_hand",
    "owe_refund",
    "owed",
    "present_due",
    "present_record",
    "present_refund",
    "receive",
    "record",
    "record_owner",
    "record_refund",
    "refer",
    "reopen_refund",
    "return_late",
    "settle",
    "settle_refund",
    "void",
]
