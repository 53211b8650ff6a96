"""The mailer and the payment gateway of sandboxes. They open no connection but that of the database."""

from collections.abc import Sequence

from booking_core.base import tokens
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import IntentState, IntentUpdate
from booking_core.db.engine import Database
from booking_core.notifications import ClaimedMail, MailOutcome, MailResult
from booking_core.payments import (
    ClaimedRefund,
    RefundOutcome,
    RefundResult,
    SandboxCard,
    new_sandbox_checkout_intent,
)
from booking_server.adapters.smtp import Report
from booking_server.adapters.stripe_intents import Intent, IntentRequest

_UNANSWERED = 2
"""Attempts of a refund that the gateway does not answer for `SandboxCard.REFUND_UNAVAILABLE`."""


class SandboxMailer:
    """Keeps the mails of a sandbox in its database, and sends none."""

    delivers = True

    async def send(self, mails: Sequence[ClaimedMail], report: Report) -> None:
        """Report every mail as sent: its text is kept when that is recorded."""
        await report([MailResult(mail, MailOutcome.SENT) for mail in mails])


class SandboxIntents:
    """Makes the PaymentIntents of sandboxes by itself, in the shape of Stripe's. What pays for them is an operation of
    the API, which records it at once: a look-up finds an intent that is not paid."""

    async def create(self, request: IntentRequest) -> Intent:
        """Return the intent of a booking. The first one that is stored stays."""
        intent_id = new_sandbox_checkout_intent(request.booking_id)
        return Intent(intent_id, f"{intent_id}_secret_{tokens.new_id().replace('-', '')}")

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Return the state of an intent."""
        return IntentUpdate(intent_id=intent_id, state=IntentState.WAITING)

    async def cancel(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Cancel an intent, and return its state."""
        return IntentUpdate(intent_id=intent_id, state=IntentState.CANCELED)


class SandboxGateway:
    """Makes the refunds of sandboxes by itself, as the test cards of their payments say. Several threads may share
    it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        """Return the result of an attempt, which is the same however often the attempt is made."""
        owner, booking_id, intent = claimed.organization_id, claimed.booking_id, claimed.payment_intent
        card = self._database.read(lambda tx: checkouts.sandbox_card_of(tx, owner, booking_id, intent))
        refund_id = f"re_test_{claimed.id.replace('-', '')}"
        if card is SandboxCard.REFUND_FAIL:
            return RefundResult(claimed, RefundOutcome.REFUSED, refund_id, "expired_or_canceled_card")
        if card is SandboxCard.PENDING_REFUND and claimed.provider_refund_id is None:
            return RefundResult(claimed, RefundOutcome.ACCEPTED, refund_id, "pending")
        if card is SandboxCard.REFUND_UNAVAILABLE and claimed.attempt_count <= _UNANSWERED:
            return RefundResult(claimed, RefundOutcome.UNKNOWN, reason="http_503")
        return RefundResult(claimed, RefundOutcome.REFUNDED, refund_id)
