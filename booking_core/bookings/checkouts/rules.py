"""Rules of payment intents: their states, their reports, and the times of look-ups at Stripe. No storage, no clock."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from booking_core.base.clock import HOUR, MINUTE, SECOND

SEALED_FOR = "client_secret"

# States ----------------------------------------------------------------------------------------------------------


class IntentStatus(StrEnum):
    """`payment_intents.status`."""

    REQUESTED = "requested"
    """Stripe has not answered yet: no guest can pay."""
    OPEN = "open"
    """The guest can pay."""
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"
    """At Stripe: nobody can pay any more."""
    REFUSED = "refused"
    """Stripe does not make an intent of this amount or currency."""
    NEEDS_REVIEW = "needs_review"
    """Stripe took money that does not fit the booking."""
    RESOLVED = "resolved"
    """Staff has decided about that money, or it was refunded."""


UNPAID = frozenset({IntentStatus.REQUESTED, IntentStatus.OPEN})
STAFF_NOTICES_MAX = 20
"""Mails to staff about one payment: what Stripe says of it more often is only recorded."""


class ReviewReason(StrEnum):
    """`payment_intents.last_error` of an intent that needs a review."""

    AMOUNT_DIFFERS = "amount_differs"
    CURRENCY_DIFFERS = "currency_differs"
    SECOND_INTENT = "second_intent"
    """Another intent than the booking's was paid."""
    REFUND_DIFFERS = "refund_differs"
    """Stripe has refunded an amount that no booking can have."""


BESIDES_PAYMENT = frozenset({ReviewReason.SECOND_INTENT, ReviewReason.REFUND_DIFFERS})
"""The reasons that no report about the booking's own payment changes."""


LOST = "lost"
"""The status at Stripe of a dispute whose money the bank has kept."""


class IntentRow(NamedTuple):
    """A row of `payment_intents`."""

    booking_id: str
    intent_id: str | None
    client_secret_sealed: str | None
    status: str
    last_error: str | None
    amount_minor: int
    currency: str
    expires_at: int | None
    refunded_minor: int
    """All that Stripe has said it refunded."""
    returned_minor: int
    """The part that is recorded with the payment and not as its refund."""
    dispute_id: str | None
    dispute_status: str | None
    dispute_reason: str | None
    disputed_minor: int | None
    disputed_at: int | None
    dispute_closed_at: int | None
    check_at: int | None
    check_count: int
    created_at: int
    updated_at: int
    staff_notices: str | None = None
    """The mails to staff about this payment, as a JSON list of their occurrences."""
    test_card: str | None = None
    """The card that paid, or tried to, in a sandbox."""


def new_row(booking_id: str, amount_minor: int, currency: str, at: int) -> IntentRow:
    """Return the row of an intent that Stripe has not made yet."""
    none = (None,) * 6
    return IntentRow(
        booking_id, None, None, IntentStatus.REQUESTED, None, amount_minor, currency, None, 0, 0, *none, None, 0, at, at
    )


# Reports of an intent --------------------------------------------------------------------------------------------


class IntentState(StrEnum):
    """The state of an intent at Stripe, as far as a booking depends on it."""

    WAITING = "waiting"
    DECLINED = "declined"
    """The last attempt failed, and the guest may try again."""
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundUpdate:
    """The refunds of a payment at Stripe, all together."""

    intent_id: str
    refunded_minor: int | None
    """None: an amount that no booking can have."""
    is_whole: bool
    refund_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentUpdate:
    """The state of an intent. Amounts are in minor units of the booking's currency."""

    intent_id: str
    state: IntentState
    organization_id: str | None = None
    """Of its metadata; None: somebody else made it, in the same account."""
    booking_id: str | None = None
    received_minor: int | None = None
    """None: an amount that no booking can have, such as a fraction of a minor unit."""
    currency: str = ""
    error: str | None = None
    refunds: RefundUpdate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeUpdate:
    """The state of a dispute."""

    intent_id: str
    dispute_id: str
    status: str
    reason: str
    amount_minor: int | None
    """None: an amount that no booking can have."""
    is_closed: bool


StripeUpdate = IntentUpdate | RefundUpdate | DisputeUpdate

# Look-ups at Stripe ----------------------------------------------------------------------------------------------

LEASE = 45 * SECOND
"""Longer than the two calls of a check."""
LEAD = MINUTE
"""Before the end of a checkout: a payment whose webhook was lost still books."""
AFTER_END = 5 * SECOND
"""After the end of a checkout, when the worker has cancelled the booking: then the intent is canceled."""
UNSETTLED = MINUTE
"""Until a refund that came too early is compared again."""
DELAY_MAX = 6 * HOUR
CHECKS_MAX = 120
"""About four weeks of a Stripe that does not answer; then only its webhooks are waited for."""


def first_check(at: int, expires_at: int) -> int:
    """Return the instant of the first look-up: shortly before the end of the checkout."""
    return max(at, expires_at - min(LEAD, (expires_at - at) // 2))


def lease_until(at: int, check_count: int) -> int:
    """Return the instant of the next check if this one is never settled; the delay doubles with each."""
    return at + min(DELAY_MAX, LEASE << check_count)
