"""The SQL of mails: due outbox rows, bookings, and due mails."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, literal_column, select

from booking_core import organizations
from booking_core.base.clock import END_OF_TIME
from booking_core.base.context import Organization
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import (
    NOW,
    ROW_ID,
    Statement,
    as_rows,
    columns_of,
    has_key,
    is_of,
    rows_parameter,
)
from booking_core.db.tables import (
    Id,
    bookings,
    departures,
    effects,
    experiences,
    gift_card_entries,
    gift_cards,
    mails,
    refunds,
)
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import Update
from booking_core.due_work.rows import DueRows, clock_offset_of
from booking_core.notifications.rules import MAIL_KINDS
from booking_core.notifications.summary import GiftCardDetails, MailBooking

QUEUED: ColumnElement[str] = literal_column("'queued'")
"""Written out, because the planner then uses the partial indexes of queued rows."""
IS_MAIL = effects.c.kind.in_([literal_column(f"'{kind}'") for kind in sorted(MAIL_KINDS)])

# Due outbox rows -------------------------------------------------------------------------------------------------


class OutboxRow(NamedTuple):
    """A due outbox row: a mail is to be written."""

    organization_id: str
    key: str
    kind: str
    subject_id: str
    payload: str
    attempt_count: int
    due_at: int


OWED = DueRows(effects, effects.c.due_at, effects.c.key, (effects.c.status == QUEUED, IS_MAIL))


_LOCK_OWED = OWED.locking(
    select(*columns_of(OutboxRow._fields, effects), NOW, *organizations.COLUMNS).join_from(
        effects, organization_table, organization_table.c.id == effects.c.organization_id
    )
)
_AT = len(OutboxRow._fields)


def lock_owed(tx: Tx, organization_id: str, keys: Iterable[str]) -> list[tuple[OutboxRow, Organization, int]]:
    """Lock the due ones among the outbox rows, the longest due first, and skip locked ones.

    Returns:
        Each row with its organization and the present instant.
    """
    return [
        (OutboxRow._make(row[:_AT]), organizations.from_row(row[_AT + 1 :]), row[_AT])
        for row in OWED.lock(tx, _LOCK_OWED, organization_id, keys)
    ]


# Bookings --------------------------------------------------------------------------------------------------------

_OF_OTHERS: dict[str, Any] = {
    "own_ends_at": departures.c.ends_at,
    "refund_id": refunds.c.id,
    "refund_minor": refunds.c.amount_minor,
    "refund_status": refunds.c.status,
    "refund_reason": refunds.c.last_error,
    "refund_first_sent_at": refunds.c.first_sent_at,
    "refund_provider_id": refunds.c.provider_refund_id,
    "refund_settled_minor": refunds.c.settled_minor,
    "restored_minor": gift_card_entries.c.amount_minor,
}


_KEYS = rows_parameter("wanted", {"organization_id": Id, "id": Id})
_refund = and_(
    is_of(refunds.c, bookings.c, booking_id="id"),
    refunds.c.number == literal_column("0"),  # that of the cancellation
)
_restored = and_(
    is_of(gift_card_entries.c, bookings.c, booking_id="id"), gift_card_entries.c.kind == literal_column("'restore'")
)
_BOOKINGS = Statement(
    select(*columns_of(MailBooking._fields, bookings, departures, experiences, **_OF_OTHERS))
    .join_from(_KEYS, bookings, has_key(bookings, _KEYS))
    .join(departures)
    .join(experiences, has_key(experiences, bookings, id="experience_id"))
    .join(refunds, _refund, isouter=True)
    .join(gift_card_entries, _restored, isouter=True)
)


_GIFT_CARDS = Statement(
    select(*columns_of(GiftCardDetails._fields, gift_cards)).join_from(_KEYS, gift_cards, has_key(gift_cards, _KEYS))
)


def get_bookings(tx: Tx, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], MailBooking]:
    """Return the bookings of the keys (organization id, id)."""
    rows = map(MailBooking._make, _of_keys(tx, _BOOKINGS, keys))
    return {(row.organization_id, row.id): row for row in rows}


def get_gift_cards(tx: Tx, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], GiftCardDetails]:
    """Return the gift cards of the keys (organization id, id)."""
    rows = map(GiftCardDetails._make, _of_keys(tx, _GIFT_CARDS, keys))
    return {(row.organization_id, row.id): row for row in rows}


def _of_keys(tx: Tx, statement: Statement, pairs: Iterable[tuple[str, str]]) -> list[Row]:
    keys = sorted(set(pairs))
    return tx.all(statement, wanted=as_rows(("organization_id", "id"), keys)) if keys else []


_ORGANIZATION = Statement(select(*organizations.COLUMNS, NOW).where(organization_table.c.id == ROW_ID))


def get_organization(tx: Tx, organization_id: str) -> tuple[Organization, int] | None:
    """Return the organization and its present instant, which the statements that follow take for the present."""
    row = tx.first(_ORGANIZATION, id=organization_id)
    if row is None:
        return None
    organization = organizations.from_row(row)
    organizations.follow(tx, organization, row[-1])
    return organization, organization.instant(row[-1])


# Due mails -------------------------------------------------------------------------------------------------------


class QueuedMail(NamedTuple):
    """A due mail."""

    organization_id: str
    id: str
    kind: str
    recipient: str
    message: str
    attempt_count: int
    created_at: int
    clock_offset: int | None
    """The lead of a sandbox's clock, in microseconds; None: the organization is live."""


DUE = DueRows(mails, mails.c.next_attempt_at, mails.c.id, (mails.c.status == QUEUED,))
PARKED = DueRows(
    mails,
    mails.c.next_attempt_at,
    mails.c.id,
    (mails.c.status == QUEUED,),
    ahead=END_OF_TIME,
    # Not `=`: the order would be without a sort then, and PostgreSQL might read the table instead of the index.
    bounds=(mails.c.next_attempt_at >= literal_column(str(END_OF_TIME)),),
)
"""Mails that wait until there is a mail server."""


_offset = clock_offset_of(mails.c.organization_id).correlate(mails).scalar_subquery()
_LOCK_DUE = DUE.locking(select(*columns_of(QueuedMail._fields, mails, clock_offset=_offset), NOW))
_LEASE = ("lease_token",)
"""A mail that another worker has leased since is not changed."""
_ENDED = ("status", "next_attempt_at", "lease_until", "sent_at", "completed_at")
SETTLE_MAIL = Update(
    "settle_mails",
    mails,
    sets=("status", "attempt_count", "next_attempt_at", "lease_until", "last_error", "completed_at"),
    conditions=_LEASE,
)
CAPTURED = Update("captured_mails", mails, sets=_ENDED, conditions=_LEASE)
SENT = Update("sent_mails", mails, sets=(*_ENDED, "message"), conditions=_LEASE)


def lock_due(tx: Tx, organization_id: str, mail_ids: Iterable[str]) -> list[tuple[QueuedMail, int]]:
    """Lock the due ones among the mails, each with the present instant, and skip locked ones."""
    rows = DUE.lock(tx, _LOCK_DUE, organization_id, mail_ids)
    return [(QueuedMail._make(row[:-1]), row[-1]) for row in rows]


_LOCK_PARKED = PARKED.locking(select(mails.c.id))


def lock_parked(tx: Tx, organization_id: str, mail_ids: Iterable[str]) -> list[str]:
    """Lock mails among these that wait for a mail server, and skip locked ones."""
    return [row[0] for row in PARKED.lock(tx, _LOCK_PARKED, organization_id, mail_ids)]
