"""The terms of a cancellation: whether it is allowed, its refund now, and the instant until which it is full.

A cancellation requests the same amount (`payments.refundable`). Responses have the terms as of their instant, events as
of `created_at` (decisions/0028).
"""

from functools import lru_cache
from typing import NamedTuple

from booking_core import payments
from booking_core.base.clock import Zone
from booking_core.base.context import Organization
from booking_core.base.packed_json import packed_json
from booking_core.bookings import rules
from booking_core.bookings.store import BookingWithPayment
from booking_core.models.bookings import BookingStatus
from booking_core.models.money import money_json
from booking_core.payments import RefundTerms


class Refundable(NamedTuple):
    """The payment of a booking that a cancellation refunds by the policy, in minor units of its currency."""

    minor: int
    """The refund of a cancellation now."""
    received_minor: int
    """The payment, without the part that was refunded before."""
    by_card: bool
    """It goes back to the card; otherwise staff returns it."""


_NOTHING = Refundable(0, 0, by_card=False)
_CANCELLED = str(BookingStatus.CANCELLED)
_RENDERED_MAX = 16_384
"""As many as the instants that a zone remembers."""


def refundable(booking: BookingWithPayment, organization: Organization, at: int) -> Refundable:
    """Return the payment that a cancellation at that instant would refund by the policy."""
    row, payment = booking.row, booking.payment
    has_payment = payment is not None and rules.has_refundable_payment(row, booking.recorded_minor)
    if payment is None or not has_payment or row.status == BookingStatus.CANCELLED:
        return _NOTHING
    by_card = rules.is_paid_by_card(row)
    refund = payments.refundable(RefundTerms(organization, row.starts_at, at, by_hand=not by_card), payment)
    return Refundable(refund.amount_minor, payment.amount_minor - payment.refunded_minor, by_card)


def render(booking: BookingWithPayment, organization: Organization, at: int) -> bytes:
    """Render the terms of a booking as in the API, at an instant."""
    row, zone, late_percent = booking.row, organization.zone, organization.refund_late_percent
    is_cancelled = row.status == _CANCELLED
    refund = 0 if booking.payment is None else refundable(booking, organization, at).minor
    until = organization.refunds_in_full_until(row.starts_at)
    gift_card = 0 if is_cancelled else row.gift_card_minor
    guest_until = None if is_cancelled else organization.guest_cancels_until(row.starts_at)
    return _render(is_cancelled, refund, gift_card, row.currency, until, guest_until, zone, late_percent)


@lru_cache(_RENDERED_MAX)
def _render(
    is_cancelled: bool,
    refund_minor: int,
    gift_card_minor: int,
    currency: str,
    until: int,
    guest_until: int | None,
    zone: Zone,
    late_percent: int,
) -> bytes:
    """Return the terms as JSON. Most bookings of one departure have the same."""
    terms = {
        "allowed": not is_cancelled,
        "refundable_amount": money_json(refund_minor, currency),
        "gift_card_amount": money_json(gift_card_minor, currency),
        "until": zone.iso(max(0, until)),
        "late_percent": late_percent,
        "guest_until": zone.iso_or_none(guest_until),
    }
    return packed_json(terms)
