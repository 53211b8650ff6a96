"""Payment gateways: Stripe accounts of live organizations, and the gateway of sandboxes, which does not call Stripe."""

from functools import lru_cache
from typing import TYPE_CHECKING

from booking_core.base.context import Installation
from booking_core.bookings import checkouts
from booking_core.db.engine import Database, Tx
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult, SandboxCard, stripe_accounts

if TYPE_CHECKING:
    from booking_server.adapters.stripe import StripeGateway


_NOT_IN_ACCOUNT = "resource_missing"
_GATEWAYS_MAX = 256
_UNANSWERED_MAX = 2
"""Attempts of a refund that the gateway does not answer for `SandboxCard.REFUND_UNAVAILABLE`."""


class StripeAccounts:
    """The gateways of all organizations. Its calls block, and several threads may share it.

    Args:
        default_key: of the installation's account, for organizations without their own account, and for payments that
            are older than their account.
    """

    def __init__(
        self, database: Database, installation: Installation, *, default_key: str | None, base_url: str | None
    ) -> None:
        self._database = database
        self._installation = installation
        self._default_key = default_key
        self._base_url = base_url
        self._gateway = lru_cache(_GATEWAYS_MAX)(self._new_gateway)

    def serves(self, tx: Tx, organization_id: str) -> bool:
        """Return whether there is an account for the refunds of the organization."""
        return self._default_key is not None or stripe_accounts.exists(tx, organization_id)

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        """Make a refund, or find out its state, with the key of the account that took the payment."""
        account = self._database.read(
            lambda tx: stripe_accounts.find(tx, self._installation.secret_keys, claimed.organization_id)
        )
        keys = [key for key in (account and account.api_key, self._default_key) if key]
        result = RefundResult(claimed, RefundOutcome.UNKNOWN, reason="no_account")
        for key in keys:
            result = self._gateway(key).refund(claimed)
            if result.reason != _NOT_IN_ACCOUNT:
                break
        return result

    def _new_gateway(self, key: str) -> "StripeGateway":
        # An installation without card payments does not pay for importing the Stripe library.
        from booking_server.adapters.stripe import StripeGateway

        return StripeGateway(key, self._base_url)


class SandboxGateway:
    """Simulates the refunds of sandboxes, as the test cards of their payments specify. Several threads may share it."""

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
        if card is SandboxCard.REFUND_UNAVAILABLE and claimed.attempt_count <= _UNANSWERED_MAX:
            return RefundResult(claimed, RefundOutcome.UNKNOWN, reason="http_503")
        return RefundResult(claimed, RefundOutcome.REFUNDED, refund_id)
