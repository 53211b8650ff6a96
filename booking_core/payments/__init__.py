"""Payments and refunds: card payments through the gateway, and payments that staff takes by hand.

The package `bookings` requests a refund in its own transaction. The worker claims it, calls the gateway while no
transaction is open, and settles the result. Staff records payments without a gateway, and settles or reopens refunds.
`outcome_of` returns the outcome of a cancellation for the money of its booking.
"""

from booking_core.models.sandbox import SandboxCard
from booking_core.payments.by_hand import (
    Recorded,
    record,
    record_elsewhere,
    record_refund,
    reopen_refund,
    settle_refund,
    void,
)
from booking_core.payments.money_outcomes import MoneyOutcome, MoneyState, full_refunds, outcome_of, outcomes_of
from booking_core.payments.recorded_payments import (
    Record,
    find_records,
    get_record,
    organization_of_record,
    present_record,
)
from booking_core.payments.refund_list import (
    OwnedRefund,
    Refund,
    RefundFilter,
    find_refund,
    find_refunds,
    get_refund,
    present_refund,
)
from booking_core.payments.refunds import DUE, claim, payment_before, settle
from booking_core.payments.rules import (
    CANCELLATION,
    FIRST_RETRY_DELAY_S,
    ClaimedRefund,
    RefundOutcome,
    RefundResult,
    RefundTerms,
    Release,
    Returned,
    from_gateway,
    gateway_unit,
    is_sandbox_intent,
    new_sandbox_checkout_intent,
    new_sandbox_intent,
    sandbox_card_of,
    to_gateway,
)
from booking_core.payments.rules import release as release_of
from booking_core.payments.service import drop, expect, receive, refundable, release, request_refund, return_late
from booking_core.payments.store import PaymentRow, get, lock, next_refund_number, with_payment
from booking_core.payments.unpaid_bookings import DueBooking, find_due, present_due
