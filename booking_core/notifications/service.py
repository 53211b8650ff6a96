"""The operator's verbs of mails, and what is forgotten of them.

A mail that failed is not sent again as it was: it is owed again, and written anew from the rows as they are by then
(decisions/0013).
"""

from collections.abc import Iterable, Sequence

from booking_core import organizations
from booking_core.context import Organization
from booking_core.db.engine import Tx
from booking_core.errors import Conflict, NotFound
from booking_core.notifications import history, rules, store
from booking_core.notifications.history import Held, Key
from booking_core.notifications.rules import Mail, MailStatus

Owned = tuple[Mail, Organization]
"""A mail, and whose it is."""

_EVER = 2**31 - 1


def find(
    tx: Tx, organization: Organization | None = None, *, status: MailStatus | None = None, limit: int
) -> list[Owned]:
    """Mails of the organization, or of all, the newest first: of one status, or of any. One that is only owed is
    among the queued."""
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


def find_failed(tx: Tx, organization: Organization | None = None) -> list[Owned]:
    """Every mail that could not be sent or not be written, the newest first."""
    statuses = (MailStatus.FAILED, MailStatus.UNWRITTEN)
    return [each for status in statuses for each in find(tx, organization, status=status, limit=_EVER)]


def get(tx: Tx, name: str) -> Owned:
    """The mail of that id, or of the effect of that key, whosever it is.

    Raises:
        NotFound: there is none, or it is forgotten by now.
    """
    found = history.by_id(tx, name.lower()) if rules.is_id(name) else history.by_key(tx, name)
    if found is None:
        raise NotFound(f"There is no mail {name!r}.")
    return found


# Owed again ------------------------------------------------------------------------------------------------------


def retry(tx: Tx, names: Sequence[str], *, anyway: bool = False) -> list[Owned]:
    """The mails of those names, owed again, due now, with attempts counted anew: all of them, or none.

    Args:
        anyway: also what was owed so long ago that it is no news.

    Raises:
        NotFound: there is no such mail.
        Conflict: `mail_sent`, `mail_queued`, `mail_unwanted`, `departure_started` or `mail_too_old`, for each.
    """
    keys = [(mail.organization_id, mail.effect_key) for mail, _ in (get(tx, name) for name in names)]
    outcomes = retry_each(tx, list(dict.fromkeys(keys)), anyway=anyway)
    refused = [each for each in outcomes if isinstance(each, Conflict)]
    if refused:
        raise _together(refused, len(outcomes))
    return [each for each in outcomes if not isinstance(each, Conflict)]


def retry_each(tx: Tx, keys: Sequence[Key], *, anyway: bool = False) -> list[Owned | Conflict]:
    """The same for each by itself, named by its organization's id and its effect's key: the mail, or why not. What is
    forgotten by now is passed over."""
    at, found = tx.now(), history.lock(tx, keys)
    bookings = store.get_bookings(tx, _about(found.values()))
    outcomes: list[Owned | Conflict] = []
    gone = list[Key]()
    for key, held in ((key, found[key]) for key in keys if key in found):
        booking = bookings.get((key[0], held.effect.booking_id or ""))
        outcome = _owe_again(tx, held, booking.starts_at if booking else None, at, anyway=anyway)
        if not isinstance(outcome, Conflict):
            gone.append(key)
        outcomes.append(outcome)
    if gone:
        history.delete_mails(tx, gone)
    return outcomes


def _about(held: Iterable[Held]) -> list[tuple[str, str]]:
    """The bookings of mails that tell of one."""
    return [(each.effect.organization_id, each.effect.booking_id) for each in held if each.effect.booking_id]


def _owe_again(tx: Tx, held: Held, starts_at: int | None, at: int, *, anyway: bool) -> Owned | Conflict:
    mail, effect, organization = held
    try:
        rules.check_retry(mail, organization, owed_at=effect.created_at, starts_at=starts_at, at=at, anyway=anyway)
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


def _together(refused: Sequence[Conflict], asked: int) -> Conflict:
    """One refusal for all of them."""
    if asked == 1:
        return refused[0]
    together = Conflict(refused[0].reason, f"{len(refused)} of {asked} mails cannot be tried again, so none is.")
    together.details = tuple(detail for each in refused for detail in each.details)
    return together


# Forgotten -------------------------------------------------------------------------------------------------------


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Forgets mails that were sent or had failed before that instant, each with the effect that owed it, and gives how
    many: at most `limit`. One that is still to be sent is never forgotten, however old."""
    purged = history.purge_mails(tx, "sent", before, limit)
    return purged + history.purge_mails(tx, "failed", before, limit - purged)


def purge_unmailed(tx: Tx, *, before: int, limit: int) -> int:
    """Forgets effects that came to their end before that instant without a mail, since nobody was to be written to or
    it could not be written: how many, at most `limit`."""
    purged = history.purge_unmailed(tx, "done", before, limit)
    return purged + history.purge_unmailed(tx, "failed", before, limit - purged)
