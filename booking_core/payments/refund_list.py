"""Refunds as staff sees them: a list of an organization or of all, one refund, and its JSON."""

from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Select, Text, literal_column, or_, select

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.base.errors import NotFound
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import LIMIT, OWNER, ROW_ID, Statement, columns_of, has_key
from booking_core.db.tables import bookings, payments, refunds
from booking_core.db.tables import organizations as organization_table
from booking_core.models.base import is_id
from booking_core.models.money import money_json
from booking_core.payments.refund_states import WAITING, RefundState


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

_REFUND = columns_of(Refund._fields, refunds, bookings, payments, paid_minor=payments.c.amount_minor)


def select_refunds(*conditions: Any) -> Select[Any]:
    """Select refunds with the columns of their bookings, payments and organizations."""
    return (
        select(*_REFUND, *organizations.COLUMNS)
        .join_from(organization_table, refunds, refunds.c.organization_id == organization_table.c.id)
        .join(bookings, has_key(bookings, refunds, id="booking_id"))
        .join(payments, has_key(payments, refunds, id="payment_id"))
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
    conditions = [refunds.c.organization_id == OWNER] if of_one else []
    if refund_filter is not None:
        statuses = sorted(WAITING) if refund_filter is RefundFilter.WAITING else [refund_filter]
        conditions.append(refunds.c.status.in_([literal_column(f"'{status}'", Text) for status in statuses]))
    return Statement(select_refunds(*conditions).order_by(*_NEWEST).limit(LIMIT))


def find_refunds(
    tx: Tx, organization: Organization | None = None, *, status: RefundFilter | None = None, limit: int
) -> list[OwnedRefund]:
    """Return refunds of the organization, or of all, the newest first.

    `RefundFilter.WAITING` selects refunds that need a person: refused by the gateway, never sent, or unclear.
    """
    parameters: dict[str, Any] = {} if organization is None else {"organization_id": organization.id}
    statement = _listing(status, of_one=organization is not None)
    with tx.without_statement_timeout():
        return [parse_refund(row) for row in tx.all(statement, limit=limit, **parameters)]


def parse_refund(row: Row) -> OwnedRefund:
    """Return the refund of a row of `select_refunds`."""
    return Refund._make(row[: len(_REFUND)]), organizations.from_row(row[len(_REFUND) :])


_WAITS = refunds.c.status.in_([literal_column(f"'{status}'", Text) for status in sorted(WAITING)])
_BY_ID = Statement(
    select_refunds(or_(refunds.c.id == ROW_ID, refunds.c.booking_id == ROW_ID)).order_by(_WAITS.desc(), *_NEWEST)
)
_IN_ORGANIZATION = Statement(select_refunds(refunds.c.organization_id == OWNER, refunds.c.id == ROW_ID))


def find_refund(tx: Tx, refund_id: str) -> OwnedRefund:
    """Return the refund with that id, or one of the booking with that id, of any organization: the newest that waits
    for a person, else the newest.

    Raises:
        NotFound: there is none.
    """
    row = tx.first(_BY_ID, id=refund_id.lower()) if is_id(refund_id) else None
    if row is None:
        message = f"There is no refund {refund_id!r}, and no booking of that id has one."
        raise NotFound(message, noun="refund")
    return parse_refund(row)


def get_refund(tx: Tx, organization: Organization, refund_id: str) -> Refund:
    """Return one refund of the organization.

    Raises:
        NotFound: it has no such refund.
    """
    row = tx.first(_IN_ORGANIZATION, organization_id=organization.id, id=refund_id)
    if row is None:
        raise NotFound.of("refund")
    return parse_refund(row)[0]


def present_refund(refund: Refund, organization: Organization) -> dict[str, Any]:
    """Return the refund, ready for JSON, with a sentence about its state."""
    settled = None if refund.settled_minor is None else money_json(refund.settled_minor, refund.currency)
    return {
        "id": refund.id,
        "organization": organization.slug,
        "booking_id": refund.booking_id,
        "booking_number": refund.booking_number,
        "customer": {"name": refund.guest_name, "email": refund.guest_email},
        "status": refund.status,
        "amount": money_json(refund.amount_minor, refund.currency),
        "paid": money_json(refund.paid_minor, refund.currency),
        "settled_amount": settled,
        "reason": refund.last_error,
        "summary": refund.state.for_staff(),
        "waits_for_a_person": refund.state.waits,
        "payment_intent": refund.payment_intent,
        "provider_refund_id": refund.provider_refund_id,
        "attempt_count": refund.attempt_count,
        "reopened_count": refund.reopened_count,
        "first_sent_at": organization.zone.iso_or_none(refund.first_sent_at),
        "next_attempt_at": organization.zone.iso_or_none(refund.next_attempt_at),
        "settled_at": organization.zone.iso_or_none(refund.settled_at),
        "note": refund.settled_note,
        "created_at": organization.zone.iso_or_none(refund.created_at),
        "updated_at": organization.zone.iso_or_none(refund.updated_at),
    }
