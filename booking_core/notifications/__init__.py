"""Mails to guests and staff, and the summary of a booking that its guest sees.

The worker calls `write`, which renders the mails of the outbox, then `claim`, hands the mails to a mail server, and
stores the results with `record`. An operator lists mails and retries failed ones.
"""

from booking_core.notifications.anonymizing import anonymize
from booking_core.notifications.formatting import money, one_line
from booking_core.notifications.guest import GuestView, open_link
from booking_core.notifications.message import Mailbox
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
from booking_core.notifications.writing import OWED, SEALED_FOR, default_sender, write

__all__ = [
    "DUE",
    "ENDED_MAILS",
    "ENDED_UNMAILED",
    "OWED",
    "PARKED",
    "SEALED_FOR",
    "SEND_RETRY_DELAYS",
    "WRITE_RETRY_DELAYS",
    "ClaimedMail",
    "GuestView",
    "Mail",
    "MailOutcome",
    "MailResult",
    "MailStatus",
    "Mailbox",
    "Summary",
    "anonymize",
    "claim",
    "default_sender",
    "find",
    "find_failed",
    "get",
    "money",
    "one_line",
    "open_link",
    "present",
    "purge",
    "purge_unmailed",
    "record",
    "retry",
    "retry_each",
    "unpark",
    "write",
]
