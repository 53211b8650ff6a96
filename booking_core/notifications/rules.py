"""Rules of mails: recipients, retry delays, and which mails may be retried. No storage, no clock."""

from enum import StrEnum
from typing import Any, NamedTuple

from booking_core.base.clock import END_OF_TIME, HOUR, MINUTE
from booking_core.base.context import Organization
from booking_core.base.errors import Conflict
from booking_core.models.reasons import ErrorReason
from booking_core.notifications.summary import GiftCardDetails, MailBooking
from booking_core.records.outbox import OutboxKind

GUEST_KINDS = frozenset(
    {
        OutboxKind.BOOKING_CONFIRMATION_MAIL,
        OutboxKind.BOOKING_CANCELLATION_MAIL,
        OutboxKind.BOOKING_RESCHEDULING_MAIL,
        OutboxKind.BOOKING_CHANGE_MAIL,
    }
)
TO_GUESTS = GUEST_KINDS | {OutboxKind.GIFT_CARD_MAIL}
"""Sent to guests, in their language and in the name of the organization."""
STAFF_REFUND_KINDS = frozenset({OutboxKind.STAFF_REFUND_REFUSED_MAIL, OutboxKind.STAFF_REFUND_REVIEW_MAIL})
"""A refund needs a person. It is about a guest's money, so no notification setting suppresses it."""
STAFF_PAYMENT_KINDS = frozenset(
    {
        OutboxKind.STAFF_PAYMENT_REVIEW_MAIL,
        OutboxKind.STAFF_DISPUTE_OPENED_MAIL,
        OutboxKind.STAFF_DISPUTE_LOST_MAIL,
    }
)
"""A payment at Stripe needs a person; no notification setting suppresses it, for the same reason."""
ANNOUNCING_KINDS = frozenset(
    {
        OutboxKind.BOOKING_CONFIRMATION_MAIL,
        OutboxKind.BOOKING_RESCHEDULING_MAIL,
        OutboxKind.STAFF_BOOKING_MAIL,
        OutboxKind.STAFF_RESCHEDULING_MAIL,
    }
)
"""Sent only before the departure starts. A cancellation or a refund is about money, and is sent after it, too."""
MAIL_KINDS = frozenset(OutboxKind)
BOOKING_KINDS = MAIL_KINDS - {
    OutboxKind.GIFT_CARD_MAIL,
    OutboxKind.STAFF_KEY_EXPIRING_MAIL,
    OutboxKind.STAFF_WEBHOOK_FAILING_MAIL,
    OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL,
}
"""Their subject is a booking."""

WRITE_RETRY_DELAYS = (MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR)
"""Delays after a mail could not be rendered; one more failure is the last. A later release may fix the fault."""
SEND_RETRY_DELAYS = tuple(n * MINUTE for n in (1, 5, 15, 30, 60, 120, 240, 480, 720, 720, 720, 720))
"""Delays after a mail was not accepted. Together about two and a half days, as long as other mail servers retry."""
SENT_WITHIN = 72 * HOUR
"""A mail that could not be sent for so long is not sent any more: it is no news by then."""


class NoMailReason(StrEnum):
    """The reason why an outbox row was completed without a mail."""

    SUPPRESSED = "suppressed"
    NO_RECIPIENT = "no_recipient"


def recipient(
    kind: OutboxKind,
    organization: Organization,
    booking: MailBooking | None,
    gift_card: GiftCardDetails | None = None,
) -> str | NoMailReason:
    """Return the address of a mail, or the reason for no mail.

    The present rows of the booking, the gift card and the organization decide, not their state when the mail was
    enqueued.
    """
    if kind is OutboxKind.GIFT_CARD_MAIL:
        return _recipient_of_gift_card(gift_card)
    if kind in BOOKING_KINDS and booking is None:
        return NoMailReason.NO_RECIPIENT
    if kind in GUEST_KINDS:
        assert booking is not None
        if kind is OutboxKind.BOOKING_CONFIRMATION_MAIL and not booking.send_confirmation_email:
            return NoMailReason.SUPPRESSED
        return booking.guest_email or NoMailReason.NO_RECIPIENT
    if not (organization.notify_staff or kind in STAFF_REFUND_KINDS | STAFF_PAYMENT_KINDS):
        return NoMailReason.SUPPRESSED
    # The booking's own switch is about the notice of its creation alone (decision B17).
    if kind is OutboxKind.STAFF_BOOKING_MAIL and booking is not None and not booking.notify_staff:
        return NoMailReason.SUPPRESSED
    return organization.staff_email or NoMailReason.NO_RECIPIENT


def _recipient_of_gift_card(gift_card: GiftCardDetails | None) -> str | NoMailReason:
    if gift_card is not None and gift_card.deactivated_at is not None:
        return NoMailReason.SUPPRESSED
    return (gift_card.recipient_email if gift_card else None) or NoMailReason.NO_RECIPIENT


def retry_delay(delays: tuple[int, ...], attempts: int) -> int | None:
    """Return the delay after so many failed attempts, 0 before the first; None after the last."""
    return (0, *delays)[attempts] if attempts <= len(delays) else None


# For an operator -------------------------------------------------------------------------------------------------


class MailStatus(StrEnum):
    """The status of a mail, and a filter of a list of mails."""

    QUEUED = "queued"
    """To be sent, or to be written first."""
    SENT = "sent"
    FAILED = "failed"
    UNWRITTEN = "unwritten"
    """Enqueued, and could not be rendered."""


class Mail(NamedTuple):
    """A mail for an operator, without its text. A mail that is not written yet has no id."""

    organization_id: str
    id: str | None
    effect_key: str
    kind: str
    booking_id: str | None
    recipient: str | None
    message_id: str | None
    status: str
    """A `MailStatus`, or the reason for no mail (`NoMailReason`)."""
    attempt_count: int
    last_error: str | None
    created_at: int
    sent_at: int | None
    next_attempt_at: int | None

    @property
    def name(self) -> str:
        """Return the id, or the key of the outbox row while the mail is not written."""
        return self.id or self.effect_key


def status_of_effect(status: str, last_error: str | None) -> str:
    """Return the status of a mail that exists only as an outbox row."""
    if status == "done":
        return last_error or status
    return MailStatus.UNWRITTEN if status == "failed" else status


def due_at(mail: Mail) -> int | None:
    """Return the instant of the next attempt; None for never, and for a parked mail."""
    is_parked = mail.next_attempt_at is not None and mail.next_attempt_at >= END_OF_TIME
    return None if is_parked else mail.next_attempt_at


def present(mail: Mail, organization: Organization) -> dict[str, Any]:
    """Return the mail as JSON-ready values, without its text, which holds the guest's secret link."""
    iso = organization.zone.iso_or_none
    return {
        "id": mail.name,
        "organization": organization.slug,
        "kind": mail.kind,
        "booking_id": mail.booking_id,
        "recipient": mail.recipient,
        "status": str(mail.status),
        "attempt_count": mail.attempt_count,
        "last_error": mail.last_error,
        "created_at": iso(mail.created_at),
        "sent_at": iso(mail.sent_at),
        "next_attempt_at": iso(due_at(mail)),
        "effect_key": mail.effect_key,
        "message_id": mail.message_id,
    }


def check_retry(
    mail: Mail, organization: Organization, *, enqueued_at: int, starts_at: int | None, at: int, anyway: bool
) -> None:
    """Refuse to retry a mail that did not fail, or that is too old.

    Args:
        enqueued_at: the instant of its cause.
        starts_at: the present start of the departure of its booking.
        anyway: skip the check of the age.

    Raises:
        Conflict: `mail_sent`, `mail_queued`, `mail_unwanted`, `departure_started` or `mail_too_old`.
    """

    def refused(reason: ErrorReason, message: str) -> Conflict:
        return Conflict(reason, f"The mail {mail.name} {message}", mail.name)

    zone = organization.zone
    if mail.sent_at is not None:
        raise refused("mail_sent", f"was sent at {zone.iso(mail.sent_at)}; nothing is sent twice.")
    if mail.status == MailStatus.QUEUED:
        due = due_at(mail)
        waits = "waits for a mail server (BOOKING_SMTP_URL)" if due is None else f"due at {zone.iso(due)}"
        raise refused("mail_queued", f"is queued already, {waits}.")
    if mail.status not in (MailStatus.FAILED, MailStatus.UNWRITTEN):
        raise refused("mail_unwanted", f"was not to be written ({mail.status}), and has not failed.")
    if mail.kind in ANNOUNCING_KINDS and starts_at is not None and starts_at <= at:
        raise refused("departure_started", f"is about a departure that began at {zone.iso(starts_at)}.")
    if at - enqueued_at > SENT_WITHIN and not anyway:
        late = f"was due at {zone.iso(enqueued_at)}, over {SENT_WITHIN // HOUR} hours ago: too late to be sent."
        raise refused("mail_too_old", late)
