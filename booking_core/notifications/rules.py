"""Who is told what, and how often it is tried. No storage, no clock."""

from enum import StrEnum

from booking_core.caller import Organization
from booking_core.clock import HOUR, MINUTE
from booking_core.effects import EffectKind
from booking_core.notifications.summary import BookingRow

GUEST_KINDS = frozenset(
    {
        EffectKind.BOOKING_CONFIRMATION_MAIL,
        EffectKind.BOOKING_CANCELLATION_MAIL,
        EffectKind.BOOKING_RESCHEDULING_MAIL,
    }
)
STAFF_BOOKING_KINDS = frozenset(
    {
        EffectKind.STAFF_BOOKING_MAIL,
        EffectKind.STAFF_CANCELLATION_MAIL,
        EffectKind.STAFF_RESCHEDULING_MAIL,
    }
)
"""News of a booking. A refund that was refused is none: it is a guest's money, and somebody has to act on it, whatever
was switched off."""
BOOKING_KINDS = GUEST_KINDS | STAFF_BOOKING_KINDS | {EffectKind.STAFF_REFUND_REFUSED_MAIL}
"""Their subject is a booking."""
MAIL_KINDS = BOOKING_KINDS | {
    EffectKind.STAFF_KEY_EXPIRING_MAIL,
    EffectKind.STAFF_WEBHOOK_FAILING_MAIL,
    EffectKind.STAFF_WEBHOOK_DISABLED_MAIL,
}

WRITING_WAITS = (MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR)
"""After a mail could not be written; one more failure is the last. It is a fault of ours: a release may mend it."""
SENDING_WAITS = tuple(n * MINUTE for n in (1, 5, 15, 30, 60, 120, 240, 480, 720, 720, 720, 720))
"""After a mail was not accepted. Together about two and a half days, as long as other mail servers try."""
SENT_WITHIN = 72 * HOUR
"""A mail that could not be sent for so long is not sent any more: what it tells is no news by then."""


class Unsent(StrEnum):
    """Why an effect was done without a mail."""

    SUPPRESSED = "suppressed"
    NO_RECIPIENT = "no_recipient"


def recipient(kind: EffectKind, organization: Organization, booking: BookingRow | None) -> str | Unsent:
    """The address that a mail goes to, or why there is none.

    What the booking and the organization say now decides, not what they said when the mail was owed.
    """
    if kind in BOOKING_KINDS and booking is None:
        return Unsent.NO_RECIPIENT
    if kind in GUEST_KINDS:
        assert booking is not None
        if kind is EffectKind.BOOKING_CONFIRMATION_MAIL and not booking.send_confirmation_email:
            return Unsent.SUPPRESSED
        return booking.guest_email or Unsent.NO_RECIPIENT
    is_urgent = kind is EffectKind.STAFF_REFUND_REFUSED_MAIL
    if not (organization.notify_staff or is_urgent):
        return Unsent.SUPPRESSED
    if kind in STAFF_BOOKING_KINDS and booking is not None and not booking.notify_staff:
        return Unsent.SUPPRESSED
    return organization.staff_email or Unsent.NO_RECIPIENT


def wait(waits: tuple[int, ...], attempts: int) -> int | None:
    """How long to wait after so many attempts that failed; none when it was the last."""
    return waits[attempts - 1] if attempts <= len(waits) else None
