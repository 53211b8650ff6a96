"""Removes guests' data from mails about bookings and gift cards that were anonymized."""

import re
from collections.abc import Sequence

from booking_core.db.engine import Tx
from booking_core.db.tables import mails
from booking_core.db.unit_of_work import Update
from booking_core.notifications import history, store
from booking_core.notifications.history import LockedMail
from booking_core.notifications.rules import TO_GUESTS, MailStatus

NO_RECIPIENT = "anonymized@anonymized.invalid"
"""Replaces the recipient of a mail to a guest. No mail is ever sent to it."""
_REPLY = re.compile(r"(\d{3}) .*", re.DOTALL)
"""A reply of a mail server, whose text may repeat the recipient."""
_ANONYMIZE = Update("anonymize_mail", mails, sets=("recipient", "message", "last_error"))


def anonymize(tx: Tx, organization_id: str, keys: Sequence[str]) -> None:
    """Remove recipients, texts and replies of mail servers from the mails of these outbox rows.

    A mail that is still to be sent is deleted and its outbox row queued again: a mail to staff is then written without
    the guest's data, and one to the guest not at all, since the booking, or the gift card, has no address.
    """
    locked = history.lock(tx, [(organization_id, key) for key in keys]) if keys else {}
    queued = [key for key, each in locked.items() if each.mail.id and each.mail.status == MailStatus.QUEUED]
    if queued:
        history.delete_mails(tx, queued)
    at = tx.now()
    for key, each in locked.items():
        if key in queued:
            _write_again(tx, each, at)
        elif each.mail.id:
            _forget(tx, each)


def _write_again(tx: Tx, locked: LockedMail, at: int) -> None:
    state = {"status": "queued", "attempt_count": 0, "due_at": at, "last_error": None, "completed_at": None}
    effect = locked.effect
    tx.update(store.SETTLE, organization_id=effect.organization_id, key=effect.effect_key, **state)


def _forget(tx: Tx, locked: LockedMail) -> None:
    mail = locked.mail
    tx.update(
        _ANONYMIZE,
        organization_id=mail.organization_id,
        id=mail.id,
        recipient=NO_RECIPIENT if mail.kind in TO_GUESTS else mail.recipient,
        message="",
        last_error=_REPLY.sub(r"\1", mail.last_error) if mail.last_error else None,
    )
