"""The SQL of payment intents."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Integer, Text, and_, bindparam, literal_column, or_, select, union_all

from booking_core.bookings.checkouts.rules import IntentRow
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, NOW, OWNER, Statement, columns_of, has_key
from booking_core.db.tables import Id, bookings, payment_intents, payments
from booking_core.due_work.rows import DueRows

_OWNED = payment_intents.c.organization_id == OWNER
_OF_BOOKING = payment_intents.c.booking_id == bindparam("booking_id", type_=Id)
_COLUMNS = columns_of(IntentRow._fields, payment_intents)
_GET = Statement(select(*_COLUMNS).where(_OWNED, _OF_BOOKING))
_LOCK = Statement(select(*_COLUMNS).where(_OWNED, _OF_BOOKING).with_for_update(key_share=True))


def get(tx: Tx, organization_id: str, booking_id: str) -> IntentRow | None:
    """Return the intent of a booking."""
    return tx.first_as(IntentRow._make, _GET, organization_id=organization_id, booking_id=booking_id)


def lock(tx: Tx, organization_id: str, booking_id: str) -> IntentRow | None:
    """Lock the intent of a booking, after the booking and its payment."""
    return tx.first_as(IntentRow._make, _LOCK, organization_id=organization_id, booking_id=booking_id)


def insert(tx: Tx, organization_id: str, row: IntentRow) -> None:
    """Collect a new intent."""
    tx.insert(tables.payment_intents, organization_id=organization_id, **row._asdict())


def change(tx: Tx, organization_id: str, row: IntentRow) -> None:
    """Collect the changes of an intent."""
    tx.update(payment_intents, organization_id=organization_id, **row._asdict())


_INTENT_ID = bindparam("intent_id", type_=Text)
_BY_INTENT = Statement(
    union_all(
        select(payment_intents.c.booking_id).where(_OWNED, payment_intents.c.intent_id == _INTENT_ID),
        select(payments.c.booking_id).where(
            payments.c.organization_id == OWNER, payments.c.payment_intent == _INTENT_ID
        ),
    ).limit(literal_column("1", type_=Integer))
)


def booking_of_intent(tx: Tx, organization_id: str, intent_id: str) -> str | None:
    """Return the id of the booking that the intent pays for."""
    row = tx.first(_BY_INTENT, organization_id=organization_id, intent_id=intent_id)
    return str(row[0]) if row else None


class Pending(NamedTuple):
    """The columns of a booking that say whether it can be paid."""

    status: str
    expires_at: int | None
    booking_number: int | None


_PENDING = Statement(
    select(*columns_of(Pending._fields, bookings)).where(
        bookings.c.organization_id == OWNER,
        bookings.c.id == bindparam("booking_id", type_=Id),
    )
)


def pending(tx: Tx, organization_id: str, booking_id: str) -> Pending | None:
    """Return whether the booking can be paid, and until when."""
    return tx.first_as(Pending._make, _PENDING, organization_id=organization_id, booking_id=booking_id)


# Checks that are due ---------------------------------------------------------------------------------------------

_IS_DUE = payment_intents.c.check_at.is_not(None)
DUE = DueRows(payment_intents, payment_intents.c.check_at, payment_intents.c.booking_id, (_IS_DUE,))


class DueCheck(NamedTuple):
    """An intent whose state is to be looked up, with the state of its booking."""

    booking_id: str
    intent_id: str | None
    check_count: int
    booking_status: str
    at: int


_LOCK_DUE = DUE.locking(
    select(*payment_intents.c["booking_id", "intent_id", "check_count"], bookings.c.status, NOW).join_from(
        payment_intents, bookings, has_key(bookings, payment_intents, id="booking_id")
    ),
    key_share=True,
)


def due(tx: Tx, organization_id: str, booking_ids: Iterable[str]) -> list[DueCheck]:
    """Return the intents that are due; on PostgreSQL it locks them and skips locked ones."""
    return list(map(DueCheck._make, DUE.lock(tx, _LOCK_DUE, organization_id, booking_ids)))


# For staff -------------------------------------------------------------------------------------------------------

_REVIEW = payment_intents.c.status == literal_column("'needs_review'", Text)
_DISPUTED = and_(payment_intents.c.dispute_id.is_not(None), payment_intents.c.dispute_closed_at.is_(None))
_CONDITIONS = {"needs_review": _REVIEW, "disputed": _DISPUTED, "waiting": or_(_REVIEW, _DISPUTED)}


def _listed(name: str | None) -> Statement:
    query = (
        select(*_COLUMNS, bookings.c.booking_number, bookings.c.status, bookings.c.payment_status)
        .join_from(payment_intents, bookings, has_key(bookings, payment_intents, id="booking_id"))
        .where(_OWNED)
        .order_by(payment_intents.c.updated_at.desc(), payment_intents.c.booking_id)
        .limit(LIMIT)
    )
    return Statement(query if name is None else query.where(_CONDITIONS[name]))


_LISTS = {name: _listed(name) for name in (None, *_CONDITIONS)}


def find(tx: Tx, organization_id: str, state: str | None, limit: int) -> Sequence[tuple[IntentRow, Any]]:
    """Return intents with number, status and payment status of their bookings, the last changed first."""
    width = len(IntentRow._fields)
    rows = tx.all(_LISTS[state], organization_id=organization_id, limit=limit)
    return [(IntentRow._make(row[:width]), row[width:]) for row in rows]
