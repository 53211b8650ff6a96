"""Mails to guests and staff, and the summary of a booking that its guest sees.

The worker calls `write`, which renders the mails of the outbox, then `claim`, hands the mails to a mail server, and
stores the results with `record`. An operator lists mails and retries failed ones.
"""

from booking_core.notifications.calendar import entry as calendar_entry
from booking_core.notifications.formatting import Brand, brand, one_line, qr_svg
from booking_core.notifications.message import Mailbox
from booking_core.notifications.rendering import isolated
from booking_core.notifications.rules import Mail, MailStatus, present
from booking_core.notifications.sending import DUE, PARKED, ClaimedMail, MailOutcome, MailResult, claim, record, unpark
from booking_core.notifications.service import (
    ENDED_MAILS,
    ENDED_UNMAILED,
    GiftCardView,
    GuestView,
    anonymize,
    find,
    find_failed,
    get,
    open_gift_card_link,
    open_link,
    purge,
    redirect,
    retry,
    retry_each,
)
from booking_core.notifications.summary import Summary
from booking_core.notifications.writing import OWED, SEALED_FOR, configured_sender, default_sender, write
