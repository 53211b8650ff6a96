"""The SQL of mails: due outbox rows, bookings, and due mails."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, and_, bindparam, exists, literal_column, select, update
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.clock import END_OF_TIME
from booking_core.context import Organization
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_parameter
from booking_core.db.tables import (
    Id,
    bookings,
    departures,
    effects,
    experiences,
    gift_card_entries,
    mails,
    payments,
    refunds,
)
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import Update
from booking_core.notifications.rules import MAIL_KINDS
from booking_core.notifications.summary import BookingDetails

QUEUED: ColumnElement[str] = literal_column("'queued'")
"""Written out, so that the partial indexes of what is queued are used."""
IS_MAIL = effects.c.kind.in_([literal_column(f"'{kind}'") for kind in sorted(MAIL_KINDS)])

# Due outbox rows -------------------------------------------------------------------------------------------------


class OutboxRow(NamedTuple):
    """A due outbox row, for which a mail is to be written."""

    organization_id: str
    key: str
    kind: str
    subject_id: str
    payload: str
    attempt_count: int
    due_at: int


def _due_outbox(dialect: Dialect) -> Any:
    columns = [effects.c[name] for name in OutboxRow._fields]
    return (
        select(*columns, now_us(dialect), *organizations.COLUMNS)
        .join_from(effects, organization_table, organization_table.c.id == effects.c.organization_id)
        .where(effects.c.status == QUEUED, effects.c.due_at <= now_us(dialect), IS_MAIL)
        .order_by(effects.c.due_at)
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(of=effects, skip_locked=True)
    )


_DUE_OUTBOX = Statement(_due_outbox)
_AT = len(OutboxRow._fields)


def lock_due_outbox(tx: Tx, *, limit: int) -> list[tuple[OutboxRow, Organization, int]]:
    """Lock due outbox rows, the longest due first, and skip locked ones.

    Returns:
        Each row with its organization and the present instant.
    """
    return [
        (OutboxRow._make(row[:_AT]), organizations.from_row(row[_AT + 1 :]), row[_AT])
        for row in tx.all(_DUE_OUTBOX, limit=limit)
    ]


SETTLE = Update(
    "settle_effects",
    effects,
    sets=("status", "attempt_count", "due_at", "last_error", "completed_at"),
    keys=("organization_id", "key"),
)

# Bookings --------------------------------------------------------------------------------------------------------

_OF_OTHERS: dict[str, Any] = {
    "title": experiences.c.title,
    "address": experiences.c.address,
    "duration_minutes": experiences.c.duration_minutes,
    "starts_at": departures.c.starts_at,
    "own_ends_at": departures.c.ends_at,
    "paid_minor": payments.c.amount_minor,
    "refund_id": refunds.c.id,
    "refund_minor": refunds.c.amount_minor,
    "refund_status": refunds.c.status,
    "refund_reason": refunds.c.last_error,
    "refund_first_sent_at": refunds.c.first_sent_at,
    "refund_provider_id": refunds.c.provider_refund_id,
    "refund_settled_minor": refunds.c.settled_minor,
    "restored_minor": gift_card_entries.c.amount_minor,
}


def _bookings(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", {"organization_id": Id, "id": Id})
    owner = bookings.c.organization_id
    paid = and_(
        payments.c.organization_id == owner,
        payments.c.booking_id == bookings.c.id,
        payments.c.status == literal_column("'paid'"),
    )
    refund = and_(refunds.c.organization_id == owner, refunds.c.booking_id == bookings.c.id)
    restored = and_(
        gift_card_entries.c.organization_id == owner,
        gift_card_entries.c.booking_id == bookings.c.id,
        gift_card_entries.c.kind == literal_column("'restore'"),
    )
    departed = and_(departures.c.organization_id == owner, departures.c.id == bookings.c.departure_id)
    offered = and_(experiences.c.organization_id == owner, experiences.c.id == bookings.c.experience_id)
    return (
        select(*(_OF_OTHERS[name] if name in _OF_OTHERS else bookings.c[name] for name in BookingDetails._fields))
        .join_from(wanted, bookings, and_(owner == wanted.c.organization_id, bookings.c.id == wanted.c.id))
        .join(departures, departed)
        .join(experiences, offered)
        .join(payments, paid, isouter=True)
        .join(refunds, refund, isouter=True)
        .join(gift_card_entries, restored, isouter=True)
    )


_BOOKINGS = Statement(_bookings)


def get_bookings(tx: Tx, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], BookingDetails]:
    """Return the bookings of the keys (organization id, id)."""
    keys = [{"organization_id": owner, "id": booking_id} for owner, booking_id in sorted(set(wanted))]
    if not keys:
        return {}
    found = map(BookingDetails._make, tx.all(_BOOKINGS, wanted=as_json(keys)))
    return {(row.organization_id, row.id): row for row in found}


_ORGANIZATION = Statement(
    lambda dialect: select(*organizations.COLUMNS, now_us(dialect)).where(
        organization_table.c.id == bindparam("id", type_=Id)
    )
)


def get_organization(tx: Tx, organization_id: str) -> tuple[Organization, int] | None:
    """Return the organization, and the present instant."""
    row = tx.first(_ORGANIZATION, id=organization_id)
    return (organizations.from_row(row), row[-1]) if row else None


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


def _due(dialect: Dialect) -> Any:
    columns = [mails.c[name] for name in QueuedMail._fields]
    return (
        select(*columns, now_us(dialect))
        .where(mails.c.status == QUEUED, mails.c.next_attempt_at <= now_us(dialect))
        .order_by(mails.c.next_attempt_at)
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(skip_locked=True)
    )


_DUE = Statement(_due)
LEASE = Update("lease_mails", mails, sets=("lease_token", "lease_until", "next_attempt_at", "attempt_count"))
_LEASED = ("organization_id", "id", "lease_token")
"""With the lease token: a mail that another worker has leased since is not changed."""
SETTLE_MAIL = Update(
    "settle_mails",
    mails,
    sets=("status", "attempt_count", "next_attempt_at", "lease_until", "last_error", "completed_at"),
    keys=_LEASED,
)
SENT = Update(
    "sent_mails",
    mails,
    sets=("status", "next_attempt_at", "lease_until", "sent_at", "completed_at", "message"),
    keys=_LEASED,
)


def lock_due(tx: Tx, *, limit: int) -> list[tuple[QueuedMail, int]]:
    """Lock due mails, each with the present instant."""
    return [(QueuedMail._make(row[:-1]), row[-1]) for row in tx.all(_DUE, limit=limit)]


def _pending(dialect: Dialect) -> Any:
    owes = exists().where(effects.c.status == QUEUED, effects.c.due_at <= now_us(dialect), IS_MAIL)
    sends = exists().where(mails.c.status == QUEUED, mails.c.next_attempt_at <= now_us(dialect))
    return select(owes, sends)


_PENDING = Statement(_pending)


def pending(tx: Tx) -> tuple[bool, bool]:
    """Return whether any mail is due to be written, and whether any is due to be sent."""
    row = tx.first(_PENDING)
    assert row is not None
    return bool(row[0]), bool(row[1])


_PARKED = Statement(
    lambda dialect: (
        update(mails)
        .where(mails.c.status == QUEUED, mails.c.next_attempt_at == literal_column(str(END_OF_TIME)))
        .values(next_attempt_at=now_us(dialect))
    )
)


def unpark(tx: Tx) -> int:
    return tx.run(_PARKED)
