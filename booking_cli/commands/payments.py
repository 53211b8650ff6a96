"""`booking payments`: record payments that were made by hand, and list unpaid bookings, in the database."""

import json
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework import amounts, options
from booking_cli.framework.arguments import parse_amount
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import argument, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import staff_bookings, storage, transactions
from booking_cli.operator.transactions import parse_instant

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("Record payments made by hand (operator).")

DUE_COLUMNS = Columns(
    "booking_number starts_at customer.name left payment.method customer.email experience total id is_overdue".split(),
    empty="Nothing is unpaid.",
    truncated={"customer.name": 16, "experience": 20},
)
COLUMNS = Columns(
    ("id", "received_at", "amount", "method", "note", "voided_at"),
    empty="No payment was recorded.",
    wrapped=("note",),
)
METHODS = ("pay_on_site", "invoice", "card")

Method = Annotated[str | None, option("--method TEXT", "How it was paid: cash, terminal, bank transfer.")]
ReceivedAt = Annotated[
    str | None, option("--at T", "When it was received: ISO 8601, local time without an offset; default: now.")
]


@command(app, "record", shape="booking", changes=True)
def record(
    cli: Cli,
    booking: options.BookingRef,
    amount: options.Amount,
    method: Method = None,
    note: options.StaffNote = None,
    org: options.OrgOfBooking = None,
    received_at: ReceivedAt = None,
) -> None:
    """Record a payment for a booking that is paid on site or by invoice.

    Several partial payments may be recorded; payment.status becomes `paid` when they reach the total. More than the
    unpaid amount is refused. The command asks about an amount that was probably meant in the major unit.

    Examples:
        booking payments record 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --amount 890.00 --method cash
        booking payments record 1017 --org fjord-tours --amount 890.00
        booking payments record 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --amount 400.00 --method 'bank transfer' --at 2026-11-20T09:00:00
    """  # noqa: E501
    from booking_core import bookings

    def change(tx: "Tx", actor: "Actor", booking_id: str) -> Any:
        before = bookings.lock(tx, actor, booking_id)
        currency, unpaid_minor = before.row.currency, before.unpaid_minor
        minor = parse_amount(amount, currency)
        at = parse_instant(actor.organization, "--at", received_at)
        changed = bookings.record_payment(
            tx, actor, booking_id, amount_minor=minor, method=method, note=note, received_at=at
        )
        amounts.require_intended(cli, amount, minor, unpaid_minor, currency)
        return amounts.with_rest(json.loads(changed), minor, unpaid_minor, currency)

    amounts.write_with_rest(cli, staff_bookings.change_booking(cli, booking, org, change))


@command(app, "list")
def list_(cli: Cli, booking: options.BookingRef, org: options.OrgOfBooking = None) -> None:
    """List the recorded payments of a booking, including voided ones.

    Examples:
        booking payments list 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking payments list 1017 --org fjord-tours
    """
    from booking_core import bookings, payments

    def change(tx: "Tx", actor: "Actor", booking_id: str) -> list[dict[str, Any]]:
        records = payments.find_records(tx, actor.organization, bookings.lock(tx, actor, booking_id).row.id)
        return [payments.present_record(record, actor.organization) for record in records]

    records = staff_bookings.change_booking(cli, booking, org, change)
    cli.render.many(records, COLUMNS)


@command(app, "void", shape="booking", changes=True)
def void(
    cli: Cli,
    record_id: Annotated[str, argument("RECORD", "The record's id; see `booking payments list BOOKING`.")],
    note: options.StaffNote = None,
) -> None:
    """Void a recorded payment: its amount is unpaid again.

    Examples:
        booking payments void 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --note 'Recorded for the wrong booking'
    """
    from booking_core import bookings, payments

    changed = transactions.change(
        cli,
        lambda tx: payments.organization_of_record(tx, record_id),
        lambda tx, actor: bookings.void_payment(tx, actor, record_id.lower(), note=note),
    )
    cli.render.one(changed)


@command(app, "due")
def due(
    cli: Cli,
    org: options.Org,
    method: Annotated[str | None, options.choice("--method", choices=METHODS, help="Filter by payment method.")] = None,
    overdue: Annotated[bool, option("--overdue", "Only bookings whose departure has begun.")] = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
) -> None:
    """List confirmed bookings that are not fully paid, earliest departure first.

    These are bookings paid on site or by invoice, and those that staff confirmed before the card was charged (--method
    card).

    Examples:
        booking payments due --org fjord-tours
        booking payments due --org fjord-tours --method invoice --overdue
    """
    with storage.open_database(cli) as database:
        from booking_core import payments
        from booking_core.models.bookings import PaymentMethod

        organization = storage.find_organization(cli, database, org)
        payment_method = PaymentMethod(method) if method else None
        with database.reading() as tx:
            rows = payments.find_due(tx, organization, method=payment_method, overdue=overdue, limit=limit + 1)
            unpaid = [payments.present_due(row, organization, tx.now()) for row in rows]
    cli.render.limited(unpaid, limit, DUE_COLUMNS)
