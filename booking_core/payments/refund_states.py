"""States of a refund, and their sentences for the guest and for staff.

Mails, the guest's page, the timeline, logs and the command line take their sentences from here.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from booking_core.models.money import formatted


class RefundStatus(StrEnum):
    """`refunds.status`."""

    REQUESTED = "requested"
    """To be sent by the worker."""
    SENDING = "sending"
    SUCCEEDED = "succeeded"
    """The gateway returned the money."""
    SETTLED = "settled"
    """Staff closed it: the money was returned by hand, or is not returned at all."""
    FAILED = "failed"
    """The gateway refused it."""
    NEEDS_REVIEW = "needs_review"
    """It was never sent, or its result is unclear."""


WAITING = frozenset({RefundStatus.FAILED, RefundStatus.NEEDS_REVIEW})
"""The statuses of refunds that need a person."""


class RefundReason(StrEnum):
    """`refunds.last_error` where it is not the gateway's own code."""

    NO_GATEWAY = "no_gateway"
    NO_PAYMENT_INTENT = "no_payment_intent"
    PAID_BY_HAND = "paid_by_hand"
    NEVER_SETTLED = "never_settled"
    REFUNDED_ELSEWHERE = "refunded_elsewhere"
    PARTLY_REFUNDED_ELSEWHERE = "partly_refunded_elsewhere"


_UNSENT = {
    RefundReason.NO_GATEWAY: "no payment gateway is configured (BOOKING_STRIPE_API_KEY), so nothing was sent",
    RefundReason.NO_PAYMENT_INTENT: "the payment came without a payment intent, so nothing could be sent",
    RefundReason.PAID_BY_HAND: "the payment was taken by hand and not through the gateway",
}
_UNCLEAR = {
    RefundReason.NO_GATEWAY: "the payment gateway was removed from the configuration before it had answered",
    RefundReason.NEVER_SETTLED: "the gateway gave no usable answer to any of many attempts",
    RefundReason.PARTLY_REFUNDED_ELSEWHERE: "a part of the payment was refunded at the gateway by somebody else",
}


class Wording(Protocol):
    """The language of a guest, as far as these sentences need it (`booking_core.base.languages`)."""

    def gettext(self, message: str, **values: object) -> str: ...

    def money(self, amount_minor: int, currency: str) -> str: ...


@dataclass(frozen=True, slots=True)
class RefundState:
    """The parts of a refund that its sentences need."""

    status: str
    amount_minor: int
    """The amount to return."""
    currency: str
    reason: str | None = None
    was_sent: bool = False
    is_accepted: bool = False
    """The gateway has given it an id."""
    settled_minor: int | None = None
    """Returned by hand; 0: staff closed it without returning anything."""

    @property
    def amount(self) -> str:
        return formatted(self.amount_minor, self.currency)

    @property
    def settled(self) -> str:
        return formatted(self.settled_minor or 0, self.currency)

    @property
    def waits(self) -> bool:
        """Return whether a person has to act."""
        return self.status in WAITING

    @property
    def is_unclear(self) -> bool:
        """Return whether it is unknown if the money was returned."""
        return self.status == RefundStatus.NEEDS_REVIEW and self.was_sent

    @property
    def task(self) -> str:
        """Return the task of a person, for the subject of a mail."""
        if self.status in (RefundStatus.SUCCEEDED, RefundStatus.SETTLED):
            return "Refund settled meanwhile"
        if not self.waits:
            return "Refund being sent again"
        return "Refund to be checked" if self.is_unclear else "Refund by hand needed"

    @property
    def was_by_card(self) -> bool:
        """Return whether the gateway took the payment, and so may have returned a part of it."""
        return self.reason != RefundReason.PAID_BY_HAND

    def for_guest(self, operator: str, wording: Wording) -> str:
        """Return the sentences for the guest.

        Args:
            operator: the name of the organization, which makes refunds by hand.
            wording: the guest's language.
        """
        _, names = wording.gettext, self._names(operator, wording)
        if self.status == RefundStatus.SETTLED:
            return self._settled_for_guest(names, wording)
        if self.waits:
            owed = _("%(amount)s is to be returned to you.", **names)
            return f"{owed} {self._waiting_for_guest(names, wording)}"
        if self.status == RefundStatus.SUCCEEDED:
            state = _("%(amount)s was returned to the card that paid.", **names)
        elif self.is_accepted:
            state = _("%(amount)s is on its way back to the card that paid.", **names)
        else:
            state = _("%(amount)s will be returned to you, normally to the card that paid.", **names)
        banks = _("Banks take some days to show it.")
        return f"{state} {banks}"

    def _names(self, operator: str, wording: Wording) -> dict[str, str]:
        settled = wording.money(self.settled_minor or 0, self.currency)
        return {"amount": wording.money(self.amount_minor, self.currency), "settled": settled, "operator": operator}

    def _settled_for_guest(self, names: dict[str, str], wording: Wording) -> str:
        _ = wording.gettext
        if self.settled_minor:
            return _("%(settled)s was returned to you by %(operator)s.", **names)
        return _(
            "%(operator)s has closed the refund of %(amount)s and returns nothing more. Please ask them about it.",
            **names,
        )

    def _waiting_for_guest(self, names: dict[str, str], wording: Wording) -> str:
        _ = wording.gettext
        if self.status == RefundStatus.FAILED:
            return _(
                "It could not be returned to the card that paid, so %(operator)s will make the refund by hand.", **names
            )
        if self.is_unclear:
            return _("%(operator)s is checking whether it has reached the card that paid.", **names)
        return _("%(operator)s will make the refund by hand.", **names)

    def for_staff(self) -> str:
        """Return the sentence for staff, in mails and on the command line."""
        if self.status == RefundStatus.SUCCEEDED:
            elsewhere = self.reason == RefundReason.REFUNDED_ELSEWHERE
            return f"{self.amount} was returned to the card{', by somebody at the gateway' if elsewhere else ''}."
        if self.status == RefundStatus.SETTLED:
            return self._settled_for_staff()
        if self.waits:
            return self._waiting_for_staff()
        if self.is_accepted:
            return f"The gateway has accepted the refund of {self.amount} and has not paid it out yet."
        if self.status == RefundStatus.SENDING:
            return f"The refund of {self.amount} is being sent; the gateway has not confirmed it yet."
        return f"The refund of {self.amount} is queued and has not been sent yet."

    def _settled_for_staff(self) -> str:
        if not self.settled_minor:
            return f"The refund of {self.amount} was closed by hand, and nothing was returned."
        of = "" if self.settled_minor == self.amount_minor else f" (due: {self.amount})"
        return f"{self.settled}{of} was returned by hand."

    def _waiting_for_staff(self) -> str:
        if self.status == RefundStatus.FAILED:
            return f"{self.amount} has to be returned by hand: the gateway refused the refund ({self.reason})."
        reasons = _UNCLEAR if self.was_sent else _UNSENT
        why = {str(refund_reason): text for refund_reason, text in reasons.items()}.get(self.reason or "", "")
        if not self.was_sent:
            return f"{self.amount} has to be returned by hand: {why or f'it was not sent ({self.reason})'}."
        why = why or f"the gateway's answer is unclear ({self.reason})"
        return (
            f"The refund of {self.amount} needs a person: {why}. It may have been made, so look the payment up at the"
            " gateway before you pay."
        )
