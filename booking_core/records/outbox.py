"""The transactional outbox: rows written in the transaction of their cause and carried out later by the worker.

A booking calls neither mail nor a gateway. It enqueues a row: a crash keeps both or neither. The rows are in the table
`effects`.
"""

from collections.abc import Mapping
from enum import StrEnum

import orjson

from booking_core.db import tables
from booking_core.db.engine import Tx


class OutboxKind(StrEnum):
    """The kinds of outbox rows, each a mail."""

    BOOKING_CONFIRMATION_MAIL = "booking_confirmation_mail"
    BOOKING_CANCELLATION_MAIL = "booking_cancellation_mail"
    BOOKING_RESCHEDULING_MAIL = "booking_rescheduling_mail"
    """The payload holds previous_starts_at (an instant)."""
    BOOKING_CHANGE_MAIL = "booking_change_mail"
    """The party changed; the payload holds refund_minor and currency: the refund to the guest or the gift card."""
    GIFT_CARD_MAIL = "gift_card_mail"
    """The subject is the gift card; the payload holds locale (null: the organization's language)."""
    STAFF_BOOKING_MAIL = "staff_booking_mail"
    STAFF_CANCELLATION_MAIL = "staff_cancellation_mail"
    STAFF_RESCHEDULING_MAIL = "staff_rescheduling_mail"
    """The payload holds previous_starts_at (an instant)."""
    STAFF_REFUND_REFUSED_MAIL = "staff_refund_refused_mail"
    """The gateway refused a refund, which has to be made by hand; the subject is the booking, the payload holds
    amount_minor, currency, reason."""
    STAFF_REFUND_REVIEW_MAIL = "staff_refund_review_mail"
    """A refund was never sent, or its result is unclear; the same payload."""
    STAFF_PAYMENT_REVIEW_MAIL = "staff_payment_review_mail"
    """Stripe took money that does not fit its booking, which is the subject; the payload holds amount_minor, currency,
    reason, payment_intent. Without an amount the money is not a whole number of minor units."""
    STAFF_DISPUTE_OPENED_MAIL = "staff_dispute_opened_mail"
    """The cardholder's bank asks for a payment back; the subject is the booking, the payload the same."""
    STAFF_DISPUTE_LOST_MAIL = "staff_dispute_lost_mail"
    """The bank has kept a disputed payment; the same payload."""
    STAFF_KEY_EXPIRING_MAIL = "staff_key_expiring_mail"
    """The subject is the API key; the payload holds name, prefix, expires_at (an instant)."""
    STAFF_WEBHOOK_FAILING_MAIL = "staff_webhook_failing_mail"
    """An endpoint fails and will be switched off; the payload holds url, hours, failures, since (an instant)."""
    STAFF_WEBHOOK_DISABLED_MAIL = "staff_webhook_disabled_mail"
    """An endpoint was switched off; the same payload."""


def enqueue(
    tx: Tx,
    organization_id: str,
    kind: OutboxKind,
    subject_id: str,
    *,
    at: int,
    payload: Mapping[str, object] | None = None,
    occurrence: str = "",
) -> None:
    """Enqueue a row of that kind for that subject, due now.

    The key makes a second row of the same kind and subject impossible while the first is kept. It is purged some weeks
    after it was done, so a caller decides by the subject's own row, never by a look into the outbox.

    Args:
        occurrence: distinguishes rows of one kind that a subject may have more than once.
    """
    tx.insert(
        tables.effects,
        organization_id=organization_id,
        key=f"{kind}:{subject_id}:{occurrence}" if occurrence else f"{kind}:{subject_id}",
        kind=str(kind),
        subject_id=subject_id,
        payload=orjson.dumps(payload or {}).decode(),
        status="queued",
        due_at=at,
        created_at=at,
    )
