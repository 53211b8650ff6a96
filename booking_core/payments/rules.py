"""Rules of refunds: amounts, retry delays, results of the gateway, and test cards. No storage, no clock."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from booking_core.base.clock import SECOND
from booking_core.base.context import Organization
from booking_core.models.bookings import PaymentStatus
from booking_core.models.money import minor_digits
from booking_core.models.sandbox import SandboxCard
from booking_core.payments.refund_states import RefundStatus

CANCELLATION = 0
"""The number of the refund of a cancellation. Refunds of changes of the party are counted from 1."""

# How much --------------------------------------------------------------------------------------------------------


_GATEWAY_UNITS = {**dict.fromkeys(("BHD", "JOD", "KWD", "OMR", "TND"), 10), "MGA": 100}
"""Minor units of ISO 4217 in the smallest amount that the gateway moves, where that is more than one. Stripe takes
amounts of three decimals as multiples of ten, and counts ariary without decimals (docs.stripe.com/currencies)."""


def gateway_unit(currency: str) -> int:
    """Return the smallest amount that the gateway can return, in minor units."""
    return _GATEWAY_UNITS.get(currency, 1)


def returnable(amount_minor: int, currency: str, left_minor: int) -> int:
    """Round an amount half up to the gateway's unit of the currency, without exceeding the rest of the payment
    (decisions/0013)."""
    unit = gateway_unit(currency)
    rounded = (2 * min(amount_minor, left_minor) + unit) // (2 * unit) * unit
    return rounded if rounded <= left_minor else rounded - unit


# Stripe's unit ---------------------------------------------------------------------------------------------------

_GATEWAY_DIGITS = {"ISK": 2, "UGX": 2, "MGA": 0}
"""Currencies whose minor unit differs from ISO 4217 (special cases): 5 ISK are 500."""


def to_gateway(amount_minor: int, currency: str) -> int:
    """Return the amount in Stripe's unit, rounded half up where that is larger than the minor unit."""
    digits = minor_digits(currency)
    gateway_digits = _GATEWAY_DIGITS.get(currency, digits)
    amount: int = (2 * amount_minor * 10**gateway_digits + 10**digits) // (2 * 10**digits)
    return amount


def from_gateway(amount: int, currency: str) -> int | None:
    """Return the amount in minor units; None if it is not a whole number of them, which Stripe was never asked
    for."""
    digits = minor_digits(currency)
    gateway_digits = _GATEWAY_DIGITS.get(currency, digits)
    minor, remainder = divmod(amount * 10**digits, 10**gateway_digits)
    return None if remainder else minor


# By the policy ---------------------------------------------------------------------------------------------------


class RefundTerms(NamedTuple):
    """The terms by which a payment is refunded: whose they are, of what time, and who took the payment."""

    organization: Organization
    starts_at: int
    at: int
    in_full: bool = False
    """The whole payment is refunded, regardless of the policy."""
    by_hand: bool = False
    """Staff took the payment and returns it: no gateway rounds the amount, or can return it."""

    def due_minor(self, paid_minor: int) -> int:
        """Return the amount of a payment that is due at that instant, by the organization's policy (decision B12).

        It is the whole payment until so many hours before the start, then a percentage, rounded half up to the minor
        unit.
        """
        if self.in_full or self.at <= self.organization.refunds_in_full_until(self.starts_at):
            return paid_minor
        return (paid_minor * self.organization.refund_late_percent + 50) // 100

    @property
    def status(self) -> RefundStatus:
        """Return the status of a new refund: without a gateway it needs a person from the beginning."""
        return RefundStatus.NEEDS_REVIEW if self.by_hand else RefundStatus.REQUESTED


class RefundAmount(NamedTuple):
    """The amount that is refunded of a payment."""

    amount_minor: int
    kept_minor: int = 0
    """The amount that rounding for the gateway leaves out; negative: the guest gets more."""


def refund_amount(terms: RefundTerms, paid_minor: int, refunded_minor: int, currency: str) -> RefundAmount:
    """Return the refund of a payment whose booking is cancelled."""
    due_minor = terms.due_minor(paid_minor)
    if terms.by_hand:
        return RefundAmount(max(due_minor, 0))
    unreturned_minor = paid_minor - refunded_minor
    amount = max(returnable(due_minor, currency, unreturned_minor), 0)
    return RefundAmount(amount, min(due_minor, unreturned_minor) - amount)


class Release(NamedTuple):
    """Money that was paid for guests who no longer come."""

    amount_minor: int
    refund_minor: int
    refund_status: RefundStatus

    @property
    def kept_minor(self) -> int:
        return self.amount_minor - self.refund_minor


def release(terms: RefundTerms, amount_minor: int, currency: str, *, is_kept: bool) -> Release:
    """Return the refund of a part of a payment, by the terms of a cancellation; nothing if it is kept."""
    refund_minor = 0 if is_kept else refund_amount(terms, amount_minor, 0, currency).amount_minor
    return Release(amount_minor, refund_minor, terms.status)


def status_after(amount_minor: int, refunded_minor: int) -> PaymentStatus:
    """Return the status of a payment and its booking after so much was refunded."""
    return PaymentStatus.REFUNDED if refunded_minor >= amount_minor else PaymentStatus.PARTIALLY_REFUNDED


def mail_occurrence(number: int, reopened_count: int = 0) -> str:
    """Return the part of an outbox key that tells the mails about the refunds of one booking apart."""
    reopened = str(reopened_count or "")
    return reopened if number == CANCELLATION else f"{number}-{reopened}"


# Retry delays ----------------------------------------------------------------------------------------------------

FIRST_RETRY_DELAY_S = 2
RETRY_FACTOR_MAX = 150
"""Times the first delay, five minutes: all refunds are settled within ten minutes of the end of an outage."""
ACCEPTED_RECHECK_S = 600
"""The delay until a refund that the gateway accepted and has not paid out is checked again."""
ATTEMPTS_MAX = 1_000
"""Three days of a gateway without an answer; then the refund is referred to staff."""
KEY_LIFETIME_S = 23 * 3600
"""The gateway forgets an idempotency key after 24 hours. From then on the same key would refund a second time, so the
refunds of the payment are listed first."""
LOOK_AFTER_ATTEMPTS = 5
"""The gateway may keep answering an error that it stored for the key, though the refund was made."""


def retry_delay_s(attempt_count: int, jitter: float = 0.0, first_s: float = FIRST_RETRY_DELAY_S) -> float:
    """Return the seconds until the next attempt.

    The delay doubles with each attempt. Jitter adds up to a quarter: refunds that failed together are not retried
    together.
    """
    times = min(1 << (attempt_count - 1), RETRY_FACTOR_MAX)
    return first_s * times * (1 + jitter / 4)


# Claims and results ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimedRefund:
    """A refund that is leased for one attempt."""

    organization_id: str
    id: str
    booking_id: str
    payment_intent: str
    amount_minor: int
    currency: str
    provider_refund_id: str | None
    """Set when the gateway has accepted the refund and not paid it out yet."""
    attempt_count: int
    """Includes this attempt."""
    first_sent_at: int
    at: int
    """The instant of the claim."""
    lease_token: str
    reopened_count: int = 0
    """Counts how often staff has reopened the refund."""
    clock_offset: int | None = None
    """The lead of a sandbox's clock, in microseconds; None: the organization is live."""
    elsewhere_minor: int = 0
    """The amount that others have refunded of the payment at the gateway, and that is recorded as another refund: it is
    no sign that this one was made."""

    @property
    def is_of_sandbox(self) -> bool:
        """Return True for a refund that only the test gateway may make."""
        return self.clock_offset is not None

    @property
    def ahead(self) -> int:
        """Return by how much `at` is ahead of the real time."""
        return self.clock_offset or 0

    @property
    def idempotency_key(self) -> str:
        """Return the idempotency key for the gateway.

        It changes when staff reopens the refund, because the gateway would answer the old key with its stored refusal.
        """
        return f"refund-{self.id}-{self.reopened_count}" if self.reopened_count else f"refund-{self.id}"

    @property
    def look_first(self) -> bool:
        """Return whether existing refunds are listed first, because the key may not identify an earlier refund.

        A clock that was set back since the first attempt cannot say how long ago that was.
        """
        is_known = 0 <= self.at - self.first_sent_at <= KEY_LIFETIME_S * SECOND
        return not is_known or self.attempt_count > LOOK_AFTER_ATTEMPTS or self.reopened_count > 0


class RefundOutcome(StrEnum):
    """The outcome of an attempt to refund."""

    REFUNDED = "refunded"
    ACCEPTED = "accepted"
    """The gateway has accepted it, and has not paid it out."""
    REFUSED = "refused"
    """The gateway will never make it."""
    UNKNOWN = "unknown"
    """Unknown whether it was made: it is retried with the same key."""
    UNCLEAR = "unclear"
    """A state that only a person can decide."""


@dataclass(frozen=True, slots=True)
class RefundResult:
    """The result of an attempt to refund."""

    claimed: ClaimedRefund
    outcome: RefundOutcome
    provider_refund_id: str | None = None
    reason: str | None = None
    """A code for staff and the log: the gateway's own code where there is one."""


class RefundRow(NamedTuple):
    """A refund with columns of its payment and its booking. The refund is locked, and but for a claim all three are."""

    organization_id: str
    id: str
    booking_id: str
    payment_id: str
    amount_minor: int
    currency: str
    status: str
    paid_minor: int
    refunded_minor: int
    payment_intent: str | None
    payment_status: str
    customer_id: str | None
    at: int
    payment_source: str = ""
    booking_updated_at: int = 0
    number: int = CANCELLATION
    attempt_count: int = 0
    provider_refund_id: str | None = None
    first_sent_at: int | None = None
    reopened_count: int = 0
    clock_offset: int | None = None
    elsewhere_minor: int = 0
    parts_returned_minor: int = 0
    """The amount that refunds of changes of the party have returned for the booking."""

    @property
    def left_minor(self) -> int:
        """Return the amount that may still be returned: of the payment, or of the part that a change of party released,
        which has left the payment."""
        return self.paid_minor - self.refunded_minor if self.number == CANCELLATION else self.amount_minor


class Returned(NamedTuple):
    """Money that was returned, and recorded in the payment and the booking."""

    refund: RefundRow
    """As it was before."""
    amount_minor: int
    """0: the refund was closed without returning anything."""
    payment_status: str
    """The new status of the payment and the booking."""

    @property
    def total_minor(self) -> int:
        """Return the amount that was returned for the booking in all."""
        return self.refund.refunded_minor + self.refund.parts_returned_minor + self.amount_minor


class Settled(NamedTuple):
    """The results of the gateway that were recorded."""

    changed: int
    """Refunds that were changed."""
    returned: list[Returned]


# Test cards of sandboxes -----------------------------------------------------------------------------------------

_INTENT_PREFIX = "pi_test_"
"""An intent that names no card was made by a checkout, before its guest had chosen one."""


def new_sandbox_intent(card: SandboxCard, payment_id: str) -> str:
    """Return the payment intent of a payment by a test card."""
    return f"{_INTENT_PREFIX}{card.removeprefix('pm_card_')}_{payment_id.replace('-', '')}"


def new_sandbox_checkout_intent(booking_id: str) -> str:
    """Return the payment intent of a checkout, whose card is chosen later."""
    return f"{_INTENT_PREFIX}{booking_id.replace('-', '')}"


def is_sandbox_intent(payment_intent: str | None) -> bool:
    """Return whether a sandbox has made the intent. Stripe's own ids have no second underscore."""
    return payment_intent is not None and payment_intent.startswith(_INTENT_PREFIX)


def sandbox_card_of(payment_intent: str) -> SandboxCard | None:
    """Return the test card that a payment intent names."""
    name = payment_intent.removeprefix(_INTENT_PREFIX).partition("_")[0]
    return next((card for card in SandboxCard if card == f"pm_card_{name}"), None)
