"""The test cards of sandboxes, and the payment intents that are made with them. No storage, no clock.

The cards have the names of Stripe's test payment methods (docs.stripe.com/testing) where Stripe has one.
"""

from enum import StrEnum

_INTENT_PREFIX = "pi_test_"


class SandboxCard(StrEnum):
    """A test card: it decides whether a payment and its refund succeed."""

    VISA = "pm_card_visa"
    """The payment and its refund succeed."""
    DECLINED = "pm_card_chargeDeclined"
    """The payment is declined."""
    REFUND_FAIL = "pm_card_refundFail"
    """The payment succeeds; its refund is refused, and waits for staff."""
    PENDING_REFUND = "pm_card_pendingRefund"
    """The payment succeeds; its refund is accepted, and succeeds when it is looked up ten minutes later."""
    REFUND_UNAVAILABLE = "pm_card_refundUnavailable"
    """The payment succeeds; the gateway does not answer the first two attempts of its refund."""


def new_sandbox_intent(card: SandboxCard, payment_id: str) -> str:
    """Return the payment intent of a payment by a test card."""
    return f"{_INTENT_PREFIX}{card.removeprefix('pm_card_')}_{payment_id.replace('-', '')}"


def sandbox_card_of(payment_intent: str) -> SandboxCard:
    """Return the test card of a payment intent; for any other intent the card whose refunds succeed."""
    name = payment_intent.removeprefix(_INTENT_PREFIX).partition("_")[0]
    return next((card for card in SandboxCard if card == f"pm_card_{name}"), SandboxCard.VISA)
