"""The worker's side of mails: take what is due, say what became of it.

As with deliveries there are three acts, and no transaction is open during the second. `claim` leases mails; the mail
server is spoken to; `record` settles them. A lease is the row's next attempt: a worker that dies leaves mails that fall
due again, with the same Message-ID, and every claim counts as an attempt, so that none can bring down workers for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from booking_core import tokens
from booking_core.clock import END_OF_TIME, SECOND
from booking_core.context import Installation
from booking_core.db.engine import Tx
from booking_core.notifications import rules, store
from booking_core.notifications.rules import SENDING_WAITS, SENT_WITHIN
from booking_core.notifications.store import Queued
from booking_core.notifications.writing import SEALED_FOR


class Outcome(StrEnum):
    """What became of a mail that was claimed."""

    SENT = "sent"
    """The mail server took it."""
    REFUSED = "refused"
    """For good: it is not tried again."""
    DELAYED = "delayed"
    """Not now, or nobody knows: it is tried again."""
    UNTRIED = "untried"
    """Nothing was tried, and nothing counts."""
    PARKED = "parked"
    """It waits until there is a mail server."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A mail that is to be sent now."""

    organization_id: str
    id: str
    kind: str
    recipient: str
    message: bytes = field(repr=False)
    lease_token: str
    attempts: int
    """This one included."""
    created_at: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of it; `error` is a word, and with a mail server's answer its code."""

    claimed: Claimed
    outcome: Outcome
    error: str | None = None


def claim(tx: Tx, installation: Installation, *, limit: int, lease_s: int, gives_up_old: bool = True) -> list[Claimed]:
    """Leases mails that are due, at most `limit`, the longest due first, and passes over what others hold.

    One that is too old to be news, or was tried often enough, or cannot be opened any more, has failed instead.

    Args:
        gives_up_old: whether the clock can be believed about how old a mail is.
    """
    found = store.due(tx, limit=limit)
    token, claimed = tokens.new_id(), []
    for queued, at in found:
        error, message = _fault(installation, queued, at if gives_up_old else queued.created_at)
        _lease(tx, queued, token, at + lease_s * SECOND)
        claimed.append((_claimed(queued, message, token), error))
    given_up = [Tried(each, Outcome.REFUSED, error) for each, error in claimed if error]
    if given_up:
        record(tx, given_up)
    return [each for each, error in claimed if not error]


def _fault(installation: Installation, queued: Queued, at: int) -> tuple[str | None, bytes]:
    """Why it must not be sent, or else its bytes."""
    if at - queued.created_at > SENT_WITHIN:
        return "too_old", b""
    if queued.attempt_count > len(SENDING_WAITS):
        return "attempts_exhausted", b""
    try:
        return None, installation.secret_keys.open(SEALED_FOR, queued.message, queued.organization_id, queued.id)
    except ValueError:
        return "secret_key_retired", b""


def _claimed(queued: Queued, message: bytes, token: str) -> Claimed:
    return Claimed(
        organization_id=queued.organization_id,
        id=queued.id,
        kind=queued.kind,
        recipient=queued.recipient,
        message=message,
        lease_token=token,
        attempts=queued.attempt_count + 1,
        created_at=queued.created_at,
    )


def _lease(tx: Tx, queued: Queued, token: str, until: int) -> None:
    tx.update(
        store.LEASE,
        organization_id=queued.organization_id,
        id=queued.id,
        lease_token=token,
        lease_until=until,
        next_attempt_at=until,
        attempt_count=queued.attempt_count + 1,
    )


def record(tx: Tx, tried: Sequence[Tried]) -> None:
    """Writes down what became of mails; of one whose lease was lost since, nothing.

    What was sent is no longer kept: it is with the guest, and holds a secret.
    """
    at = tx.now()
    for each in tried:
        key = {
            "organization_id": each.claimed.organization_id,
            "id": each.claimed.id,
            "lease_token": each.claimed.lease_token,
        }
        if each.outcome is Outcome.SENT:
            sent = {"status": "sent", "next_attempt_at": None, "lease_until": None, "sent_at": at, "completed_at": at}
            tx.update(store.SENT, **key, **sent, message="")
        else:
            tx.update(store.SETTLE_MAIL, **key, **_settled(each, at))


def _settled(tried: Tried, at: int) -> dict[str, object]:
    attempts = tried.claimed.attempts
    status: str = "queued"
    due_at: int | None = None
    if tried.outcome is Outcome.REFUSED:
        status = "failed"
    elif tried.outcome is Outcome.UNTRIED:
        attempts, due_at = attempts - 1, at
    elif tried.outcome is Outcome.DELAYED:
        wait = rules.wait(SENDING_WAITS, attempts)
        status, due_at = ("failed", None) if wait is None else ("queued", at + wait)
    elif tried.outcome is Outcome.PARKED:
        attempts, due_at = attempts - 1, END_OF_TIME
    return {
        "status": status,
        "attempt_count": attempts,
        "next_attempt_at": due_at,
        "lease_until": None,
        "last_error": tried.error,
        "completed_at": at if status == "failed" else None,
    }


def unpark(tx: Tx) -> int:
    """Makes mails due that waited for a mail server, and gives how many; those too old are not sent even so."""
    return store.unpark(tx)


def pending(tx: Tx) -> tuple[bool, bool]:
    """Whether any mail is to be written, and whether any is to be sent: a read, so that an idle worker writes
    nothing."""
    return store.pending(tx)
