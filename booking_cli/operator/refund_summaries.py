"""Look up the refunds of cancelled bookings, and of bookings that would be cancelled."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.framework.formatting import money

if TYPE_CHECKING:
    from booking_core.db.engine import Tx

Refund = dict[str, Any]
"""`state`, `amount` and more of a refund; only these two of an expected one."""

EXPECTED = "expected"
"""The state of a refund that a cancellation would create."""


def of_bookings(tx: "Tx", organization_id: str, booking_ids: Sequence[str]) -> dict[str, Refund]:
    """Return the refund of each booking that has one, by the booking's id."""
    from booking_core import payments

    outcomes = payments.outcomes_of(tx, organization_id, booking_ids)
    return {booking_id: outcome.to_json() for booking_id, outcome in outcomes.items() if outcome.refund_id}


def of_cancelled_booking(tx: "Tx", organization_id: str, booking_id: str) -> dict[str, Any]:
    """Return `refund`, the booking's refund or None, and `sentence`, which describes it to the staff."""
    from booking_core import payments

    outcome = payments.outcome_of(tx, organization_id, booking_id)
    return {"refund": outcome.to_json() if outcome.refund_id else None, "sentence": outcome.sentence}


def full_refunds(tx: "Tx", organization_id: str, booking_ids: Sequence[str]) -> dict[str, Refund]:
    """Return the refund of everything that was paid, for each booking."""
    from booking_core import payments

    amounts = payments.full_refunds(tx, organization_id, booking_ids)
    return {booking_id: {"state": EXPECTED, "amount": amount} for booking_id, amount in amounts.items()}


def totals(bookings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sum of the bookings' refunds in each currency."""
    return sum_amounts(booking["refund"] for booking in bookings if booking["refund"])


def sum_amounts(refunds: Iterable[Refund]) -> list[dict[str, Any]]:
    """Return the sum of the refunds in each currency."""
    sums: dict[str, int] = {}
    for each in refunds:
        amount = each["amount"]
        sums[amount["currency"]] = sums.get(amount["currency"], 0) + amount["amount_minor"]
    return [{"amount_minor": minor, "currency": currency} for currency, minor in sums.items()]


def amounts_text(sums: Iterable[Mapping[str, Any]]) -> str:
    """Return amounts in several currencies as text."""
    return ", ".join(map(money, sums)) or "nothing"
