"""Refunds through Stripe.

However often a refund is sent, Stripe makes it once: it has its own idempotency key. Its own metadata identify it after
Stripe has forgotten the key. Stripe's response is classified here. Only a clear refusal counts as refused: after any
other failure Stripe may have made the refund.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import stripe

from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult, to_gateway
from booking_core.payments.refund_states import RefundReason
from booking_server.adapters.stripe_intents import TRANSIENT, error_code

log = logging.getLogger("booking.refunds")

CONNECT_S, READ_S = 5.0, 10.0
_PAGE = 100
_NOTHING_LEFT = "charge_already_refunded"
_GIVEN_UP = frozenset({"failed", "canceled"})

_REFUND_ID, _REOPENED = "refund_id", "reopened"
"""The metadata that identify a refund of this service at Stripe."""
_OUTCOMES = {
    "succeeded": RefundOutcome.REFUNDED,
    "pending": RefundOutcome.ACCEPTED,
    "failed": RefundOutcome.REFUSED,
    "canceled": RefundOutcome.REFUSED,
}
"""Outcomes by the status of a refund that exists; any other status needs staff."""


class UnreadableAnswer(Exception):
    """A response of a shape that Stripe never sends, perhaps from a proxy: the library does not validate it."""


@contextmanager
def _reading() -> Iterator[None]:
    """Raise UnreadableAnswer for the errors that a response of another shape causes. Our own code stays outside."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableAnswer from error


@dataclass(frozen=True, slots=True)
class StripeRefund:
    """A refund at Stripe."""

    id: str
    status: str
    amount: int
    failure_reason: str | None
    metadata: Mapping[str, str]

    @classmethod
    def read(cls, refund: stripe.Refund) -> "StripeRefund":
        """Return the fields of Stripe's object."""
        metadata = {} if refund.metadata is None else dict(refund.metadata.to_dict())
        reason = getattr(refund, "failure_reason", None)
        return cls(str(refund.id), str(refund.status or ""), int(refund.amount), reason, metadata)


class StripeGateway:
    """A gateway to one Stripe account. Its calls block, and several threads may share it."""

    def __init__(
        self, api_key: str, base_url: str | None = None, *, connect_s: float = CONNECT_S, read_s: float = READ_S
    ) -> None:
        client = stripe.StripeClient(
            api_key,
            base_addresses={"api": base_url} if base_url else {},
            # The worker retries, and records it; a retry here would only hold the lease longer.
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=(connect_s, read_s)),
        )
        self._refunds = client.v1.refunds

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        """Make a refund, or find out its state. Raises for nothing that Stripe or the network does."""
        try:
            try:
                return self._refund(claimed)
            except stripe.StripeError as error:
                with _reading():
                    return _from_error(claimed, error)
        except UnreadableAnswer:
            log.exception("the response to refund %s cannot be read", claimed.id)
            return RefundResult(claimed, RefundOutcome.UNKNOWN, reason="unreadable_answer")

    def _refund(self, claimed: ClaimedRefund) -> RefundResult:
        if claimed.provider_refund_id is not None:
            with _reading():
                accepted = StripeRefund.read(self._refunds.retrieve(claimed.provider_refund_id))
            return _from_refund(claimed, accepted)
        if claimed.look_first:
            existing = self._find_existing(claimed, nothing_left=False)
            if existing is not None:
                return existing
        return self._create(claimed)

    def _create(self, claimed: ClaimedRefund) -> RefundResult:
        fields: stripe.params.RefundCreateParams = {
            "payment_intent": claimed.payment_intent,
            "amount": _amount(claimed),
            "metadata": _metadata(claimed),
        }
        try:
            with _reading():
                refund = StripeRefund.read(self._refunds.create(fields, {"idempotency_key": claimed.idempotency_key}))
        except stripe.InvalidRequestError as error:
            if error.code != _NOTHING_LEFT:
                raise
            existing = self._find_existing(claimed, nothing_left=True)
            return existing or RefundResult(claimed, RefundOutcome.UNCLEAR, reason=_NOTHING_LEFT)
        return _from_refund(claimed, refund)

    def _find_existing(self, claimed: ClaimedRefund, *, nothing_left: bool) -> RefundResult | None:
        """Return the result of this refund from the refunds of its payment, or None when it was not made.

        If staff reopened this refund, or if nothing is left of the payment, a refund from the dashboard counts as this
        one unless it is recorded as another. If it is smaller and something is left, staff must decide about the
        difference. Other refunds of this service were for other bookings with the same payment.
        """
        with _reading():
            listed = self._refunds.list({"payment_intent": claimed.payment_intent, "limit": _PAGE})
            refunds = [StripeRefund.read(refund) for refund in listed.auto_paging_iter()]
        existing = next((refund for refund in refunds if _is_of(claimed, refund)), None)
        if existing is not None:
            return _from_refund(claimed, existing)
        others = _made_elsewhere(refunds) if nothing_left or claimed.reopened_count else []
        unknown = _unknown(claimed, others)
        if unknown >= _amount(claimed):
            return RefundResult(claimed, RefundOutcome.REFUNDED, others[0].id, RefundReason.REFUNDED_ELSEWHERE)
        if unknown > 0 and not nothing_left:
            return RefundResult(claimed, RefundOutcome.UNCLEAR, reason=RefundReason.PARTLY_REFUNDED_ELSEWHERE)
        return None


def _amount(claimed: ClaimedRefund) -> int:
    """Return the amount in Stripe's unit of the currency.

    It was rounded to this unit when the refund was created; an amount from an older release is rounded half up here.
    """
    return to_gateway(claimed.amount_minor, claimed.currency)


def _metadata(claimed: ClaimedRefund) -> dict[str, str]:
    reopened = {_REOPENED: str(claimed.reopened_count)} if claimed.reopened_count else {}
    return {_REFUND_ID: claimed.id, "booking_id": claimed.booking_id} | reopened


def _is_of(claimed: ClaimedRefund, refund: StripeRefund) -> bool:
    """Return whether Stripe's refund belongs to this one, and did not fail before staff reopened it."""
    metadata, expected = refund.metadata, _metadata(claimed)
    is_same = metadata.get(_REFUND_ID) == claimed.id
    return is_same and (refund.status not in _GIVEN_UP or metadata.get(_REOPENED) == expected.get(_REOPENED))


def _made_elsewhere(refunds: list[StripeRefund]) -> list[StripeRefund]:
    """Return the successful and pending refunds that this service did not make."""
    return [
        refund for refund in refunds if refund.status in ("succeeded", "pending") and _REFUND_ID not in refund.metadata
    ]


def _unknown(claimed: ClaimedRefund, others: list[StripeRefund]) -> int:
    """Return the amount of others' refunds that is recorded nowhere yet, in Stripe's unit of the currency."""
    return sum(refund.amount for refund in others) - to_gateway(claimed.elsewhere_minor, claimed.currency)


def _from_refund(claimed: ClaimedRefund, refund: StripeRefund) -> RefundResult:
    outcome = _OUTCOMES.get(refund.status, RefundOutcome.UNCLEAR)
    reason = None
    if outcome is not RefundOutcome.REFUNDED:
        reason = refund.failure_reason or refund.status or None
    return RefundResult(claimed, outcome, refund.id, reason)


def _from_error(claimed: ClaimedRefund, error: stripe.StripeError) -> RefundResult:
    reason = error_code(error)
    if isinstance(error, stripe.IdempotencyError):
        outcome = RefundOutcome.UNCLEAR  # the idempotency key was used for another request
    elif not isinstance(error, stripe.InvalidRequestError | stripe.CardError) or error.code in TRANSIENT:
        outcome = RefundOutcome.UNKNOWN
    elif claimed.provider_refund_id is not None:
        outcome = RefundOutcome.UNCLEAR  # it was accepted before, and cannot be read now
    else:
        outcome = RefundOutcome.REFUSED
    return RefundResult(claimed, outcome, reason=reason)
