"""The texts of mails to staff about a payment at Stripe that needs a person. No storage, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from booking_core.base.languages import N_, Language
from booking_core.notifications.summary import Summary
from booking_core.records.outbox import OutboxKind

_SUBJECTS = {
    OutboxKind.STAFF_PAYMENT_REVIEW_MAIL: N_("Payment to be checked, booking %(number)s: %(title)s, %(day)s"),
    OutboxKind.STAFF_DISPUTE_OPENED_MAIL: N_("Payment disputed, booking %(number)s: %(title)s, %(day)s"),
    OutboxKind.STAFF_DISPUTE_LOST_MAIL: N_("Dispute lost, booking %(number)s: %(title)s, %(day)s"),
}
_TITLES = {
    OutboxKind.STAFF_PAYMENT_REVIEW_MAIL: N_("A payment has to be checked"),
    OutboxKind.STAFF_DISPUTE_OPENED_MAIL: N_("A payment is disputed"),
    OutboxKind.STAFF_DISPUTE_LOST_MAIL: N_("A dispute is lost"),
}
_REVIEWS = {
    "amount_differs": N_("Stripe took another amount than the booking costs, so that the payment does not confirm it."),
    "currency_differs": N_(
        "Stripe took another currency than the booking has, so that the payment does not confirm it."
    ),
    "refund_differs": N_("Stripe reports a refund of this booking's payment that cannot be recorded."),
    "second_intent": N_("Stripe took another payment for this booking than its own."),
}
_REVIEW = N_("Stripe took a payment that this booking cannot take.")
_LOOK_UP = N_("Look the payment up at Stripe: refund it there, or decide otherwise, and close the review.")
_OPENED = N_("The bank of the cardholder asks for this payment back. The booking stays as it is.")
_ANSWER = N_("Answer the dispute at Stripe within the time that is shown there; without an answer it is lost.")
_LOST = N_("The bank of the cardholder has got this payment back. The booking stays as it is.")


@dataclass(frozen=True, slots=True)
class PaymentNotice:
    """The texts of a mail about a payment, in the organization's language."""

    subject: str
    title: str
    sentences: tuple[str, ...]
    amount: str | None
    reason: str
    payment_intent: str
    can_resolve: bool
    """The operator closes the review by a command."""


def payment_notice(kind: OutboxKind, booking: Summary, payload: Mapping[str, Any], wording: Language) -> PaymentNotice:
    """Return the texts of a mail.

    Args:
        payload: of the outbox row: amount_minor, currency, reason, payment_intent.
    """
    names = {"number": booking.number or "-", "title": booking.title, "day": booking.day}
    amount_minor = payload["amount_minor"]
    return PaymentNotice(
        subject=wording.gettext(_SUBJECTS[kind], **names),
        title=wording.gettext(_TITLES[kind]),
        sentences=tuple(wording.gettext(each) for each in _sentences(kind, payload["reason"])),
        amount=None if amount_minor is None else wording.money(amount_minor, payload["currency"]),
        reason=payload["reason"],
        payment_intent=payload["payment_intent"],
        can_resolve=kind is OutboxKind.STAFF_PAYMENT_REVIEW_MAIL,
    )


def _sentences(kind: OutboxKind, reason: str) -> tuple[str, ...]:
    if kind is OutboxKind.STAFF_PAYMENT_REVIEW_MAIL:
        return (_REVIEWS.get(reason, _REVIEW), _LOOK_UP)
    return (_OPENED, _ANSWER) if kind is OutboxKind.STAFF_DISPUTE_OPENED_MAIL else (_LOST,)
