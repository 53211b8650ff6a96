"""The timeline of a customer or a booking, for staff."""

from enum import StrEnum

import orjson

from booking_core.base import tokens
from booking_core.db import tables
from booking_core.db.engine import Tx


class TimelineKind(StrEnum):
    """The kind of a timeline entry."""

    BOOKING_CREATED = "booking_created"
    BOOKING_CONFIRMED = "booking_confirmed"
    BOOKING_CANCELLED = "booking_cancelled"
    BOOKING_RESCHEDULED = "booking_rescheduled"
    BOOKING_PARTY_CHANGED = "booking_party_changed"
    BOOKING_GUEST_CHANGED = "booking_guest_changed"
    BOOKING_CHECKED_IN = "booking_checked_in"
    BOOKING_CHECK_IN_UNDONE = "booking_check_in_undone"
    BOOKING_NO_SHOW = "booking_no_show"
    BOOKING_NO_SHOW_UNDONE = "booking_no_show_undone"
    CUSTOMER_UPDATED = "customer_updated"
    PAYMENT_RECEIVED = "payment_received"
    PAYMENT_RECORDED = "payment_recorded"
    """Staff recorded a payment that was made by hand."""
    PAYMENT_VOIDED = "payment_voided"
    """A record of staff was a mistake."""
    PAYMENT_FAILED = "payment_failed"
    """The card was declined; the guest may try again until the checkout ends."""
    PAYMENT_NEEDS_REVIEW = "payment_needs_review"
    """The gateway took money that does not fit the booking."""
    PAYMENT_REVIEWED = "payment_reviewed"
    """Staff has decided about such a payment."""
    PAYMENT_RETURNED = "payment_returned"
    """Somebody refunded it at the gateway, outside of this service."""
    PAYMENT_DISPUTED = "payment_disputed"
    """The cardholder has disputed it at the bank."""
    DISPUTE_CLOSED = "dispute_closed"
    GIFT_CARD_REDEEMED = "gift_card_redeemed"
    GIFT_CARD_RESTORED = "gift_card_restored"
    REFUND_REQUESTED = "refund_requested"
    REFUND_SETTLED = "refund_settled"
    """The money was returned, through the gateway or by hand; the data says which."""
    REFUND_REFUSED = "refund_refused"
    """By the gateway."""
    REFUND_NEEDS_REVIEW = "refund_needs_review"
    """It was never sent, or its result is unclear."""
    REFUND_REOPENED = "refund_reopened"
    """Staff had it sent again."""


def note(
    tx: Tx,
    organization_id: str,
    kind: TimelineKind,
    *,
    at: int,
    customer_id: str | None,
    booking_id: str | None,
    **data: object,
) -> None:
    """Insert an entry, except for a legacy booking, which has no customer."""
    if customer_id is None:
        return
    tx.insert(
        tables.timeline,
        organization_id=organization_id,
        id=tokens.new_id(),
        customer_id=customer_id,
        booking_id=booking_id,
        kind=str(kind),
        data=orjson.dumps(data).decode(),
        created_at=at,
    )
