"""Checkouts with a payment at Stripe: a booking that waits, its payment intent, and later updates from Stripe.

`service` has the operations of the API and of staff, and is Stripe for sandboxes. `applying` records updates that come
by a webhook or by a look-up of the worker. No function of this package calls Stripe: the server does, while no
transaction is open.
"""

from booking_core.bookings.checkouts.applying import DUE, Applied, PaymentCheck, apply, claim, settle
from booking_core.bookings.checkouts.rules import (
    SEALED_FOR,
    DisputeUpdate,
    IntentState,
    IntentStatus,
    IntentUpdate,
    RefundUpdate,
    StripeUpdate,
)
from booking_core.bookings.checkouts.service import (
    Prepared,
    create,
    expired,
    find_intents,
    get,
    pay_in_sandbox,
    prepare,
    present,
    record_intent,
    refusal,
    refuse_intent,
    resolve,
    sandbox_card_of,
)
