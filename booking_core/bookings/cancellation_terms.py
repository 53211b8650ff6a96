"""The terms of a booking's cancellation, and what a cancellation would return now.

The amount is that of `payments.refundable`, by which a cancellation requests its refund. It depends on the present
instant, so it is in every response that shows the booking, and in no event (decisions/0028).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import orjson

from booking_core import payments
from booking_core.base.clock import Zone
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import NotFound
from booking_core.bookings import rules, store
from booking_core.bookings.store import ShownBooking
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus


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


def get_refundable(tx: Tx, actor: Actor, booking_id: str) -> Refundable:
    """Return the payment that the guest's cancellation now would refund.

    Raises:
        NotFound: the organization has no such booking.
    """
    booking = store.get_shown(tx, actor.organization.id, booking_id)
    if booking is None:
        raise NotFound("There is no such booking.")
    return _refundable(booking, actor.organization, actor.at)


def renderer(organization: Organization, at: int) -> Callable[[ShownBooking], bytes]:
    """Return a function that renders the terms of a booking as in the API, at an instant."""
    zone, late_percent = organization.zone, organization.refund_late_percent

    def render(booking: ShownBooking) -> bytes:
        row = booking.row
        is_cancelled = row.status == _CANCELLED
        refund = 0 if booking.payment is None else _refundable(booking, organization, at).minor
        until = organization.refunds_in_full_until(row.starts_at)
        gift_card = 0 if is_cancelled else row.gift_card_minor
        return _rendered(is_cancelled, refund, gift_card, row.currency, until, zone, late_percent)

    return render


@lru_cache(_RENDERED_MAX)
def _rendered(
    is_cancelled: bool,
    refund_minor: int,
    gift_card_minor: int,
    currency: str,
    until: int,
    zone: Zone,
    late_percent: int,
) -> bytes:
    """Return the terms as JSON. Most bookings of one departure have the same."""
    shown = {
        "allowed": not is_cancelled,
        "refundable_amount": rules.money(refund_minor, currency),
        "gift_card_amount": rules.money(gift_card_minor, currency),
        "until": zone.iso(max(0, until)),
        "late_percent": late_percent,
    }
    return orjson.dumps(shown)


def _refundable(booking: ShownBooking, organization: Organization, at: int) -> Refundable:
    row, payment = booking.row, booking.payment
    has_payment = payment is not None and rules.has_refundable_payment(row, booking.recorded_minor)
    if payment is None or not has_payment or row.status == BookingStatus.CANCELLED:
        return _NOTHING
    by_card = rules.is_paid_by_card(row)
    refund = payments.refundable(organization, payment, starts_at=row.starts_at, at=at, by_hand=not by_card)
    return Refundable(refund.amount_minor, payment.amount_minor - payment.refunded_minor, by_card)
