"""Look up what happens to the money of a cancelled booking: the one place of operator commands that does."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.framework.output import money

if TYPE_CHECKING:
    from booking_core.db.engine import Tx

Refund = dict[str, Any]
"""`state`, `amount` and more of the refund that a booking is owed; of one that would be owed only these two."""

EXPECTED = "expected"
"""The state of a refund that would be owed, and is not yet."""


def of_bookings(tx: "Tx", organization_id: str, booking_ids: Sequence[str]) -> dict[str, Refund]:
    """Return the refund of each booking that has one, by the booking's id."""
    from booking_core import payments

    found = payments.outcomes_of(tx, organization_id, booking_ids)
    return {booking_id: outcome.to_json() for booking_id, outcome in found.items() if outcome.refund_id}


def outcome(tx: "Tx", organization_id: str, booking_id: str) -> dict[str, Any]:
    """Return the refund of a cancelled booking, or None, and what becomes of its money as one sentence for staff."""
    from booking_core import payments

    found = payments.outcome_of(tx, organization_id, booking_id)
    return {"refund": found.to_json() if found.refund_id else None, "sentence": found.sentence}


def in_full(tx: "Tx", organization_id: str, booking_ids: Sequence[str]) -> dict[str, Refund]:
    """Return what each booking would get back if all that was paid were given back now."""
    from booking_core import payments

    found = payments.full_refunds(tx, organization_id, booking_ids)
    return {booking_id: {"state": EXPECTED, "amount": amount} for booking_id, amount in found.items()}


def total(refunds: Iterable[Refund]) -> list[dict[str, Any]]:
    """Return the sum of the refunds in each currency."""
    sums: dict[str, int] = {}
    for each in refunds:
        amount = each["amount"]
        sums[amount["currency"]] = sums.get(amount["currency"], 0) + amount["amount_minor"]
    return [{"amount_minor": minor, "currency": currency} for currency, minor in sums.items()]


def amounts(sums: Iterable[Mapping[str, Any]]) -> str:
    """Return amounts in several currencies as text."""
    return ", ".join(map(money, sums)) or "nothing"
