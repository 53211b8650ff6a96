"""A gift card."""

from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime, Field

from booking_core.models.base import Id, Open, Resource
from booking_core.models.money import Money


class GiftCardStatus(StrEnum):
    """Computed, not stored (decision B15)."""

    ACTIVE = "active"
    EXPIRED = "expired"
    INACTIVE = "inactive"


GiftCardStatusName = Literal["active", "expired", "inactive"]


class GiftCardContact(Resource):
    name: str | None = Field(repr=False)
    email: str | None = Field(repr=False)


class GiftCard(Resource):
    """A prepaid amount that pays for bookings."""

    id: Id
    code_last4: str | None
    status: Open[GiftCardStatus, GiftCardStatusName]
    """active: usable; expired: out of validity or fully spent; inactive: deactivated by the merchant."""
    initial_amount: Money | None
    """Face value."""
    balance: Money | None
    """The remaining amount."""
    currency: str
    """ISO 4217, for both amounts."""
    expires_at: AwareDatetime | None
    """Null: never expires."""
    purchaser: GiftCardContact
    recipient: GiftCardContact
    created_at: AwareDatetime
    code: str | None = Field(default=None, repr=False)
    """Only with `include=code` on one card: a payment instrument, absent everywhere else."""


class GiftCardTransactionType(StrEnum):
    """issue: the card's first amount; redeem: a booking was paid; restore: a cancelled booking gave the amount back;
    adjust: a correction, or the amount that an imported card had spent before."""

    ISSUE = "issue"
    REDEEM = "redeem"
    RESTORE = "restore"
    ADJUST = "adjust"


GiftCardTransactionTypeName = Literal["issue", "redeem", "restore", "adjust"]


class GiftCardTransaction(Resource):
    """A change of a gift card's balance, which is the sum of all transactions."""

    id: Id
    type: Open[GiftCardTransactionType, GiftCardTransactionTypeName]
    amount: Money
    """Negative where it was taken from the card."""
    balance: Money
    """The card's balance after it."""
    booking_id: Id | None
    """The booking that was paid or cancelled; null for the issue and for a correction."""
    created_at: AwareDatetime
