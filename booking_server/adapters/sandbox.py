"""The mailer and the payment gateway of sandboxes. They open no connection."""

from collections.abc import Sequence

from booking_core.notifications import ClaimedMail, MailOutcome, MailResult
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult, SandboxCard, sandbox_card_of
from booking_server.adapters.smtp import Report

_UNANSWERED = 2
"""Attempts of a refund that the gateway does not answer for `SandboxCard.REFUND_UNAVAILABLE`."""


class SandboxMailer:
    """Keeps the mails of a sandbox in its database, and sends none."""

    delivers = True

    async def send(self, mails: Sequence[ClaimedMail], report: Report) -> None:
        """Report every mail as sent: its text is kept when that is recorded."""
        await report([MailResult(mail, MailOutcome.SENT) for mail in mails])


class SandboxGateway:
    """Makes the refunds of sandboxes by itself, as the test cards of their payments say."""

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        """Return the result of an attempt, which is the same however often the attempt is made."""
        card, refund_id = sandbox_card_of(claimed.payment_intent), f"re_test_{claimed.id.replace('-', '')}"
        if card is SandboxCard.REFUND_FAIL:
            return RefundResult(claimed, RefundOutcome.REFUSED, refund_id, "expired_or_canceled_card")
        if card is SandboxCard.PENDING_REFUND and claimed.provider_refund_id is None:
            return RefundResult(claimed, RefundOutcome.ACCEPTED, refund_id, "pending")
        if card is SandboxCard.REFUND_UNAVAILABLE and claimed.attempt_count <= _UNANSWERED:
            return RefundResult(claimed, RefundOutcome.UNKNOWN, reason="http_503")
        return RefundResult(claimed, RefundOutcome.REFUNDED, refund_id)
