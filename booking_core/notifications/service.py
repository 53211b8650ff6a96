"""Operations on mails for an operator, and the purge.

A failed mail is not sent again as it was: its outbox row is queued again, and the mail is rendered from the rows of
that time (decisions/0020).
"""

from collections.abc import Iterable, Sequence

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.db.engine import Tx
from booking_core.models.base import is_id
from booking_core.notifications import history, rules, store
from booking_core.notifications.history import Key, LockedMail
from booking_core.notifications.rules import Mail, MailStatus

OwnedMail = tuple[Mail, Organization]
"""A mail with its organization."""

_EVER = 2**31 - 1


def find(
    tx: Tx, organization: Organization | None = None, *, status: MailStatus | None = None, limit: int
) -> list[OwnedMail]:
    """Return mails of the organization, or of all, the newest first.

    A mail that is not written yet counts as queued.
    """
    owners = {each.id: each for each in ([organization] if organization else organizations.find(tx))}
    every, ids = organization is None, list(owners)
    found: list[Mail] = []
    if status is not MailStatus.UNWRITTEN:
        found += history.newest_written(tx, ids, status, limit, every=every)
    for unwritten in (MailStatus.QUEUED, MailStatus.UNWRITTEN):
        if status in (None, unwritten):
            found += history.newest_unwritten(tx, ids, unwritten, limit, every=every)
    found.sort(key=lambda mail: (mail.created_at, mail.name), reverse=True)
    return [(mail, owners[mail.organization_id]) for mail in found[:limit]]


def find_failed(tx: Tx, organization: Organization | None = None) -> list[OwnedMail]:
    """Return every mail that could not be sent or written, the newest first."""
    statuses = (MailStatus.FAILED, MailStatus.UNWRITTEN)
    return [each for status in statuses for each in find(tx, organization, status=status, limit=_EVER)]


def get(tx: Tx, name: str) -> OwnedMail:
    """Return the mail with that id, or of the outbox row with that key, of any organization.

    Raises:
        NotFound: there is none, or it was purged.
    """
    found = history.by_id(tx, name.lower()) if is_id(name) else history.by_key(tx, name)
    if found is None:
        raise NotFound(f"There is no mail {name!r}.")
    return found


# Retrying --------------------------------------------------------------------------------------------------------


def retry(tx: Tx, names: Sequence[str], *, anyway: bool = False) -> list[OwnedMail]:
    """Queue mails again, due now, with a new count of attempts: all of them, or none.

    Args:
        names: ids of mails, or keys of outbox rows.
        anyway: also mails that are too old.

    Raises:
        NotFound: there is no such mail.
        Conflict: `mail_sent`, `mail_queued`, `mail_unwanted`, `departure_started` or `mail_too_old`, for each.
    """
    keys = [(mail.organization_id, mail.effect_key) for mail, _ in (get(tx, name) for name in names)]
    outcomes = retry_each(tx, list(dict.fromkeys(keys)), anyway=anyway)
    refused = [each for each in outcomes if isinstance(each, Conflict)]
    if refused:
        raise _combined(refused, len(outcomes))
    return [each for each in outcomes if not isinstance(each, Conflict)]


def retry_each(tx: Tx, keys: Sequence[Key], *, anyway: bool = False) -> list[OwnedMail | Conflict]:
    """Queue each mail again by itself, and return for each the mail or the refusal. Purged mails are skipped.

    Args:
        keys: (organization id, key of the outbox row).
    """
    at, found = tx.now(), history.lock(tx, keys)
    bookings = store.get_bookings(tx, _booking_keys(found.values()))
    outcomes: list[OwnedMail | Conflict] = []
    gone = list[Key]()
    for key, locked in ((key, found[key]) for key in keys if key in found):
        booking = bookings.get((key[0], locked.effect.booking_id or ""))
        outcome = _enqueue_again(tx, locked, booking.starts_at if booking else None, at, anyway=anyway)
        if not isinstance(outcome, Conflict):
            gone.append(key)
        outcomes.append(outcome)
    if gone:
        history.delete_mails(tx, gone)
    return outcomes


def _booking_keys(locked: Iterable[LockedMail]) -> list[tuple[str, str]]:
    """Return (organization id, booking id) of the mails about a booking."""
    return [(each.effect.organization_id, each.effect.booking_id) for each in locked if each.effect.booking_id]


def _enqueue_again(tx: Tx, locked: LockedMail, starts_at: int | None, at: int, *, anyway: bool) -> OwnedMail | Conflict:
    mail, effect, organization = locked
    try:
        rules.check_retry(mail, organization, enqueued_at=effect.created_at, starts_at=starts_at, at=at, anyway=anyway)
    except Conflict as refused:
        return refused
    tx.update(
        store.SETTLE,
        organization_id=effect.organization_id,
        key=effect.effect_key,
        status="queued",
        attempt_count=0,
        due_at=at,
        last_error=None,
        completed_at=None,
    )
    again = effect._replace(status=MailStatus.QUEUED, attempt_count=0, last_error=None, next_attempt_at=at)
    return again, organization


def _combined(refused: Sequence[Conflict], count: int) -> Conflict:
    """Return one refusal for all mails."""
    if count == 1:
        return refused[0]
    combined = Conflict(refused[0].reason, f"{len(refused)} of {count} mails cannot be tried again, so none is.")
    combined.details = tuple(detail for each in refused for detail in each.details)
    return combined


# Purging ---------------------------------------------------------------------------------------------------------


ENDED_MAILS, ENDED_UNMAILED = tuple(history.ENDED_MAILS.values()), tuple(history.ENDED_UNMAILED.values())


def purge(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's mails that were sent or failed before that instant, with their outbox rows.

    It deletes at most `limit` and returns how many; never a queued mail, however old.
    """
    purged = history.purge_mails(tx, organization_id, "sent", before, limit)
    return purged + history.purge_mails(tx, organization_id, "failed", before, limit - purged)


def purge_unmailed(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's outbox rows that ended without a mail before that instant; return how many."""
    purged = history.purge_unmailed(tx, organization_id, "done", before, limit)
    return purged + history.purge_unmailed(tx, organization_id, "failed", before, limit - purged)
