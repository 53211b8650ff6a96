"""Lists of refunds, recorded payments and unpaid bookings for staff, and the money outcome of a cancellation."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Integer, Select, Text, and_, bindparam, func, literal_column, or_, select
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.base.errors import NotFound
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import (
    Id,
    bookings,
    departures,
    experiences,
    gift_card_entries,
    payment_records,
    payments,
    refunds,
)
from booking_core.db.tables import organizations as organization_table
from booking_core.models.base import is_id
from booking_core.models.bookings import BookingStatus, PaymentMethod, PaymentSource, PaymentStatus
from booking_core.models.money import formatted
from booking_core.payments import rules
from booking_core.payments.refund_states import WAITING, RefundState, RefundStatus

_LIMIT = bindparam("limit", type_=Integer)
_ORGANIZATION = bindparam("organization_id", type_=Id)
_CANCELLATION = literal_column(str(rules.CANCELLATION), Integer)


def _money(amount_minor: int, currency: str) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": currency}


def _iso(organization: Organization, at: int | None) -> str | None:
    return None if at is None else organization.zone.iso(at)


# Refunds ---------------------------------------------------------------------------------------------------------


class Refund(NamedTuple):
    """A refund with columns of its booking and its payment."""

    organization_id: str
    id: str
    booking_id: str
    booking_number: int | None
    guest_name: str | None
    guest_email: str | None
    status: str
    amount_minor: int
    currency: str
    paid_minor: int
    payment_source: str
    payment_intent: str | None
    provider_refund_id: str | None
    last_error: str | None
    attempt_count: int
    reopened_count: int
    first_sent_at: int | None
    next_attempt_at: int | None
    settled_minor: int | None
    settled_note: str | None
    settled_at: int | None
    created_at: int
    updated_at: int

    @property
    def state(self) -> RefundState:
        return RefundState(
            status=self.status,
            amount_minor=self.amount_minor,
            currency=self.currency,
            reason=self.last_error,
            was_sent=self.first_sent_at is not None,
            is_accepted=self.provider_refund_id is not None,
            settled_minor=self.settled_minor,
        )


OwnedRefund = tuple[Refund, Organization]
"""A refund with its organization."""

_OF_BOOKINGS = ("booking_number", "guest_name", "guest_email", "payment_source")
_OF_PAYMENTS = {"paid_minor": payments.c.amount_minor, "payment_intent": payments.c.payment_intent}


def _refund_column(name: str) -> Any:
    if name in _OF_BOOKINGS:
        return bookings.c[name]
    return _OF_PAYMENTS[name] if name in _OF_PAYMENTS else refunds.c[name]


_REFUND = tuple(map(_refund_column, Refund._fields))


def _refunds(*conditions: Any) -> Select[Any]:
    booked = and_(bookings.c.organization_id == refunds.c.organization_id, bookings.c.id == refunds.c.booking_id)
    paid = and_(payments.c.organization_id == refunds.c.organization_id, payments.c.id == refunds.c.payment_id)
    return (
        select(*_REFUND, *organizations.COLUMNS)
        .join_from(organization_table, refunds, refunds.c.organization_id == organization_table.c.id)
        .join(bookings, booked)
        .join(payments, paid)
        .where(*conditions)
    )


_NEWEST = (refunds.c.created_at.desc(), refunds.c.id.desc())


class RefundFilter(StrEnum):
    """Filters of a list of refunds: a status, or all that wait for a person."""

    REQUESTED = "requested"
    SENDING = "sending"
    SUCCEEDED = "succeeded"
    SETTLED = "settled"
    FAILED = "failed"
    NEEDS_REVIEW = "needs_review"
    WAITING = "waiting"


@lru_cache
def _listing(refund_filter: RefundFilter | None, *, of_one: bool) -> Statement:
    """Return the statement of a filter. The statuses are literals, because the planner has to know them."""
    conditions = [refunds.c.organization_id == _ORGANIZATION] if of_one else []
    if refund_filter is not None:
        statuses = sorted(WAITING) if refund_filter is RefundFilter.WAITING else [refund_filter]
        conditions.append(refunds.c.status.in_([literal_column(f"'{status}'", Text) for status in statuses]))
    return Statement(_refunds(*conditions).order_by(*_NEWEST).limit(_LIMIT))


def find_refunds(
    tx: Tx, organization: Organization | None = None, *, status: RefundFilter | None = None, limit: int
) -> list[OwnedRefund]:
    """Return refunds of the organization, or of all, the newest first.

    `RefundFilter.WAITING` selects refunds that need a person: refused by the gateway, never sent, or unclear.
    """
    parameters: dict[str, Any] = {} if organization is None else {"organization_id": organization.id}
    statement = _listing(status, of_one=organization is not None)
    with tx.without_statement_timeout():
        return [_owned(row) for row in tx.all(statement, limit=limit, **parameters)]


def _owned(row: Row) -> OwnedRefund:
    return Refund._make(row[: len(_REFUND)]), organizations.from_row(row[len(_REFUND) :])


_WAITS = refunds.c.status.in_([literal_column(f"'{status}'", Text) for status in sorted(WAITING)])
_BY_ID = Statement(
    _refunds(
        or_(refunds.c.id == bindparam("id", type_=Id), refunds.c.booking_id == bindparam("id", type_=Id))
    ).order_by(_WAITS.desc(), *_NEWEST)
)
_IN_ORGANIZATION = Statement(
    _refunds(refunds.c.organization_id == _ORGANIZATION, refunds.c.id == bindparam("id", type_=Id))
)


def find_refund(tx: Tx, refund_id: str) -> OwnedRefund:
    """Return the refund with that id, or one of the booking with that id, of any organization: the newest that waits
    for a person, else the newest.

    Raises:
        NotFound: there is none.
    """
    row = tx.first(_BY_ID, id=refund_id.lower()) if is_id(refund_id) else None
    if row is None:
        raise NotFound(f"There is no refund {refund_id!r}, and no booking of that id has one.")
    return _owned(row)


def get_refund(tx: Tx, organization: Organization, refund_id: str) -> Refund:
    """Return one refund of the organization.

    Raises:
        NotFound: it has no such refund.
    """
    row = tx.first(_IN_ORGANIZATION, organization_id=organization.id, id=refund_id)
    if row is None:
        raise NotFound("There is no such refund.")
    return _owned(row)[0]


def present_refund(refund: Refund, organization: Organization) -> dict[str, Any]:
    """Return the refund, ready for JSON, with a sentence about its state."""
    settled = None if refund.settled_minor is None else _money(refund.settled_minor, refund.currency)
    return {
        "id": refund.id,
        "organization": organization.slug,
        "booking_id": refund.booking_id,
        "booking_number": refund.booking_number,
        "customer": {"name": refund.guest_name, "email": refund.guest_email},
        "status": refund.status,
        "amount": _money(refund.amount_minor, refund.currency),
        "paid": _money(refund.paid_minor, refund.currency),
        "settled_amount": settled,
        "reason": refund.last_error,
        "summary": refund.state.for_staff(),
        "waits_for_a_person": refund.state.waits,
        "payment_intent": refund.payment_intent,
        "provider_refund_id": refund.provider_refund_id,
        "attempt_count": refund.attempt_count,
        "reopened_count": refund.reopened_count,
        "first_sent_at": _iso(organization, refund.first_sent_at),
        "next_attempt_at": _iso(organization, refund.next_attempt_at),
        "settled_at": _iso(organization, refund.settled_at),
        "note": refund.settled_note,
        "created_at": _iso(organization, refund.created_at),
        "updated_at": _iso(organization, refund.updated_at),
    }


# Recorded payments -----------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A payment that staff recorded."""

    id: str
    booking_id: str
    amount_minor: int
    currency: str
    method: str | None
    note: str | None
    received_at: int
    voided_at: int | None
    voided_note: str | None
    created_at: int


_RECORD = tuple(payment_records.c[name] for name in Record._fields)
_RECORDS = Statement(
    select(*_RECORD)
    .where(
        payment_records.c.organization_id == _ORGANIZATION,
        payment_records.c.booking_id == bindparam("booking_id", type_=Id),
    )
    .order_by(payment_records.c.created_at, payment_records.c.id)
)
_RECORD_BY_ID = Statement(
    select(*_RECORD).where(
        payment_records.c.organization_id == _ORGANIZATION, payment_records.c.id == bindparam("id", type_=Id)
    )
)


def find_records(tx: Tx, organization: Organization, booking_id: str) -> list[Record]:
    """Return the payments that staff recorded for a booking, the oldest first, voided ones too."""
    return [Record._make(row) for row in tx.all(_RECORDS, organization_id=organization.id, booking_id=booking_id)]


def get_record(tx: Tx, organization_id: str, record_id: str) -> Record | None:
    """Return one recorded payment of the organization; none when it has no such record."""
    row = tx.first(_RECORD_BY_ID, organization_id=organization_id, id=record_id)
    return Record._make(row) if row else None


def organization_of_record(tx: Tx, record_id: str) -> Organization:
    """Return the organization of a recorded payment.

    Raises:
        NotFound: there is no such record.
    """
    return organizations.owner(tx, payment_records, record_id, "recorded payment")


def present_record(record: Record, organization: Organization) -> dict[str, Any]:
    """Return the recorded payment, ready for JSON."""
    return {
        "id": record.id,
        "booking_id": record.booking_id,
        "amount": _money(record.amount_minor, record.currency),
        "method": record.method,
        "note": record.note,
        "received_at": _iso(organization, record.received_at),
        "voided_at": _iso(organization, record.voided_at),
        "voided_note": record.voided_note,
        "created_at": _iso(organization, record.created_at),
    }


# Unpaid bookings -------------------------------------------------------------------------------------------------


class DueBooking(NamedTuple):
    """A confirmed booking that is not paid, or not wholly."""

    id: str
    booking_number: int | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    payment_method: str
    payment_source: str
    payment_status: str
    currency: str
    total_minor: int
    recorded_minor: int
    created_at: int
    starts_at: int
    title: str


_OF_DUE = {"starts_at": departures.c.starts_at, "title": experiences.c.title}


@lru_cache
def _due(method: PaymentMethod | None, *, overdue: bool) -> Statement:
    unpaid = (literal_column(f"'{status}'", Text) for status in (PaymentStatus.UNPAID, PaymentStatus.PENDING))
    conditions = [
        bookings.c.organization_id == _ORGANIZATION,
        bookings.c.status == literal_column(f"'{BookingStatus.CONFIRMED}'", Text),
        bookings.c.payment_status.in_(list(unpaid)),
    ]
    if method is not None:
        conditions.append(bookings.c.payment_method == literal_column(f"'{method}'", Text))
    if overdue:
        conditions.append(departures.c.starts_at <= bindparam("at", type_=BigInteger))
    owner = bookings.c.organization_id
    departed = and_(departures.c.organization_id == owner, departures.c.id == bookings.c.departure_id)
    offered = and_(experiences.c.organization_id == owner, experiences.c.id == bookings.c.experience_id)
    columns = (_OF_DUE[name] if name in _OF_DUE else bookings.c[name] for name in DueBooking._fields)
    return Statement(
        select(*columns)
        .join_from(bookings, departures, departed)
        .join(experiences, offered)
        .where(*conditions)
        .order_by(departures.c.starts_at, bookings.c.id)
        .limit(_LIMIT)
    )


def find_due(
    tx: Tx,
    organization: Organization,
    *,
    method: PaymentMethod | None = None,
    overdue: bool = False,
    limit: int,
) -> list[DueBooking]:
    """Return confirmed bookings that are not fully paid, the earliest departure first.

    Args:
        method: only `pay_on_site`, `invoice`, or `card` (confirmed by staff before the card was charged).
        overdue: only bookings whose departure has begun.

    It reads every confirmed booking of the organization. An index of unpaid bookings would slow down every new
    booking, and this list is read by a person now and then.
    """
    parameters: dict[str, Any] = {"at": tx.now()} if overdue else {}
    with tx.without_statement_timeout():
        rows = tx.all(_due(method, overdue=overdue), organization_id=organization.id, limit=limit, **parameters)
    return [DueBooking._make(row) for row in rows]


def present_due(due: DueBooking, organization: Organization, at: int) -> dict[str, Any]:
    """Return the unpaid booking as JSON-ready values, with the unpaid amount."""
    return {
        "id": due.id,
        "booking_number": due.booking_number,
        "customer": {"name": due.guest_name, "email": due.guest_email, "phone": due.guest_phone},
        "experience": due.title,
        "starts_at": _iso(organization, due.starts_at),
        "payment": {"method": due.payment_method, "source": due.payment_source, "status": due.payment_status},
        "total": _money(due.total_minor, due.currency),
        "paid": _money(due.recorded_minor, due.currency),
        "left": _money(due.total_minor - due.recorded_minor, due.currency),
        "is_overdue": due.starts_at <= at,
        "created_at": _iso(organization, due.created_at),
    }


# Money outcome of a cancellation ---------------------------------------------------------------------------------


class MoneyState(StrEnum):
    """State of the money of a cancelled booking."""

    NOT_CANCELLED = "not_cancelled"
    NOTHING_PAID = "nothing_paid"
    """No payment was received here, so nothing goes back."""
    PAID_ELSEWHERE = "paid_elsewhere"
    """It was paid outside this service, and is returned there."""
    KEPT = "kept"
    """The policy, or staff, keeps it."""
    QUEUED = "queued"
    """The gateway is to return it."""
    RETURNED = "returned"
    BY_HAND = "by_hand"
    """A person has to return it, or to check it."""


_STATES = {
    RefundStatus.REQUESTED: MoneyState.QUEUED,
    RefundStatus.SENDING: MoneyState.QUEUED,
    RefundStatus.SUCCEEDED: MoneyState.RETURNED,
    RefundStatus.SETTLED: MoneyState.RETURNED,
    RefundStatus.FAILED: MoneyState.BY_HAND,
    RefundStatus.NEEDS_REVIEW: MoneyState.BY_HAND,
}


@dataclass(frozen=True, slots=True)
class MoneyOutcome:
    """RefundOutcome of a cancellation for the money that was paid."""

    state: MoneyState
    amount_minor: int
    """The returned amount, or the amount to be returned."""
    currency: str
    restored_minor: int
    """Returned to the gift card."""
    refund_id: str | None
    sentence: str
    """For staff."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome, ready for JSON."""
        return {
            "state": str(self.state),
            "amount": _money(self.amount_minor, self.currency),
            "restored_to_gift_card": _money(self.restored_minor, self.currency),
            "refund_id": self.refund_id,
            "summary": self.sentence,
        }


class _Paid(NamedTuple):
    """Columns that decide the outcome of a booking without a refund."""

    id: str
    status: str
    currency: str
    payment_source: str
    payment_method: str
    payment_status: str
    recorded_minor: int
    total_minor: int
    restored_minor: int | None


def _outcomes(dialect: Dialect) -> Select[Any]:
    restored = and_(
        gift_card_entries.c.organization_id == bookings.c.organization_id,
        gift_card_entries.c.booking_id == bookings.c.id,
        gift_card_entries.c.kind == literal_column("'restore'"),
        gift_card_entries.c.number == _CANCELLATION,
    )
    returned = {"restored_minor": func.coalesce(gift_card_entries.c.amount_minor, 0)}
    columns = (returned[name] if name in returned else bookings.c[name] for name in _Paid._fields)
    return (
        select(*columns)
        .join_from(bookings, gift_card_entries, restored, isouter=True)
        .where(bookings.c.organization_id == _ORGANIZATION, in_rows(dialect, bookings.c.id, "wanted", "id"))
    )


_OUTCOMES = Statement(_outcomes)
_OF_BOOKINGS_AMONG = Statement(
    lambda dialect: _refunds(
        refunds.c.organization_id == _ORGANIZATION,
        in_rows(dialect, refunds.c.booking_id, "wanted", "id"),
        refunds.c.number == _CANCELLATION,
    )
)


def outcome_of(tx: Tx, organization_id: str, booking_id: str) -> MoneyOutcome:
    """Return the money outcome of a cancelled booking: state, amount and a sentence for staff.

    It reads committed rows, so call it after the transaction that cancelled the booking.

    Raises:
        NotFound: the organization has no such booking.
    """
    outcomes = outcomes_of(tx, organization_id, [booking_id])
    if not outcomes:
        raise NotFound("There is no such booking.")
    return outcomes[booking_id]


def outcomes_of(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, MoneyOutcome]:
    """Return the money outcome of several bookings, by booking id, with two statements."""
    ids = as_json({"id": booking_id} for booking_id in booking_ids)
    paid = [_Paid._make(row) for row in tx.all(_OUTCOMES, organization_id=organization_id, wanted=ids)]
    rows = tx.all(_OF_BOOKINGS_AMONG, organization_id=organization_id, wanted=ids)
    owed = {refund.booking_id: refund for refund, _ in map(_owned, rows)}
    return {booking.id: _outcome(booking, owed.get(booking.id)) for booking in paid}


def _outcome(paid: _Paid, refund: Refund | None) -> MoneyOutcome:
    state, amount, sentence = _decided(paid, refund)
    restored = paid.restored_minor or 0
    if restored:
        sentence += f" {formatted(restored, paid.currency)} went back to the gift card."
    return MoneyOutcome(state, amount, paid.currency, restored, refund and refund.id, sentence)


_REFUNDED = frozenset({PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED})


def _decided(paid: _Paid, refund: Refund | None) -> tuple[MoneyState, int, str]:
    if paid.status != BookingStatus.CANCELLED:
        return MoneyState.NOT_CANCELLED, 0, "The booking is not cancelled."
    if refund is not None:
        amount = refund.amount_minor if refund.settled_minor is None else refund.settled_minor
        return _STATES[RefundStatus(refund.status)], amount, refund.state.for_staff()
    if paid.recorded_minor:
        amount_text = formatted(paid.recorded_minor, paid.currency)
        return MoneyState.KEPT, 0, f"Nothing is returned of the {amount_text} that was paid by hand."
    if paid.payment_source == PaymentSource.STRIPE and paid.payment_status == PaymentStatus.PAID:
        amount_text = formatted(paid.total_minor, paid.currency)
        return MoneyState.KEPT, 0, f"Nothing is returned of the {amount_text} that was paid by card."
    if paid.payment_source == PaymentSource.STRIPE and paid.payment_status in _REFUNDED:
        return MoneyState.KEPT, 0, "Somebody refunded the payment at the gateway; nothing more is returned."
    if paid.payment_source == PaymentSource.STRIPE:
        return MoneyState.NOTHING_PAID, 0, "No card was charged, so nothing is returned."
    if paid.payment_method == PaymentMethod.EXTERNAL_PAID:
        return MoneyState.PAID_ELSEWHERE, 0, "It was paid outside this service: a refund is made there."
    return MoneyState.NOTHING_PAID, 0, "No payment was received, so nothing is returned."


# Full refunds ----------------------------------------------------------------------------------------------------


def _left(dialect: Dialect) -> Select[Any]:
    booked = and_(bookings.c.organization_id == payments.c.organization_id, bookings.c.id == payments.c.booking_id)
    owed = and_(
        refunds.c.organization_id == payments.c.organization_id,
        refunds.c.booking_id == payments.c.booking_id,
        refunds.c.number == _CANCELLATION,
    )
    unreturned: Any = payments.c.amount_minor - payments.c.refunded_minor
    awaited = [literal_column(f"'{status}'", Text) for status in (PaymentStatus.PENDING, PaymentStatus.FAILED)]
    return (
        select(payments.c.booking_id, unreturned, payments.c.currency, bookings.c.payment_source)
        .join_from(payments, bookings, booked)
        .join(refunds, owed, isouter=True)
        .where(payments.c.organization_id == _ORGANIZATION, in_rows(dialect, payments.c.booking_id, "wanted", "id"))
        .where(refunds.c.id.is_(None), payments.c.status.not_in(awaited), unreturned > literal_column("0", Integer))
    )


_UNRETURNED = Statement(_left)


def full_refunds(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the full refund of each booking, as Money ready for JSON, by booking id.

    Bookings without a payment, and bookings with a refund, are left out.
    """
    ids = as_json({"id": booking_id} for booking_id in booking_ids)
    rows = tx.all(_UNRETURNED, organization_id=organization_id, wanted=ids)
    return {
        booking_id: _money(_returned(amount_minor, currency, source), currency)
        for booking_id, amount_minor, currency, source in rows
    }


def _returned(left_minor: int, currency: str, source: str) -> int:
    by_gateway = source == PaymentSource.STRIPE
    return rules.returnable(left_minor, currency, left_minor) if by_gateway else left_minor
