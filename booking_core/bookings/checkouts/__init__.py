"""Checkouts with a payment at Stripe: a booking that waits, its payment intent, and what Stripe says of it later.

`service` has the operations of the API, `applying` records what a webhook or a look-up has said, `checking` is for the
worker, `reviewing` for staff, `sandbox_payments` is Stripe for sandboxes. No function of this package calls Stripe: the
server does, while no transaction is open.
"""

from booking_core.bookings.checkouts.applying import Applied, apply
from booking_core.bookings.checkouts.checking import DUE, PaymentCheck, claim, settle
from booking_core.bookings.checkouts.reviewing import find_intents, resolve
from booking_core.bookings.checkouts.rules import (
    SEALED_FOR,
    DisputeUpdate,
    IntentState,
    IntentStatus,
    IntentUpdate,
    RefundUpdate,
    Update,
)
from booking_core.bookings.checkouts.sandbox_payments import card_of as sandbox_card_of
from booking_core.bookings.checkouts.sandbox_payments import pay as pay_in_sandbox
from booking_core.bookings.checkouts.service import (
    Prepared,
    create,
    expired,
    get,
    prepare,
    present,
    record_intent,
    refusal,
    refuse_intent,
)

__all__ = [
    "DUE",
    "SEALED_FOR",
    "Applied",
    "DisputeUpdate",
    "IntentState",
    "IntentStatus",
    "IntentUpdate",
    "PaymentCheck",
    "Prepared",
    "RefundUpdate",
    "Update",
    "apply",
    "claim",
    "create",
    "expired",
    "find_intents",
    "get",
    "pay_in_sandbox",
    "prepare",
    "present",
    "record_intent",
    "refusal",
    "refuse_intent",
    "resolve",
    "sandbox_card_of",
    "settle",
]
