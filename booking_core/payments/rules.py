"""What is refunded, and what an answer of the gateway means for a refund: decided without storage."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from booking_core.caller import Organization
from booking_core.clock import HOUR, SECOND
from booking_core.wire.bookings import PaymentStatus

# How much --------------------------------------------------------------------------------------------------------


def owed(organization: Organization, *, paid_minor: int, starts_at: int, at: int) -> int:
    """What the organization's policy gives back of a card payment cancelled at that instant (decision B12): all of it
    until so many hours before the start, then a percentage, rounded half up to the minor unit."""
    if at <= starts_at - organization.refund_full_until_hours * HOUR:
        return paid_minor
    return (paid_minor * organization.refund_late_percent + 50) // 100


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

    @property
    def idempotency_key(self) -> str:
        """The gateway's, one for the refund's whole life."""
        return f"refund-{self.id}"

    @property
    def look_first(self) -> bool:
        """Whether it may have been made by an attempt that the key no longer tells of. A clock that was set back since
        the first one cannot say how long ago that was."""
        is_known = 0 <= self.at - self.first_sent_at <= KEY_LIVES_S * SECOND
        return not is_known or self.attempt_count > LOOK_AFTER_ATTEMPTS


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


class RefundStatus(StrEnum):
    """`refunds.status`."""

    REQUESTED = "requested"
    SENDING = "sending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEEDS_REVIEW = "needs_review"


class LeasedRefund(NamedTuple):
    """A refund whose attempt is being settled, with its payment and its booking, all three held."""

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
