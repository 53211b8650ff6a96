"""Writes the mails of due outbox rows."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from booking_core.base import tokens
from booking_core.base.context import Installation, Organization
from booking_core.base.guest_links import ManageLinks, gift_card_link
from booking_core.base.settings import named_mailbox
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.due_work.rows import Processed
from booking_core.notifications import message, rendering, rules, store
from booking_core.notifications.message import Mailbox
from booking_core.notifications.rendering import Subject
from booking_core.notifications.rules import BOOKING_KINDS, GUEST_KINDS, TO_GUESTS, WRITE_RETRY_DELAYS, NoMailReason
from booking_core.notifications.store import OutboxRow
from booking_core.notifications.summary import GiftCardDetails, MailBooking
from booking_core.records.outbox import OutboxKind

log = logging.getLogger("booking.mail")

_NO_HOST = "localhost.localdomain"

SEALED_FOR = "mail"
"""A guest's mail holds the secret link, so the stored text is sealed."""


OWED = store.OWED


def write(
    tx: Tx, installation: Installation, organization_id: str, keys: Sequence[str], *, sender: Mailbox | None = None
) -> Processed[None]:
    """Write the mails of the due ones among the outbox rows.

    A row gets at most one mail, in the transaction that completes the row. A mail without a recipient is not written,
    and neither is a mail that is switched off. A mail that cannot be rendered is retried later and delays no other. It
    takes three statements for any number of rows, and one more where gift cards are among them.

    Args:
        sender: the From address; by default an address at the host of the public URL.
    """
    due = store.lock_owed(tx, organization_id, keys)
    booking_keys = ((row.organization_id, row.subject_id) for row, _, _ in due if OutboxKind(row.kind) in BOOKING_KINDS)
    bookings = store.get_bookings(tx, booking_keys)
    cards = ((row.organization_id, row.subject_id) for row, _, _ in due if row.kind == OutboxKind.GIFT_CARD_MAIL)
    gift_cards = store.get_gift_cards(tx, cards)
    writer = _MailWriter(installation, sender or default_sender(installation), bookings, gift_cards)
    for row, organization, at in due:
        writer.process(tx, row, organization, at)
    return Processed([row.key for row, _, _ in due])


def default_sender(installation: Installation) -> Mailbox:
    """Return an address at the host of the public URL, in ASCII, which every mail server accepts."""
    try:
        host = urlsplit(installation.public_url).hostname or ""
        is_name = "." in host and not host.replace(".", "").isdigit()
        return Mailbox("", message.address(f"no-reply@{host if is_name else _NO_HOST}"))
    except ValueError:  # a host name that no address can have, such as one with an underscore
        return Mailbox("", f"no-reply@{_NO_HOST}")


def configured_sender(installation: Installation, mail_from: str | None) -> Mailbox:
    """Return the From address that is set (BOOKING_MAIL_FROM), or the default."""
    return Mailbox(*named_mailbox(mail_from)) if mail_from else default_sender(installation)


@dataclass(slots=True)
class _MailWriter:
    """Writes the mails of one batch of outbox rows."""

    installation: Installation
    sender: Mailbox
    bookings: Mapping[tuple[str, str], MailBooking]
    gift_cards: Mapping[tuple[str, str], GiftCardDetails]

    def process(self, tx: Tx, row: OutboxRow, organization: Organization, at: int) -> None:
        """Write the mail of a row, if it has a recipient, and settle the row."""
        key = (row.organization_id, row.subject_id)
        about = Subject(organization, self.bookings.get(key), self.gift_cards.get(key), at)
        try:
            to = rules.recipient(OutboxKind(row.kind), organization, about.booking, about.gift_card)
            if isinstance(to, NoMailReason):
                _settle(tx, row, at, status="done", note=to)
                return
            recipient = message.address(to)
            message_id = f"{_message_key(row)}@{self.sender.address.rpartition('@')[2]}"
            composed = self._compose(row, about, to, message_id)
            self._insert(tx, row, about, recipient, message_id, composed)
        except Exception as error:  # the row stores it; the other mails are written  # noqa: BLE001, RUF100
            if not row.attempt_count:
                log.exception("the mail %s of organization %s cannot be written", row.key, row.organization_id)
            _retry_later(tx, row, at, error)
        else:
            _settle(tx, row, at, status="done")

    def _compose(self, row: OutboxRow, about: Subject, to: str, message_id: str) -> bytes:
        kind, organization = OutboxKind(row.kind), about.organization
        content = rendering.render(
            kind,
            about,
            row.payload,
            organizer=self.sender.address,
            link=self._link(kind, about),
            secret_keys=self.installation.secret_keys,
        )
        to_guest, reply_to = kind in TO_GUESTS, organization.reply_to_email or organization.staff_email
        return message.compose(
            content,
            sender=Mailbox(organization.name if to_guest else self.sender.name or "Bookings", self.sender.address),
            recipient=Mailbox(about.guest_name if to_guest else "", to),
            reply_to=Mailbox(organization.name, reply_to) if to_guest and reply_to else None,
            message_id=message_id,
            at=about.at,
        )

    def _insert(self, tx: Tx, row: OutboxRow, about: Subject, recipient: str, message_id: str, composed: bytes) -> None:
        mail_id = tokens.new_id()
        tx.insert(
            tables.mails,
            organization_id=row.organization_id,
            id=mail_id,
            effect_key=row.key,
            kind=row.kind,
            booking_id=None if about.booking is None else about.booking.id,
            recipient=recipient,
            message_id=message_id,
            message=self.installation.secret_keys.seal(SEALED_FOR, composed, row.organization_id, mail_id),
            status="queued",
            next_attempt_at=about.at,
            created_at=about.at,
        )

    def _link(self, kind: OutboxKind, about: Subject) -> str | None:
        """Return the secret link of a mail to a guest, or None where there is none."""
        booking, card = about.booking, about.gift_card
        if card is not None:
            return gift_card_link(self.installation, card.organization_id, card.id)
        if kind not in GUEST_KINDS or booking is None or booking.status == "cancelled":
            return None
        return ManageLinks(self.installation, booking.organization_id).of(booking, booking.ends_at, about.at)


def _message_key(row: OutboxRow) -> str:
    """Return the local part of the Message-ID, which is the same each time the mail is written."""
    return tokens.sha256_hex(f"{row.organization_id}:{row.key}".encode())[:32]


def _retry_later(tx: Tx, row: OutboxRow, at: int, error: Exception) -> None:
    attempts = row.attempt_count + 1
    delay = rules.retry_delay(WRITE_RETRY_DELAYS, attempts)
    # Only the type of the error: its text may hold parts of the mail.
    note = type(error).__name__
    if delay is None:
        log.error("the mail %s of organization %s was given up", row.key, row.organization_id)
        _settle(tx, row, at, status="failed", note=note, attempt_count=attempts)
    else:
        _settle(tx, row, at, status="queued", note=note, attempt_count=attempts, due_at=at + delay)


def _settle(tx: Tx, row: OutboxRow, at: int, *, status: str, note: str | None = None, **changed: int) -> None:
    key = {"organization_id": row.organization_id, "key": row.key}
    state = {"attempt_count": row.attempt_count, "due_at": row.due_at} | changed
    completed_at = None if status == "queued" else at
    tx.update(tables.effects, **key, **state, status=status, last_error=note, completed_at=completed_at)
