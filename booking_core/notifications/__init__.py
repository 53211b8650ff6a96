"""Mail: what is owed as an effect is written once, and sent until it is accepted. And a booking as its guest reads it.

The worker calls `write_due`, then `claim`, hands the mails to a mail server, and says with `record` what became of
them. An operator finds them, and has those written anew that failed.
"""

from booking_core.notifications.guest import GuestView, open_link
from booking_core.notifications.message import Mailbox
from booking_core.notifications.rules import SENDING_WAITS, WRITING_WAITS, Mail, MailStatus, present
from booking_core.notifications.sending import Claimed, Outcome, Tried, claim, pending, record, unpark
from booking_core.notifications.service import find, find_failed, get, purge, purge_unmailed, retry, retry_each
from booking_core.notifications.summary import Summary
from booking_core.notifications.wording import money, one_line
from booking_core.notifications.writing import SEALED_FOR, default_sender, write_due

__all__ = [
    "SEALED_FOR",
    "SENDING_WAITS",
    "WRITING_WAITS",
    "Claimed",
    "GuestView",
    "Mail",
    "MailStatus",
    "Mailbox",
    "Outcome",
    "Summary",
    "Tried",
    "claim",
    "default_sender",
    "find",
    "find_failed",
    "get",
    "money",
    "one_line",
    "open_link",
    "pending",
    "present",
    "purge",
    "purge_unmailed",
    "record",
    "retry",
    "retry_each",
    "unpark",
    "write_due",
]
