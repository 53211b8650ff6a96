"""The terms of a booking's cancellation, and what a cancellation would return now.

The amount is that of `payments.refundable`, by which a cancellation requests its refund. It depends on the present
instant, so that it is in no event and in no stored answer (decisions/0052).
"""

from typing import Any

from booking_core import payments
from booking_core.bookings import rules
from booking_core.bookings.store import ShownBooking
from booking_core.context import Organization
from booking_core.models.bookings import BookingStatus


def present(booking: ShownBooking, organization: Organization, at: int) -> dict[str, Any]:
    """Present the terms as in the API, at an instant."""
    row, zone = booking.row, organization.zone
    is_cancelled = row.status == BookingStatus.CANCELLED
    until = max(0, organization.refunds_in_full_until(row.starts_at))
    return {
        "allowed": not is_cancelled,
        "refundable_amount": rules.money(_refundable_minor(booking, organization, at), row.currency),
        "gift_card_amount": rules.money(0 if is_cancelled else row.gift_card_minor, row.currency),
        "until": zone.iso(until),
        "late_percent": organization.refund_late_percent,
    }


def _refundable_minor(booking: ShownBooking, organization: Organization, at: int) -> int:
    row, payment = booking.row, booking.payment
    has_payment = payment is not None and rules.has_refundable_payment(row, booking.recorded_minor)
    if payment is None or not has_payment or row.status == BookingStatus.CANCELLED:
        return 0
    by_hand = not rules.is_paid_by_card(row)
    return payments.refundable(organization, payment, starts_at=row.starts_at, at=at, by_hand=by_hand).amount_minor
