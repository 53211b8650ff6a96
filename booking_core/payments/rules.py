"""What is refunded, and what an answer of the gateway means for a refund: decided without storage."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from booking_core.clock import HOUR, SECOND
from booking_core.context import Organization
from booking_core.models.bookings import PaymentStatus

# How much --------------------------------------------------------------------------------------------------------


_GATEWAY_UNITS = {**dict.fromkeys(("BHD", "JOD", "KWD", "OMR", "TND"), 10), "MGA": 100}
"""Minor units of ISO 4217 in the smallest amount that the gateway moves, where that is more than one. Stripe takes
amounts of three decimals as multiples of ten, and counts ariary without decimals (docs.stripe.com/currencies)."""


def gateway_unit(currency: str) -> int:
    """Return how many minor units the smallest amount has that the gateway can return."""
    return _GATEWAY_UNITS.get(currency, 1)


def returnable(amount_minor: int, currency: str, left_minor: int) -> int:
    """Return what the gateway can return of an amount: rounded half up to its unit of the currency, and never more
    than what is left of the payment (decisions/0015)."""
    unit = gateway_unit(currency)
    rounded = (2 * min(amount_minor, left_minor) + unit) // (2 * unit) * unit
    return rounded if rounded <= left_minor else rounded - unit


def by_policy(organization: Organization, *, paid_minor: int, starts_at: int, at: int) -> int:
    """Return what the organization's policy gives back of a payment cancelled at that instant (decision B12): all of
    it until so many hours before the start, then a percentage, rounded half up to the minor unit."""
    if at <= starts_at - organization.refund_full_until_hours * HOUR:
        return paid_minor
    return (paid_minor * organization.refund_late_percent + 50) // 100


def owed(organization: Organization, *, paid_minor: int, currency: str, starts_at: int, at: int) -> int:
    """Return what is owed of a card payment cancelled at that instant: what the policy gives back, as an amount that
    the gateway can return."""
    wanted = by_policy(organization, paid_minor=paid_minor, starts_at=starts_at, at=at)
    return returnable(wanted, currency, paid_minor)


def status_after(amount_minor: int, refunded_minor: int) -> PaymentStatus:
    """Of a payment, and of its booking, once so much of it was given back."""
    return PaymentStatus.REFUNDED if refunded_minor >= amount_minor else PaymentStatus.PARTIALLY_REFUNDED


# How often -------------------------------------------------------------------------------------------------------

FIRST_WAIT_S = 2
LONGEST_WAIT = 150
"""First waits: five minutes, so that whatever was the matter, all is settled within ten minutes of its end."""
ACCEPTED_WAIT_S = 600
"""A refund that the gateway accepted and has not paid out is looked at again after so long."""
LONGEST_WAIT_S = 900
"""Longer than every wait and every lease of a refund."""
ATTEMPTS_MAX = 1_000
"""Three days of a gateway that answers nothing; then people look at it."""
KEY_LIVES_S = 23 * 3600
"""The gateway forgets an idempotency key after 24 hours. From then on the same key would refund a second time, so
what may have been refunded is looked for first."""
LOOK_AFTER_ATTEMPTS = 5
"""The gateway may keep answering an error that it stored for the key, though the refund was made."""


def wait_s(attempt_count: int, luck: float = 0.0, first_s: float = FIRST_WAIT_S) -> float:
    """Seconds until the next attempt: twice as long after each, and up to a quarter more, so that what failed
    together does not come back together."""
    times = min(1 << min(attempt_count - 1, 20), LONGEST_WAIT)
    return first_s * times * (1 + luck / 4)


# What is sent, and what comes back -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """A refund that is to be sent now, by whoever holds its lease."""

    organization_id: str
    id: str
    booking_id: str
    payment_intent: str
    amount_minor: int
    currency: str
    provider_refund_id: str | None
    """Known when the gateway accepted it and has yet to pay it out."""
    attempt_count: int
    """With this one."""
    first_sent_at: int
    at: int
    """When it was claimed."""
    lease_token: str
    reopened_count: int = 0
    """Counts how often staff has had it sent again."""

    @property
    def idempotency_key(self) -> str:
        """The gateway's, one until staff reopens the refund: the gateway would answer the old key with the refusal
        that it has stored for it."""
        return f"refund-{self.id}-{self.reopened_count}" if self.reopened_count else f"refund-{self.id}"

    @property
    def look_first(self) -> bool:
        """Return whether it may have been made by an attempt that the key does not tell of, or by somebody else.

        A clock that was set back since the first attempt cannot say how long ago that was.
        """
        is_known = 0 <= self.at - self.first_sent_at <= KEY_LIVES_S * SECOND
        return not is_known or self.attempt_count > LOOK_AFTER_ATTEMPTS or self.reopened_count > 0


class Outcome(StrEnum):
    """What an attempt came to."""

    REFUNDED = "refunded"
    ACCEPTED = "accepted"
    """The gateway has it, and has not paid it out."""
    REFUSED = "refused"
    """The gateway will never make it."""
    UNKNOWN = "unknown"
    """It may have been made or not: the same key again."""
    UNCLEAR = "unclear"
    """Something that only people can judge."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the gateway said to an attempt."""

    claimed: Claimed
    outcome: Outcome
    provider_refund_id: str | None = None
    reason: str | None = None
    """In a word, for staff and for the log: the gateway's own code where it gave one."""


class LeasedRefund(NamedTuple):
    """A refund that is being settled, with its payment and its booking, all three held."""

    organization_id: str
    id: str
    booking_id: str
    payment_id: str
    amount_minor: int
    currency: str
    attempt_count: int
    provider_refund_id: str | None
    paid_minor: int
    refunded_minor: int
    customer_id: str | None
    booking_updated_at: int
    at: int
    first_sent_at: int | None
    reopened_count: int
    status: str
    last_error: str | None
    lease_token: str | None
    payment_intent: str | None
    payment_source: str
    payment_status: str
