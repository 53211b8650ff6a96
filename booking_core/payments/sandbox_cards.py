"""The test cards of sandboxes, and the payment intents that are made with them. No storage, no clock.

An intent that names no card was made by a checkout, before its guest had chosen one: it is kept with the intent.
"""

from booking_core.models.sandbox import SandboxCard

_INTENT_PREFIX = "pi_test_"


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
