"""Functions of mails: for an operator, the purge and erasures; and the secret links in mails.

A failed mail is not sent again as it was: its outbox row is queued again, and the mail is rendered from the rows of
that time (decisions/0020).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from booking_core import organizations
from booking_core.base.context import Actor, Installation, Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.base.guest_links import GIFT_CARD_PURPOSE, PURPOSE, Opened, has_expired, open_token
from booking_core.base.languages import Language, choose, language
from booking_core.db.engine import Tx
from booking_core.db.tables import effects, mails
from booking_core.models.base import is_id
from booking_core.notifications import history, rules, store
from booking_core.notifications.history import LockedMail, MailKey
from booking_core.notifications.rules import GUEST_KINDS, TO_GUESTS, Mail, MailStatus
from booking_core.notifications.summary import (
    GiftCardDetails,
    GiftCardSummary,
    MailBooking,
    Summary,
    gift_card_summary,
    summary,
    translated,
)
from booking_core.records.outbox import OutboxKind

OwnedMail = tuple[Mail, Organization]
"""A mail with its organization."""

_EVER = 2**31 - 1


def find(
    tx: Tx, organization: Organization | None = None, *, status: MailStatus | None = None, limit: int
) -> list[OwnedMail]:
    """Return mails of the organization, or of all, the newest first.

    A mail that is not written yet counts as queued.
    """
    owners = {owner.id: owner for owner in ([organization] if organization else organizations.find(tx))}
    mails = history.newest(tx, list(owners), status, limit, every=organization is None)
    mails.sort(key=lambda mail: (mail.created_at, mail.name), reverse=True)
    return [(mail, owners[mail.organization_id]) for mail in mails[:limit]]


def find_failed(tx: Tx, organization: Organization | None = None) -> list[OwnedMail]:
    """Return every mail that could not be sent or written, the newest first."""
    statuses = (MailStatus.FAILED, MailStatus.UNWRITTEN)
    return [mail for status in statuses for mail in find(tx, organization, status=status, limit=_EVER)]


def get(tx: Tx, name: str) -> OwnedMail:
    """Return the mail with that id, or of the outbox row with that key, of any organization.

    Raises:
        NotFound: there is none, or it was purged.
    """
    mail = history.by_id(tx, name.lower()) if is_id(name) else history.by_key(tx, name)
    if mail is None:
        raise NotFound.of("mail", name)
    return mail


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
    refused = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    if refused:
        raise _combined(refused, len(outcomes))
    return [outcome for outcome in outcomes if not isinstance(outcome, Conflict)]


def retry_each(tx: Tx, keys: Sequence[MailKey], *, anyway: bool = False) -> list[OwnedMail | Conflict]:
    """Queue each mail again, separately, and return for each the mail or the refusal. Purged mails are skipped.

    Args:
        keys: (organization id, key of the outbox row).
    """
    at, locked_mails = tx.now(), history.lock(tx, keys)
    bookings = store.get_bookings(tx, _booking_keys(locked_mails.values()))
    outcomes: list[OwnedMail | Conflict] = []
    requeued = list[MailKey]()
    for key, locked in ((key, locked_mails[key]) for key in keys if key in locked_mails):
        booking = bookings.get((key[0], locked.effect.booking_id or ""))
        outcome = _enqueue_again(tx, locked, booking.starts_at if booking else None, at, anyway=anyway)
        if not isinstance(outcome, Conflict):
            requeued.append(key)
        outcomes.append(outcome)
    if requeued:
        history.delete_mails(tx, requeued)
    return outcomes


def _booking_keys(locked: Iterable[LockedMail]) -> list[tuple[str, str]]:
    """Return (organization id, booking id) of the mails about a booking."""
    return [(mail.effect.organization_id, mail.effect.booking_id) for mail in locked if mail.effect.booking_id]


def _enqueue_again(tx: Tx, locked: LockedMail, starts_at: int | None, at: int, *, anyway: bool) -> OwnedMail | Conflict:
    mail, effect, organization = locked
    try:
        rules.check_retry(mail, organization, enqueued_at=effect.created_at, starts_at=starts_at, at=at, anyway=anyway)
    except Conflict as refused:
        return refused
    _write_again(tx, effect, at)
    again = effect._replace(status=MailStatus.QUEUED, attempt_count=0, last_error=None, next_attempt_at=at)
    return again, organization


def _write_again(tx: Tx, effect: Mail, at: int) -> None:
    """Queue an outbox row again, due now."""
    state = {"status": "queued", "attempt_count": 0, "due_at": at, "last_error": None, "completed_at": None}
    tx.update(effects, organization_id=effect.organization_id, key=effect.effect_key, **state)


def _combined(refused: Sequence[Conflict], count: int) -> Conflict:
    """Return one refusal for all mails."""
    if count == 1:
        return refused[0]
    combined = Conflict(refused[0].reason, f"{len(refused)} of {count} mails cannot be tried again, so none is.")
    combined.details = tuple(detail for refusal in refused for detail in refusal.details)
    return combined


def redirect(tx: Tx, organization_id: str, booking_id: str, *, at: int) -> frozenset[OutboxKind]:
    """Have the waiting mails to the guest of a booking written again, to the address that it has then.

    Returns:
        The kinds of these mails.
    """
    waiting = history.waiting(tx, organization_id, booking_id)
    keys = [(organization_id, key) for key, kind in waiting if kind in GUEST_KINDS]
    locked = history.lock(tx, keys) if keys else {}
    queued = _write_queued_again(tx, locked, at)
    return frozenset(OutboxKind(mail.effect.kind) for mail in queued.values())


def _write_queued_again(tx: Tx, locked: Mapping[MailKey, LockedMail], at: int) -> Mapping[MailKey, LockedMail]:
    """Delete those of the mails that are queued, queue their outbox rows again, and return them."""
    queued = {key: mail for key, mail in locked.items() if mail.mail.id and mail.mail.status == MailStatus.QUEUED}
    if queued:
        history.delete_mails(tx, list(queued))
    for mail in queued.values():
        _write_again(tx, mail.effect, at)
    return queued


# Purging ---------------------------------------------------------------------------------------------------------


ENDED_MAILS, ENDED_UNMAILED = tuple(history.ENDED_MAILS.values()), tuple(history.ENDED_UNMAILED.values())


def purge(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's mails that were sent or failed before that instant, with their outbox rows.

    It deletes at most `limit` and returns how many; never a queued mail, however old.
    """
    purged = history.purge_mails(tx, organization_id, "sent", before, limit)
    return purged + history.purge_mails(tx, organization_id, "failed", before, limit - purged)


# Anonymizing ----------------------------------------------------------------------------------------------------------

NO_RECIPIENT = "anonymized@anonymized.invalid"
"""Replaces the recipient of a mail to a guest. No mail is ever sent to it."""
_REPLY = re.compile(r"(\d{3}) .*", re.DOTALL)
"""A reply of a mail server, whose text may repeat the recipient."""


def anonymize(tx: Tx, organization_id: str, keys: Sequence[str]) -> None:
    """Remove recipients, texts and replies of mail servers from the mails of these outbox rows.

    A mail that is still to be sent is deleted and its outbox row queued again: a mail to staff is then written without
    the guest's data, and one to the guest not at all, since the booking, or the gift card, has no address.
    """
    locked = history.lock(tx, [(organization_id, key) for key in keys]) if keys else {}
    queued = _write_queued_again(tx, locked, tx.now())
    for key, mail in locked.items():
        if mail.mail.id and key not in queued:
            _forget(tx, mail)


def _forget(tx: Tx, locked: LockedMail) -> None:
    mail = locked.mail
    tx.update(
        mails,
        organization_id=mail.organization_id,
        id=mail.id,
        recipient=NO_RECIPIENT if mail.kind in TO_GUESTS else mail.recipient,
        message="",
        last_error=_REPLY.sub(r"\1", mail.last_error) if mail.last_error else None,
    )


# Secret links ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuestView:
    """A booking that its guest has opened, with the actor for the guest's changes."""

    actor: Actor
    row: MailBooking
    summary: Summary
    language: Language

    @property
    def has_begun(self) -> bool:
        return self.row.starts_at <= self.actor.at


def open_link(tx: Tx, installation: Installation, token: str, locale: str | None = None) -> GuestView:
    """Return the booking of a guest's token.

    Args:
        locale: the language that the guest chose on the page, before the languages of booking and organization.

    Raises:
        NotFound: the token is malformed, invalid or expired; the error does not say which.
    """
    opened, actor = _opened(tx, installation, token)
    key = (opened.organization_id, opened.subject_id)
    row = store.get_bookings(tx, [key]).get(key)
    if row is None or opened.email_changes != row.email_changes:
        raise NotFound
    if not opened.was_made_by(installation.secret_keys, row.manage_key_id):
        raise NotFound
    if has_expired(row, row.ends_at, actor.at):
        raise NotFound
    organization = actor.organization
    wording = language(choose(locale, row.locale, organization.language))
    row = translated(row, organization, locale)
    return GuestView(actor, row, summary(row, organization, wording, at=actor.at), wording)


def _opened(tx: Tx, installation: Installation, token: str, purpose: str = PURPOSE) -> tuple[Opened, Actor]:
    """Return the content of a token, and the actor of its organization."""
    opened = open_token(installation.secret_keys, token, purpose)
    owner = store.get_organization(tx, opened.organization_id) if opened else None
    if opened is None or owner is None:
        raise NotFound
    return opened, Actor(installation=installation, organization=owner[0], at=owner[1])


@dataclass(frozen=True, slots=True)
class GiftCardView:
    """A gift card that its recipient has opened."""

    actor: Actor
    row: GiftCardDetails
    summary: GiftCardSummary
    language: Language


def open_gift_card_link(tx: Tx, installation: Installation, token: str, locale: str | None = None) -> GiftCardView:
    """Return the gift card of a recipient's token.

    Raises:
        NotFound: the token is malformed or invalid.
    """
    opened, actor = _opened(tx, installation, token, GIFT_CARD_PURPOSE)
    key = (opened.organization_id, opened.subject_id)
    row = store.get_gift_cards(tx, [key]).get(key)
    if row is None or not opened.was_made_by_any(installation.secret_keys):  # the page shows a redeemable code
        raise NotFound
    wording = language(choose(locale, actor.organization.language))
    card = gift_card_summary(row, actor.organization, installation.secret_keys, wording, actor.at)
    return GiftCardView(actor, row, card, wording)
