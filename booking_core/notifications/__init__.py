"""Mails to guests and staff, and the summary of a booking that its guest sees.

The worker calls `write`, which renders the mails of the outbox, then `claim`, hands the mails to a mail server, and
stores the results with `record`. An operator lists mails and retries failed ones.
"""

from booking_core.notifications.anonymizing import anonymize
from booking_core.notifications.branding import Brand, brand
from booking_core.notifications.calendar import entry as calendar_entry
from booking_core.notifications.formatting import money, one_line
from booking_core.notifications.guest import GiftCardView, GuestView, open_gift_card_link, open_link
from booking_core.notifications.message import Mailbox
from booking_core.notifications.qr_codes import svg as qr_svg
from booking_core.notifications.rendering import isolated
from booking_core.notifications.rules import SEND_RETRY_DELAYS, WRITE_RETRY_DELAYS, Mail, MailStatus, present
from booking_core.notifications.sending import (
    DUE,
    PARKED,
    ClaimedMail,
    MailOutcome,
    MailResult,
    claim,
    record,
    unpark,
)
from booking_core.notifications.service import (
    ENDED_MAILS,
    ENDED_UNMAILED,
    find,
    find_failed,
    get,
    purge,
    purge_unmailed,
    retry,
    retry_each,
)
from booking_core.notifications.summary import Summary
from booking_core.notifications.writing import OWED, SEALED_FOR, configured_sender, default_sender, write

__all__ = [
    "DUE",
    "ENDED_MAILS",
    "ENDED_UNMAILED",
    "OWED",
    "PARKED",
    "SEALED_FOR",
    "SEND_RETRY_DELAYS",
    "WRITE_RETRY_DELAYS",
    "Brand",
    "ClaimedMail",
    "GiftCardView",
    "GuestView",
    "Mail",
    "MailOutcome",
    "MailResult",
    "MailStatus",
    "Mailbox",
    "Summary",
    "anonymize",
    "brand",
    "calendar_entry",
    "claim",
    "configured_sender",
    "default_sender",
    "find",
    "find_failed",
    "get",
    "isolated",
    "money",
    "one_line",
    "open_gift_card_link",
    "open_link",
    "present",
    "purge",
    "purge_unmailed",
    "qr_svg",
    "record",
    "retry",
    "retry_each",
    "unpark",
    "write",
]
