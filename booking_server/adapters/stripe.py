"""Refunds through Stripe.

One call makes at most one refund, however often it is made for the same one: the idempotency key is the refund's own,
and so is the metadata by which it is found once Stripe has forgotten the key. What Stripe answers is judged here, and
only a clear refusal counts as one: whatever else goes wrong may have gone right on the other side.
"""

import logging
from collections.abc import Iterator

import stripe

from booking_core.models.money import minor_digits
from booking_core.payments import Answered, Claimed, Outcome
from booking_core.refund_states import RefundReason

log = logging.getLogger("booking.refunds")

CONNECT_S, READ_S = 5.0, 10.0
_PAGE = 100
_REFUND_ID = "refund_id"
_REOPENED = "reopened"
_GIVEN_UP = frozenset({"failed", "canceled"})

_DIGITS = {"ISK": 2, "UGX": 2, "MGA": 0}
"""Where Stripe counts in other units than ISO 4217 (docs.stripe.com/currencies, special cases): 5 ISK are 500 there."""

_TRANSIENT = frozenset({"lock_timeout", "rate_limit", "idempotency_key_in_use"})
"""Codes of requests that did nothing, whatever the status they came with."""
_OUTCOMES = {
    "succeeded": Outcome.REFUNDED,
    "pending": Outcome.ACCEPTED,
    "failed": Outcome.REFUSED,
    "canceled": Outcome.REFUSED,
}
"""By the status of a refund that exists; any other wants something of a person."""


class StripeGateway:
    """One Stripe account. Its calls block, and may be made by several threads at once."""

    def __init__(
        self, api_key: str, base_url: str | None = None, *, connect_s: float = CONNECT_S, read_s: float = READ_S
    ) -> None:
        client = stripe.StripeClient(
            api_key,
            base_addresses={"api": base_url} if base_url else {},
            # Tried again by the worker, which remembers; a retry in here would only hold the lease longer.
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=(connect_s, read_s)),
        )
        self._refunds = client.v1.refunds

    def refund(self, claimed: Claimed) -> Answered:
        """What Stripe says to this refund; never raises for what Stripe or the network does."""
        try:
            return self._answered(claimed)
        except Exception:
            # An answer of a shape that Stripe never gives, perhaps by a proxy in between: the library takes what it is
            # given, and whoever uses it falls over it.
            log.exception("the answer to refund %s cannot be read", claimed.id)
            return Answered(claimed, Outcome.UNKNOWN, reason="unreadable_answer")

    def _answered(self, claimed: Claimed) -> Answered:
        try:
            try:
                return self._refund(claimed)
            except stripe.InvalidRequestError as error:
                if error.code != "charge_already_refunded":
                    raise
                return self._already_refunded(claimed)
        except stripe.StripeError as error:
            return _failed(claimed, error)

    def _refund(self, claimed: Claimed) -> Answered:
        if claimed.provider_refund_id is not None:
            return _judged(claimed, self._refunds.retrieve(claimed.provider_refund_id))
        if claimed.look_first:
            known = self._known(claimed, list(self._all(claimed)))
            if known is not None:
                return known
        return _judged(claimed, self._create(claimed))

    def _create(self, claimed: Claimed) -> stripe.Refund:
        return self._refunds.create(
            {
                "payment_intent": claimed.payment_intent,
                "amount": _amount(claimed),
                "metadata": _metadata(claimed),
            },
            {"idempotency_key": claimed.idempotency_key},
        )

    def _all(self, claimed: Claimed) -> Iterator[stripe.Refund]:
        return self._refunds.list({"payment_intent": claimed.payment_intent, "limit": _PAGE}).auto_paging_iter()

    def _known(self, claimed: Claimed, made: list[stripe.Refund]) -> Answered | None:
        """Return what the refunds of the payment say of this one; none: it was not made.

        A refund that staff reopened had been left to people, so one that somebody made at the dashboard is taken for
        it. Only when such a one is smaller is it for people to say what is still owed.
        """
        ours = next((each for each in made if _is_of(claimed, each)), None)
        if ours is not None:
            return _judged(claimed, ours)
        others = _made_elsewhere(made) if claimed.reopened_count else []
        if not others:
            return None
        if sum(each.amount for each in others) < _amount(claimed):
            return Answered(claimed, Outcome.UNCLEAR, reason=RefundReason.PARTLY_REFUNDED_ELSEWHERE)
        return Answered(claimed, Outcome.REFUNDED, others[0].id, RefundReason.REFUNDED_ELSEWHERE)

    def _already_refunded(self, claimed: Claimed) -> Answered:
        """Nothing is left to refund: by this refund, of which the answer was lost, or by somebody at the dashboard.

        What another refund of ours gave back, was for another booking that names the same payment.
        """
        made = list(self._all(claimed))
        for each in made:
            if _is_of(claimed, each):
                return _judged(claimed, each)
        others = _made_elsewhere(made)
        if sum(each.amount for each in others) < _amount(claimed):
            return Answered(claimed, Outcome.UNCLEAR, reason="charge_already_refunded")
        return Answered(claimed, Outcome.REFUNDED, others[0].id, RefundReason.REFUNDED_ELSEWHERE)


def _amount(claimed: Claimed) -> int:
    """Return the amount in Stripe's unit of the currency. It was rounded to that when it became owed; an amount
    of an older release is rounded half up here."""
    ours = minor_digits(claimed.currency)
    theirs = _DIGITS.get(claimed.currency, ours)
    amount: int = (2 * claimed.amount_minor * 10**theirs + 10**ours) // (2 * 10**ours)
    return amount


def _refund_id(refund: stripe.Refund) -> str | None:
    """Of the refund of ours that it was made for; none: somebody made it by hand."""
    return None if refund.metadata is None else refund.metadata.to_dict().get(_REFUND_ID)


def _metadata(claimed: Claimed) -> dict[str, str]:
    reopened = {_REOPENED: str(claimed.reopened_count)} if claimed.reopened_count else {}
    return {_REFUND_ID: claimed.id, "booking_id": claimed.booking_id} | reopened


def _is_of(claimed: Claimed, refund: stripe.Refund) -> bool:
    """Return whether it was made for this one; and not in vain, before staff reopened it."""
    if _refund_id(refund) != claimed.id:
        return False
    reopened = refund.metadata.to_dict().get(_REOPENED) if refund.metadata is not None else None
    return refund.status not in _GIVEN_UP or reopened == (
        str(claimed.reopened_count) if claimed.reopened_count else None
    )


def _made_elsewhere(made: list[stripe.Refund]) -> list[stripe.Refund]:
    """Return the refunds that stand and that are none of ours."""
    return [each for each in made if each.status in ("succeeded", "pending") and _refund_id(each) is None]


def _judged(claimed: Claimed, refund: stripe.Refund) -> Answered:
    outcome = _OUTCOMES.get(refund.status or "", Outcome.UNCLEAR)
    reason = None
    if outcome is not Outcome.REFUNDED:
        reason = getattr(refund, "failure_reason", None) or refund.status
    return Answered(claimed, outcome, refund.id, reason)


def _failed(claimed: Claimed, error: stripe.StripeError) -> Answered:
    reason = error.code or (f"http_{error.http_status}" if error.http_status else "no_answer")
    if isinstance(error, stripe.IdempotencyError):
        outcome = Outcome.UNCLEAR  # somebody used our key for something else
    elif not isinstance(error, stripe.InvalidRequestError | stripe.CardError) or error.code in _TRANSIENT:
        outcome = Outcome.UNKNOWN
    elif claimed.provider_refund_id is not None:
        outcome = Outcome.UNCLEAR  # it was accepted once, and now cannot be read
    else:
        outcome = Outcome.REFUSED
    return Answered(claimed, outcome, reason=reason)
