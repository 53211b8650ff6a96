"""The refund that a guest is offered for cancelling."""

from dataclasses import dataclass

from booking_core import bookings, notifications, payments
from booking_core.models.bookings import BookingStatus, PaymentSource, PaymentStatus
from booking_core.notifications import GuestView


@dataclass(frozen=True, slots=True)
class Offer:
    """The refund for a cancellation, as the page shows it."""

    minor: int
    """The refund, in minor units of the booking's currency."""
    words: str
    gift_card: str | None
    """The amount that returns to the gift card, as text."""


def can_cancel(view: GuestView) -> bool:
    """Return whether the guest can cancel: until the departure starts. After that staff decides about refunds."""
    return view.row.status != BookingStatus.CANCELLED and not view.has_begun


def can_move(view: GuestView) -> bool:
    """Return whether the guest can move the booking now, by the organization's policy."""
    until = bookings.moves_until(view.actor.organization, view.row.starts_at)
    return view.row.status != BookingStatus.CANCELLED and until is not None and view.actor.at < until


def offer(view: GuestView) -> Offer:
    """Return the refund for cancelling now, by the organization's policy (decision B12)."""
    row = view.row
    wording = view.language
    gift_card = wording.money(row.gift_card_minor, row.currency) if row.gift_card_minor else None
    is_card = row.payment_source == PaymentSource.STRIPE and row.payment_status == PaymentStatus.PAID
    paid = (row.paid_minor or 0) if is_card else row.recorded_minor
    if not paid:
        words = (
            wording.gettext("No card was charged, so nothing is returned to one."),
            wording.gettext("If you paid in another way, please ask the company you booked with."),
        )
        return Offer(0, " ".join(words), gift_card)
    minor = _refund(view, paid, is_card=is_card)
    return Offer(max(0, minor), _words(view, paid, minor, is_card=is_card), gift_card)


def _refund(view: GuestView, paid: int, *, is_card: bool) -> int:
    organization, at, starts_at = view.actor.organization, view.actor.at, view.row.starts_at
    return payments.refund_amount(
        organization,
        paid_minor=paid,
        refunded_minor=0,
        currency=view.row.currency,
        starts_at=starts_at,
        at=at,
        by_hand=not is_card,
    ).amount_minor


def _words(view: GuestView, paid: int, minor: int, *, is_card: bool) -> str:
    wording, currency = view.language, view.row.currency
    _, whole = wording.gettext, wording.money(paid, currency)
    if minor <= 0:
        return _("It is too late for a refund: of the %(whole)s that you paid nothing is returned.", whole=whole)
    operator, part = notifications.one_line(view.actor.organization.name), wording.money(minor, currency)
    if minor >= paid:
        if is_card:
            return _("%(part)s is returned to your card.", part=part)
        return _("%(part)s is returned to you by %(operator)s.", part=part, operator=operator)
    names = {"part": part, "whole": whole, "operator": operator}
    if is_card:
        return _("%(part)s of %(whole)s is returned to your card.", **names)
    return _("%(part)s of %(whole)s is returned to you by %(operator)s.", **names)
