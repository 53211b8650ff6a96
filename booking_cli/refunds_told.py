"""Telling what happens to the money of a booking that is cancelled: the one place of the command that looks it up."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.render import money

if TYPE_CHECKING:
    from booking_core.db.engine import Tx

Refund = dict[str, Any]
"""`{status, amount}`: of the refund that a booking is owed, or would be."""

EXPECTED = "expected"
"""The status of a refund that would be owed, and is not yet."""


def of_bookings(tx: "Tx", organization_id: str, booking_ids: Sequence[str]) -> dict[str, Refund]:
    """Return the refund of each booking that has one, by the booking's id."""
    from booking_core.db.tables import refunds

    columns = (refunds.c.booking_id, refunds.c.status, refunds.c.amount_minor, refunds.c.currency)
    return _found(tx, organization_id, booking_ids, columns, ())


def in_full(tx: "Tx", organization_id: str, booking_ids: Sequence[str]) -> dict[str, Refund]:
    """Return what each booking would get back if all that was paid by card were given back now."""
    from sqlalchemy import literal_column

    from booking_core.db.tables import payments

    left: Any = (payments.c.amount_minor - payments.c.refunded_minor).label("left")
    columns: tuple[Any, ...] = (payments.c.booking_id, literal_column(f"'{EXPECTED}'"), left, payments.c.currency)
    paid = payments.c.status.in_([literal_column("'paid'"), literal_column("'partially_refunded'")])
    have = of_bookings(tx, organization_id, booking_ids)
    expected = _found(tx, organization_id, booking_ids, columns, (paid, left > literal_column("0")))
    return {booking_id: refund for booking_id, refund in expected.items() if booking_id not in have}


def _found(
    tx: "Tx", organization_id: str, booking_ids: Sequence[str], columns: Sequence[Any], conditions: Iterable[Any]
) -> dict[str, Refund]:
    from sqlalchemy import bindparam, select

    from booking_core.db.statements import Statement, among, rows
    from booking_core.db.tables import Id

    table = columns[0].table
    mine = table.c.organization_id == bindparam("organization_id", type_=Id)
    statement = Statement(
        lambda dialect: select(*columns).where(mine, among(dialect, table.c.booking_id, "wanted", "id"), *conditions)
    )
    wanted = rows({"id": each} for each in booking_ids)
    return {
        booking_id: {"status": status, "amount": {"amount_minor": amount, "currency": currency}}
        for booking_id, status, amount, currency in tx.all(statement, organization_id=organization_id, wanted=wanted)
    }


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


_STATES = {
    "requested": "is owed to the card, and is sent by the worker",
    "sending": "is on its way to the card",
    "succeeded": "was given back to the card",
    "failed": "was refused by the gateway, and waits for a person",
    "needs_review": "was not sent, and waits for a person",
}


def sentence(booking: Mapping[str, Any], refund: Refund | None) -> str:
    """Return what becomes of the money of a cancelled booking, as one sentence for staff."""
    payment = booking["payment"]
    if refund is not None:
        return f"{money(refund['amount'])} {_STATES.get(refund['status'], refund['status'])}."
    if payment["source"] != "stripe":
        return f"No card was charged here ({payment['method']}, {payment['status']}): nothing is refunded."
    if payment["status"] in ("pending", "failed"):
        return "The card was not charged: there is nothing to refund. Money that still comes goes back."
    return "Nothing is refunded: the money is kept."
