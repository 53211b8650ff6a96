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
    organization_of_record,
    outcome_of,
    outcomes_of,
    present_due,
    present_record,
    present_refund,
)
from booking_core.payments.refunds import DUE, claim, payment_before, settle
from booking_core.payments.rules import (
    CANCELLATION,
    FIRST_RETRY_DELAY_S,
    ClaimedRefund,
    RefundOutcome,
    RefundResult,
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
from booking_core.payments.service import (
    drop,
    expect,
    receive,
    refundable,
    release,
    request_refund,
    return_late,
)
from booking_core.payments.store import PaymentRow, get, lock, next_refund_number, with_payment
