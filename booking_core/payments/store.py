"""The SQL of payments and refunds."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql import dml

from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.db.engine import Query, Tx
from booking_core.db.statements import (
    NOW,
    OWNER,
    ROW_ID,
    Statement,
    as_rows,
    columns_of,
    has_key,
    is_of,
    rows_parameter,
)
from booking_core.db.tables import Id, bookings, payment_intents, payments, refunds
from booking_core.db.unit_of_work import InsertFromSelect, Update
from booking_core.due_work.rows import DueRows, clock_offset_of
from booking_core.models.bookings import PaymentStatus
from booking_core.payments import rules
from booking_core.payments.refund_states import RefundReason
from booking_core.payments.rules import RefundRow

# Payments --------------------------------------------------------------------------------------------------------


class PaymentRow(NamedTuple):
    """The locked payment of a booking."""

    id: str
    amount_minor: int
    refunded_minor: int
    currency: str
    status: str
    updated_at: int
    payment_intent: str | None
    released_minor: int
    has_refund: bool
    """Of the cancellation of its booking."""

    @property
    def is_awaited(self) -> bool:
        """Return whether it is not received. A payment that was dropped may still be."""
        return self.status in (PaymentStatus.PENDING, PaymentStatus.FAILED)


_HAS_REFUND = exists().where(
    is_of(refunds.c, payments.c, booking_id="booking_id"), refunds.c.number == literal_column(str(rules.CANCELLATION))
)
_COLUMNS = columns_of(PaymentRow._fields, payments, has_refund=_HAS_REFUND)
_COLUMNS_OR_NULL = [*_COLUMNS[:-1], case((payments.c.id.is_not(None), _HAS_REFUND))]
"""Of a booking that may have no payment: then nothing is searched for."""
_OF_BOOKING = (payments.c.organization_id == OWNER, payments.c.booking_id == bindparam("booking_id"))
_GET_PAYMENT = Statement(select(*_COLUMNS).where(*_OF_BOOKING))
_LOCK_PAYMENT = Statement(select(*_COLUMNS).where(*_OF_BOOKING).with_for_update(key_share=True, of=payments))


def get(tx: Tx, actor: Actor, booking_id: str) -> PaymentRow | None:
    """Return the payment of a booking without a lock; none when it has none."""
    return tx.first_as(PaymentRow._make, _GET_PAYMENT, organization_id=actor.organization.id, booking_id=booking_id)


def lock(tx: Tx, actor: Actor, booking_id: str) -> PaymentRow | None:
    """Lock the pending or received payment of a booking whose row the caller has locked; none when it has none."""
    return tx.first_as(PaymentRow._make, _LOCK_PAYMENT, organization_id=actor.organization.id, booking_id=booking_id)


def insert(
    tx: Tx, organization_id: str, booking_id: str, amount_minor: int, currency: str, status: PaymentStatus, at: int
) -> str:
    """Insert the payment of a booking, after the booking, and return its id."""
    payment_id = tokens.new_id()
    ids = {"organization_id": organization_id, "id": payment_id, "booking_id": booking_id}
    amount = {"amount_minor": amount_minor, "currency": currency, "status": status.value}
    tx.insert(payments, **ids, **amount, created_at=at, updated_at=at)
    return payment_id


def with_payment(bookings_select: Select[Any], page: FromClause, booking_id: ColumnElement[str | None]) -> Select[Any]:
    """Add the columns of `PaymentRow` to a select of bookings; they are null without a payment.

    Args:
        page: the bookings, with the column organization_id.
        booking_id: of the booking whose payment is wanted; null where none is.
    """
    same = and_(payments.c.organization_id == page.c.organization_id, payments.c.booking_id == booking_id)
    return bookings_select.add_columns(*_COLUMNS_OR_NULL).join(payments, same, isouter=True)


_LOCK_INTENT = Statement(
    select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("name", type_=Text), literal_column("0"))))
)
_PAID_BY_INTENT = Statement(
    select(payments.c.booking_id)
    .where(
        payments.c.organization_id == OWNER,
        payments.c.payment_intent == bindparam("payment_intent"),
        payments.c.booking_id != bindparam("booking_id"),
    )
    .limit(literal_column("1"))
)


def other_booking_paid_by(tx: Tx, organization_id: str, payment_intent: str, booking_id: str) -> str | None:
    """Return the id of another booking that the payment intent pays for.

    On PostgreSQL the intent is locked until the transaction ends, and read by a later statement, which sees the commit
    of the lock's former holder. A unique index could not be made where an earlier release took one intent for several
    bookings.
    """
    name = f"payment_intent:{organization_id}:{payment_intent}"
    lock: Query[None] = Query(_LOCK_INTENT, {"name": name}, lambda _: None, is_lock=True)
    key = {"organization_id": organization_id, "payment_intent": payment_intent, "booking_id": booking_id}
    other: str | None = tx.pipeline(lock, Query(_PAID_BY_INTENT, key, lambda rows: rows[0][0] if rows else None))[1]
    return other


def _drop(name: str) -> dml.Update:
    of = rows_parameter(name, {"organization_id": Id, "booking_id": Id, "at": BigInteger}).c
    return (
        update(payments)
        .where(
            is_of(payments.c, of, booking_id="booking_id"),
            payments.c.status == literal_column(f"'{PaymentStatus.PENDING}'", Text),
        )
        .values(status=PaymentStatus.FAILED.value, updated_at=of.at)
    )


DROP = InsertFromSelect("dropped_payments", _drop)

RELEASE = Update("release_payment", payments, sets=("status", "updated_at"), adds=("amount_minor", "released_minor"))
_LAST_NUMBER = Statement(
    select(func.max(refunds.c.number)).where(
        refunds.c.organization_id == OWNER, refunds.c.booking_id == bindparam("booking_id")
    )
)


def next_refund_number(tx: Tx, actor: Actor, booking_id: str) -> int:
    """Return the number of the next refund of a change of party of a booking, whose row the caller has locked."""
    ((last,),) = tx.all(_LAST_NUMBER, organization_id=actor.organization.id, booking_id=booking_id)
    return int(last or 0) + 1


ADJUST = Update("adjust_payment", payments, sets=("status", "updated_at"), adds=("amount_minor",))


class BookingForRefund(NamedTuple):
    """The locked booking of a refund that staff records."""

    booking_status: str
    payment_source: str
    customer_id: str | None
    updated_at: int


_LOCK_BOOKING = Statement(
    select(*columns_of(BookingForRefund._fields, bookings, booking_status=bookings.c.status))
    .where(
        bookings.c.organization_id == OWNER,
        bookings.c.id == ROW_ID,
    )
    .with_for_update(key_share=True)
)


def lock_booking(tx: Tx, actor: Actor, booking_id: str) -> BookingForRefund | None:
    """Lock the booking, before its payment, as everywhere."""
    return tx.first_as(BookingForRefund._make, _LOCK_BOOKING, organization_id=actor.organization.id, id=booking_id)


# Refunds ---------------------------------------------------------------------------------------------------------

OPEN = refunds.c.status.in_([literal_column("'requested'", Text), literal_column("'sending'", Text)])
"""Written as in the partial index of due refunds: else the planner would not use it."""


_other = refunds.alias("other").c
_RETURNED_ELSEWHERE = (
    select(payment_intents.c.returned_minor)
    .where(is_of(payment_intents.c, refunds.c, booking_id="booking_id"))
    .correlate(refunds)
    .scalar_subquery()
)
_CLOSED_ELSEWHERE = (
    select(func.sum(func.coalesce(_other.settled_minor, _other.amount_minor)))
    .where(
        is_of(_other, refunds.c, booking_id="booking_id"),
        or_(
            _other.status == literal_column("'settled'", Text),
            and_(
                _other.status == literal_column("'succeeded'", Text),
                _other.last_error == literal_column(f"'{RefundReason.REFUNDED_ELSEWHERE}'", Text),
            ),
        ),
    )
    .correlate(refunds)
    .scalar_subquery()
)
_ELSEWHERE = cast(
    func.coalesce(_RETURNED_ELSEWHERE, literal_column("0")) + func.coalesce(_CLOSED_ELSEWHERE, literal_column("0")),
    BigInteger,
)
"""The sum of refunds from the gateway's dashboard that are recorded with the payment or as another refund. Refunds that
staff settled by hand count, since they may have been made there."""

_part = refunds.alias("part").c
_PARTS = (
    select(
        cast(
            func.coalesce(
                func.sum(
                    case((_part.status == literal_column("'succeeded'"), _part.amount_minor), else_=_part.settled_minor)
                ),
                literal_column("0"),
            ),
            BigInteger,
        )
    )
    .where(
        is_of(_part, refunds.c, booking_id="booking_id"),
        _part.number > literal_column(str(rules.CANCELLATION)),
        _part.status.in_([literal_column("'succeeded'"), literal_column("'settled'")]),
    )
    .correlate(refunds)
    .scalar_subquery()
)
"""The sum that refunds of changes of the party have returned."""
_IS_MINE = refunds.c.organization_id == OWNER
_LOCKED = (bookings, payments, refunds)
_OF_OTHERS = {
    "parts_returned_minor": _PARTS,
    "elsewhere_minor": _ELSEWHERE,
    "paid_minor": payments.c.amount_minor,
    "payment_status": payments.c.status,
    "booking_updated_at": bookings.c.updated_at,
    "at": NOW,
    "clock_offset": clock_offset_of(refunds.c.organization_id).correlate(refunds).scalar_subquery(),
}


_JOINED = (
    select(*columns_of(RefundRow._fields, refunds, payments, bookings, **_OF_OTHERS))
    .join_from(bookings, refunds, has_key(bookings, refunds, id="booking_id"))
    .join(payments, has_key(payments, refunds, id="payment_id"))
)
"""Refunds with their payments and bookings."""


DUE = DueRows(refunds, refunds.c.next_attempt_at, refunds.c.id, (OPEN,))

_LOCK_DUE = DUE.locking(_JOINED, key_share=True)


def due(tx: Tx, organization_id: str, refund_ids: Iterable[str]) -> list[RefundRow]:
    """Return the due refunds; on PostgreSQL lock them and skip locked ones."""
    return list(map(RefundRow._make, DUE.lock(tx, _LOCK_DUE, organization_id, refund_ids)))


_LEASE: dict[str, Any] = {"organization_id": Id, "id": Id, "lease_token": Text}
_LEASES = rows_parameter("wanted", _LEASE)
_LOCK_LEASED = Statement(
    _JOINED.join(_LEASES, and_(has_key(refunds, _LEASES), refunds.c.lease_token == _LEASES.c.lease_token))
    .where(OPEN)
    .order_by(bookings.c.organization_id, bookings.c.id)
    .with_for_update(key_share=True, of=_LOCKED)
)
"""Locks refunds with a matching lease token.

Bookings are locked in the order of their ids, each before its payment and its refund: concurrent transactions wait for
each other and never deadlock.
"""


def lock_leased(tx: Tx, leases: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], RefundRow]:
    """Lock the refunds whose lease is still the last, by (organization id, id).

    Args:
        leases: (organization id, refund id, lease token).
    """
    rows = map(RefundRow._make, tx.all(_LOCK_LEASED, wanted=as_rows(_LEASE, leases)))
    return {(row.organization_id, row.id): row for row in rows}


# In the order of bookings, payments and refunds: staff and workers never deadlock.
_LOCK_REFUND = Statement(_JOINED.where(_IS_MINE, refunds.c.id == ROW_ID).with_for_update(key_share=True, of=_LOCKED))
_LOCK_REFUNDS_OF_BOOKING = Statement(
    _JOINED.where(_IS_MINE, refunds.c.booking_id == bindparam("booking_id"))
    .order_by(refunds.c.number)
    .with_for_update(key_share=True, of=_LOCKED)
)


def lock_refund(tx: Tx, actor: Actor, refund_id: str) -> RefundRow | None:
    """Lock the refund, in any status, with its payment and booking until the transaction ends."""
    return tx.first_as(RefundRow._make, _LOCK_REFUND, organization_id=actor.organization.id, id=refund_id)


def lock_refunds_of_booking(tx: Tx, actor: Actor, booking_id: str) -> list[RefundRow]:
    """Lock the refunds of a booking, as `lock_refund`, the refund of its cancellation first."""
    rows = tx.all(_LOCK_REFUNDS_OF_BOOKING, organization_id=actor.organization.id, booking_id=booking_id)
    return list(map(RefundRow._make, rows))


REFUND = Update("refund_payment", payments, sets=("status", "updated_at"), adds=("refunded_minor",))
