"""The refund that a guest is offered for cancelling."""

from dataclasses import dataclass

from booking_core import notifications
from booking_core.bookings import Refundable
from booking_core.models.bookings import PaymentStatus
from booking_core.notifications import GuestView


@dataclass(frozen=True, slots=True)
class Offer:
    """The refund for a cancellation, as the page shows it."""

    minor: int
    """The refund, in minor units of the booking's currency."""
    words: str
    gift_card: str | None
    """The amount that returns to the gift card, as text."""


def offer(view: GuestView, refundable: Refundable) -> Offer:
    """Return the refund for cancelling now, as the cancellation requests it.

    Args:
        refundable: of the booking, now.
    """
    row, wording = view.row, view.language
    gift_card = wording.money(row.gift_card_minor, row.currency) if row.gift_card_minor else None
    return Offer(refundable.minor, _words(view, refundable), gift_card)


def _words(view: GuestView, refundable: Refundable) -> str:
    wording, currency = view.language, view.row.currency
    _, minor, received = wording.gettext, refundable.minor, refundable.received_minor
    if not received:
        return _nothing_received(view)
    whole = wording.money(received, currency)
    if minor <= 0:
        return _("It is too late for a refund: of the %(whole)s that you paid nothing is returned.", whole=whole)
    operator, part = notifications.one_line(view.actor.organization.name), wording.money(minor, currency)
    if minor >= received:
        if refundable.by_card:
            return _("%(part)s is returned to your card.", part=part)
        return _("%(part)s is returned to you by %(operator)s.", part=part, operator=operator)
    names = {"part": part, "whole": whole, "operator": operator}
    if refundable.by_card:
        return _("%(part)s of %(whole)s is returned to your card.", **names)
    return _("%(part)s of %(whole)s is returned to you by %(operator)s.", **names)


def _nothing_received(view: GuestView) -> str:
    wording = view.language
    if view.row.payment_status == PaymentStatus.REFUNDED:
        return wording.gettext("What you paid was returned before.")
    words = (
        wording.gettext("No card was charged, so nothing is returned to one."),
        wording.gettext("If you paid in another way, please ask the company you booked with."),
    )
    return " ".join(words)
