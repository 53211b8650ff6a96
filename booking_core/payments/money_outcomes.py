"""The money of cancelled bookings: the returned amounts, their destination, and a sentence for staff."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Integer, Select, Text, and_, func, literal_column, select

from booking_core.base.errors import NotFound
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, Statement, as_ids, columns_of, in_rows, is_of
from booking_core.db.tables import bookings, gift_card_entries, payments, refunds
from booking_core.models.bookings import BookingStatus, PaymentMethod, PaymentSource, PaymentStatus
from booking_core.models.money import formatted, money_json
from booking_core.payments import rules
from booking_core.payments.refund_list import Refund, parse_refund, select_refunds
from booking_core.payments.refund_states import RefundStatus

_CANCELLATION = literal_column(str(rules.CANCELLATION), Integer)


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
    """Outcome of a cancellation for the money that was paid."""

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
            "amount": money_json(self.amount_minor, self.currency),
            "restored_to_gift_card": money_json(self.restored_minor, self.currency),
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


def _outcomes() -> Select[Any]:
    restored = and_(
        is_of(gift_card_entries.c, bookings.c, booking_id="id"),
        gift_card_entries.c.kind == literal_column("'restore'"),
        gift_card_entries.c.number == _CANCELLATION,
    )
    restored_minor = func.coalesce(gift_card_entries.c.amount_minor, 0)
    return (
        select(*columns_of(_Paid._fields, bookings, restored_minor=restored_minor))
        .join_from(bookings, gift_card_entries, restored, isouter=True)
        .where(bookings.c.organization_id == OWNER, in_rows(bookings.c.id, "wanted", "id"))
    )


_OUTCOMES = Statement(_outcomes())
_OF_BOOKINGS_AMONG = Statement(
    select_refunds(
        refunds.c.organization_id == OWNER,
        in_rows(refunds.c.booking_id, "wanted", "id"),
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
        raise NotFound.of("booking")
    return outcomes[booking_id]


def outcomes_of(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, MoneyOutcome]:
    """Return the money outcome of several bookings, by booking id, with two statements."""
    ids = as_ids(booking_ids)
    paid = [_Paid._make(row) for row in tx.all(_OUTCOMES, organization_id=organization_id, wanted=ids)]
    rows = tx.all(_OF_BOOKINGS_AMONG, organization_id=organization_id, wanted=ids)
    owed = {refund.booking_id: refund for refund, _ in map(parse_refund, rows)}
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


def _left() -> Select[Any]:
    owed = and_(is_of(refunds.c, payments.c, booking_id="booking_id"), refunds.c.number == _CANCELLATION)
    unreturned: Any = payments.c.amount_minor - payments.c.refunded_minor
    awaited = [literal_column(f"'{status}'", Text) for status in (PaymentStatus.PENDING, PaymentStatus.FAILED)]
    return (
        select(payments.c.booking_id, unreturned, payments.c.currency, bookings.c.payment_source)
        .join_from(payments, bookings)
        .join(refunds, owed, isouter=True)
        .where(payments.c.organization_id == OWNER, in_rows(payments.c.booking_id, "wanted", "id"))
        .where(refunds.c.id.is_(None), payments.c.status.not_in(awaited), unreturned > literal_column("0", Integer))
    )


_UNRETURNED = Statement(_left())


def full_refunds(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the full refund of each booking, as Money ready for JSON, by booking id.

    Bookings without a payment, and bookings with a refund, are left out.
    """
    rows = tx.all(_UNRETURNED, organization_id=organization_id, wanted=as_ids(booking_ids))
    return {
        booking_id: money_json(_returned(amount_minor, currency, source), currency)
        for booking_id, amount_minor, currency, source in rows
    }


def _returned(left_minor: int, currency: str, source: str) -> int:
    by_gateway = source == PaymentSource.STRIPE
    return rules.returnable(left_minor, currency, left_minor) if by_gateway else left_minor
