"""Checkouts with a payment at Stripe: a booking that waits, its payment intent, and what Stripe says of it later.

`service` has the operations of the API, `applying` records what a webhook or a look-up has said, `checking` is the
worker's, `reviewing` is for staff. No function of this package calls Stripe: the server does, while no transaction is
open.
"""

from booking_core.checkouts.applying import Applied, apply
from booking_core.checkouts.checking import DUE, PaymentCheck, claim, settle
from booking_core.checkouts.reviewing import find_intents, resolve
from booking_core.checkouts.rules import (
    SEALED_FOR,
    DisputeUpdate,
    IntentState,
    IntentStatus,
    IntentUpdate,
    RefundUpdate,
    Update,
)
from booking_core.checkouts.service import (
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
    "prepare",
    "present",
    "record_intent",
    "refusal",
    "refuse_intent",
    "resolve",
    "settle",
]
