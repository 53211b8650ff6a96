"""Claims due mails for a worker, and records the results.

`claim` leases mails, the worker calls the mail server while no transaction is open, and `record` stores the results.
The end of a lease is the next attempt of its row: mails of a worker that dies become due again, with the same
Message-ID. Each claim counts as an attempt, so no mail crashes workers again and again without end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from booking_core.base import tokens
from booking_core.base.clock import END_OF_TIME, SECOND
from booking_core.base.context import Installation
from booking_core.db.engine import Tx
from booking_core.db.tables import mails
from booking_core.due_work.rows import Processed
from booking_core.notifications import rules, store
from booking_core.notifications.rules import SEND_RETRY_DELAYS, SENT_WITHIN
from booking_core.notifications.store import QueuedMail
from booking_core.notifications.writing import SEALED_FOR


class MailOutcome(StrEnum):
    """The outcome of an attempt to send a mail."""

    SENT = "sent"
    """The mail server accepted it."""
    REFUSED = "refused"
    """Refused for good: it is not retried."""
    DELAYED = "delayed"
    """Not accepted, or unknown: it is retried."""
    UNTRIED = "untried"
    """Not attempted: the attempt is not counted."""
    PARKED = "parked"
    """It waits until there is a mail server."""


@dataclass(frozen=True, slots=True)
class ClaimedMail:
    """A mail that is leased for one attempt."""

    organization_id: str
    id: str
    kind: str
    recipient: str
    message: bytes = field(repr=False)
    lease_token: str
    attempt_count: int
    """This one included."""
    created_at: int
    clock_offset: int | None = None
    """The lead of a sandbox's clock, in microseconds; None: the organization is live."""

    @property
    def is_of_sandbox(self) -> bool:
        """Return True for a mail that is only captured."""
        return self.clock_offset is not None


@dataclass(frozen=True, slots=True)
class MailResult:
    """The result of an attempt; `error` is a short text, with the code of the mail server's reply."""

    claimed: ClaimedMail
    outcome: MailOutcome
    error: str | None = None


DUE, PARKED = store.DUE, store.PARKED


def claim(
    tx: Tx,
    installation: Installation,
    organization_id: str,
    mail_ids: Sequence[str],
    *,
    lease_s: int,
) -> Processed[ClaimedMail]:
    """Lease the due ones among the mails, the longest due first, and skip locked ones.

    A mail that is too old, has no attempts left or can no longer be opened is marked as failed instead.
    """
    due_mails = store.lock_due(tx, organization_id, mail_ids)
    token, claimed = tokens.new_id(), []
    for queued, at in due_mails:
        is_aged = queued.clock_offset is None  # the clock of a sandbox leaps over the days between
        error, message = _fault(installation, queued, at if is_aged else queued.created_at)
        _lease(tx, queued, token, at, lease_s)
        attempt_count = queued.attempt_count + 1
        opened = queued._asdict() | {"message": message, "attempt_count": attempt_count, "lease_token": token}
        claimed.append((ClaimedMail(**opened), error))
    given_up = [MailResult(mail, MailOutcome.REFUSED, error) for mail, error in claimed if error]
    if given_up:
        record(tx, given_up)
    return Processed([queued.id for queued, _ in due_mails], results=[mail for mail, error in claimed if not error])


def _fault(installation: Installation, queued: QueuedMail, at: int) -> tuple[str | None, bytes]:
    """Return (error, b"") for a mail that must not be sent, otherwise (None, message)."""
    if at - queued.created_at > SENT_WITHIN:
        return "too_old", b""
    if queued.attempt_count > len(SEND_RETRY_DELAYS):
        return "attempts_exhausted", b""
    keys = installation.secret_keys
    message = keys.open_or_none(SEALED_FOR, queued.message, queued.organization_id, queued.id)
    return ("secret_key_retired", b"") if message is None else (None, message)


def _lease(tx: Tx, queued: QueuedMail, token: str, at: int, lease_s: int) -> None:
    """Lease a mail for one attempt, at least for the delay after its earlier attempts.

    A worker that dies in short intervals, for any reason, would otherwise use up all attempts in ten minutes.
    """
    until = at + max(lease_s * SECOND, rules.retry_delay(SEND_RETRY_DELAYS, queued.attempt_count) or 0)
    tx.update(
        mails,
        organization_id=queued.organization_id,
        id=queued.id,
        lease_token=token,
        lease_until=until,
        next_attempt_at=until,
        attempt_count=queued.attempt_count + 1,
    )


def record(tx: Tx, results: Sequence[MailResult]) -> None:
    """Record the results of attempts, except for mails whose lease has expired since.

    The text of a sent mail is deleted, because it holds a secret. A sandbox keeps the text, because it captures mails.
    """
    now = tx.now()
    for result in results:
        at = now + (result.claimed.clock_offset or 0)
        key = {
            "organization_id": result.claimed.organization_id,
            "id": result.claimed.id,
            "lease_token": result.claimed.lease_token,
        }
        if result.outcome is MailOutcome.SENT:
            sent = {"status": "sent", "next_attempt_at": None, "lease_until": None, "sent_at": at, "completed_at": at}
            if result.claimed.is_of_sandbox:
                tx.update(store.CAPTURED, **key, **sent)
            else:
                tx.update(store.SENT, **key, **sent, message="")
        else:
            tx.update(store.SETTLE_MAIL, **key, **_settled(result, at))


def _settled(result: MailResult, at: int) -> dict[str, object]:
    attempts = result.claimed.attempt_count
    status: str = "queued"
    due_at: int | None = None
    if result.outcome is MailOutcome.REFUSED:
        status = "failed"
    elif result.outcome is MailOutcome.UNTRIED:
        attempts, due_at = attempts - 1, at
    elif result.outcome is MailOutcome.DELAYED:
        delay = rules.retry_delay(SEND_RETRY_DELAYS, attempts)
        status, due_at = ("failed", None) if delay is None else ("queued", at + delay)
    elif result.outcome is MailOutcome.PARKED:
        attempts, due_at = attempts - 1, END_OF_TIME
    return {
        "status": status,
        "attempt_count": attempts,
        "next_attempt_at": due_at,
        "lease_until": None,
        "last_error": result.error,
        "completed_at": at if status == "failed" else None,
    }


def unpark(tx: Tx, organization_id: str, mail_ids: Sequence[str]) -> Processed[None]:
    """Make mails due that waited for a mail server. Mails that are too old fail at their next claim."""
    parked_ids, at = store.lock_parked(tx, organization_id, mail_ids), tx.now()
    for mail_id in parked_ids:
        tx.update(mails, organization_id=organization_id, id=mail_id, next_attempt_at=at)
    return Processed(parked_ids)
