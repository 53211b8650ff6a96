"""From what is owed to a mail that can be sent."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from booking_core import tokens
from booking_core.context import Installation, Organization
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.guest_links import ManageLinks
from booking_core.notifications import letters, message, rules, store
from booking_core.notifications.message import Mailbox
from booking_core.notifications.rules import BOOKING_KINDS, GUEST_KINDS, WRITING_WAITS, Unsent
from booking_core.notifications.store import Owed
from booking_core.notifications.summary import BookingRow
from booking_core.outbox import OutboxKind

log = logging.getLogger("booking.mail")

_NO_HOST = "localhost.localdomain"

SEALED_FOR = "mail"
"""A guest's mail holds the secret link, so what is stored of it is sealed."""


def write_due(tx: Tx, installation: Installation, *, limit: int, sender: Mailbox | None = None) -> int:
    """Writes the mails that are owed, from the rows as they are now, and gives how many effects that were.

    An effect gets at most one mail, and is done with it in one transaction. One whose recipient is missing, or wants no
    mail, is done without. A mail that cannot be written is tried again later, and holds up no other. Three statements,
    whatever their number.

    Args:
        sender: whose address mails come from; by default one of the host of the public URL.
    """
    owed = store.owed(tx, limit=limit)
    wanted = ((each.organization_id, each.subject_id) for each, _, _ in owed if OutboxKind(each.kind) in BOOKING_KINDS)
    bookings = store.get_bookings(tx, wanted)
    desk = _Desk(installation, sender or default_sender(installation), bookings)
    for each, organization, at in owed:
        desk.write(tx, each, organization, at)
    return len(owed)


def default_sender(installation: Installation) -> Mailbox:
    """An address of the host that the public URL names, in ASCII: it is also said to mail servers, which may know
    nothing else."""
    try:
        host = urlsplit(installation.public_url).hostname or ""
        is_name = "." in host and not host.replace(".", "").isdigit()
        return Mailbox("", message.address(f"no-reply@{host if is_name else _NO_HOST}"))
    except ValueError:  # a name that no mail can come from, such as one with an underscore
        return Mailbox("", f"no-reply@{_NO_HOST}")


@dataclass(slots=True)
class _Desk:
    """Where the mails of one batch are written."""

    installation: Installation
    sender: Mailbox
    bookings: Mapping[tuple[str, str], BookingRow]

    def write(self, tx: Tx, owed: Owed, organization: Organization, at: int) -> None:
        """One effect: its mail, and what became of it."""
        kind, booking = OutboxKind(owed.kind), self.bookings.get((owed.organization_id, owed.subject_id))
        to = rules.recipient(kind, organization, booking)
        if isinstance(to, Unsent):
            _settle(tx, owed, at, status="done", note=to)
            return
        try:
            self._write(tx, owed, kind, organization, booking, to, at)
        except Exception as error:  # told in the effect's own row; the others are written  # noqa: BLE001, RUF100
            log.exception("the mail %s of organization %s cannot be written", owed.key, owed.organization_id)
            _put_off(tx, owed, at, error)
        else:
            _settle(tx, owed, at, status="done")

    def _write(
        self,
        tx: Tx,
        owed: Owed,
        kind: OutboxKind,
        organization: Organization,
        booking: BookingRow | None,
        to: str,
        at: int,
    ) -> None:
        letter = letters.write(
            kind,
            organization,
            booking,
            owed.payload,
            organizer=self.sender.address,
            manage_url=self._link(booking, at),
            at=at,
        )
        recipient = message.address(to)
        message_id = f"{_id_of(owed)}@{self.sender.address.rpartition('@')[2]}"
        to_guest = kind in GUEST_KINDS
        composed = message.compose(
            letter,
            sender=Mailbox(organization.name if to_guest else self.sender.name or "Bookings", self.sender.address),
            recipient=Mailbox((booking.guest_name or "") if booking and to_guest else "", to),
            reply_to=Mailbox(organization.name, organization.staff_email)
            if to_guest and organization.staff_email
            else None,
            message_id=message_id,
            at=at,
        )
        mail_id = tokens.new_id()
        tx.insert(
            tables.mails,
            organization_id=owed.organization_id,
            id=mail_id,
            effect_key=owed.key,
            kind=owed.kind,
            booking_id=None if booking is None else booking.id,
            recipient=recipient,
            message_id=message_id,
            message=self.installation.secret_keys.seal(SEALED_FOR, composed, owed.organization_id, mail_id),
            status="queued",
            next_attempt_at=at,
            created_at=at,
        )

    def _link(self, booking: BookingRow | None, at: int) -> str | None:
        if booking is None or booking.status == "cancelled":
            return None
        return ManageLinks(self.installation, booking.organization_id).of(booking, booking.ends_at, at)


def _id_of(owed: Owed) -> str:
    """Made from the effect, so that whoever writes its mail, and however often, gives it the same."""
    return tokens.sha256_hex(f"{owed.organization_id}:{owed.key}".encode())[:32]


def _put_off(tx: Tx, owed: Owed, at: int, error: Exception) -> None:
    attempts = owed.attempt_count + 1
    wait = rules.wait(WRITING_WAITS, attempts)
    # The kind of error only: its words may hold what the mail would have held.
    note = type(error).__name__
    if wait is None:
        _settle(tx, owed, at, status="failed", note=note, attempts=attempts)
    else:
        _settle(tx, owed, at, status="queued", note=note, attempts=attempts, due_at=at + wait)


def _settle(
    tx: Tx,
    owed: Owed,
    at: int,
    *,
    status: str,
    note: str | None = None,
    attempts: int | None = None,
    due_at: int | None = None,
) -> None:
    tx.update(
        store.SETTLE,
        organization_id=owed.organization_id,
        key=owed.key,
        status=status,
        attempt_count=owed.attempt_count if attempts is None else attempts,
        due_at=owed.due_at if due_at is None else due_at,
        last_error=note,
        completed_at=None if status == "queued" else at,
    )
