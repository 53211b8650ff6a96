"""`booking payments`: what guests paid by hand, and what is still to be paid."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client.pagination import LIMIT, Limit
from booking_cli.framework import amounts, context
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import CliError
from booking_cli.operator import staff_bookings, storage, transactions

if TYPE_CHECKING:
    from booking_core.db.engine import Tx

app = group("Payments by hand: on site and for invoices. These commands open the database.")

DUE_COLUMNS = (
    "booking_number",
    "starts_at",
    "customer.name",
    "left",
    "payment.method",
    "customer.email",
    "experience",
    "total",
    "id",
    "is_overdue",
)
COLUMNS = ("id", "received_at", "amount", "method", "note", "voided_at")
METHODS = ("pay_on_site", "invoice", "card")
_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

BookingRef = Annotated[
    str, typer.Argument(metavar="BOOKING", help="The booking's id, or with --org its number; `payments due` shows it.")
]
Whose = Annotated[
    str | None, typer.Option("--org", metavar="SLUG", help="Whose booking it is, when it is named by its number.")
]


@command(
    app,
    "record",
    f"booking payments record {_ID} --amount 890.00 --method cash",
    "booking payments record 1017 --org fjord-tours --amount 890.00",
    f"booking payments record {_ID} --amount 400.00 --method 'bank transfer' --at 2026-11-20T09:00:00",
    shape="booking",
    changes=True,
)
def record(
    ctx: typer.Context,
    booking: BookingRef,
    amount: Annotated[
        str,
        typer.Option(
            "--amount",
            metavar="AMOUNT",
            parser=amounts.amount_text,
            help="What was received: 890.00, or 89000 minor units.",
        ),
    ],
    method: Annotated[
        str | None, typer.Option("--method", metavar="TEXT", help="How it was paid: cash, terminal, bank transfer.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="For the staff.")] = None,
    org: Whose = None,
    received_at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="T", help="When it was received; ISO 8601, without an offset local time; else now."
        ),
    ] = None,
) -> None:
    """Records a payment of a booking that is paid on site or by invoice.

    Several parts may be recorded; payment.status becomes paid once they come to the total. More than what is left to
    pay is refused.
    """
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings

    def verb(tx: "Tx", actor: Any, pending: Any) -> Any:
        found = bookings.refer(tx, actor, booking)
        minor = amounts.parse_amount(amount, bookings.lock(tx, actor, found).row.currency)
        at = _instant(actor, received_at)
        return bookings.record_payment(tx, actor, found, amount_minor=minor, method=method, note=note, received_at=at)

    shown = transactions.act(cli, staff_bookings.owner(booking, org), verb)
    cli.render.one(shown)
    if shown["payment"]["status"] != "paid":
        cli.render.note("A part is paid; `booking payments list` shows what was recorded.")


@command(app, "list", f"booking payments list {_ID}", "booking payments list 1017 --org fjord-tours")
def list_(ctx: typer.Context, booking: BookingRef, org: Whose = None) -> None:
    """Lists the payments that were recorded for a booking, voided ones too."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings, payments

    def verb(tx: "Tx", actor: Any, pending: Any) -> list[dict[str, Any]]:
        found = bookings.lock(tx, actor, bookings.refer(tx, actor, booking)).row.id
        records = payments.find_records(tx, actor.organization, found)
        return [payments.present_record(each, actor.organization) for each in records]

    shown = transactions.act(cli, staff_bookings.owner(booking, org), verb)
    cli.render.many(shown, COLUMNS, empty="No payment was recorded.", prose=("note",))


@command(
    app,
    "void",
    f"booking payments void {_ID} --note 'Recorded for the wrong booking'",
    shape="booking",
    changes=True,
)
def void(
    ctx: typer.Context,
    record_id: Annotated[
        str, typer.Argument(metavar="RECORD", help="The record's id; `booking payments list BOOKING` shows it.")
    ],
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why; for the timeline.")] = None,
) -> None:
    """Voids a recorded payment that was a mistake: the booking is unpaid again by that amount."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings, payments

    shown = transactions.act(
        cli,
        lambda tx: payments.record_owner(tx, record_id),
        lambda tx, actor, pending: bookings.void_payment(tx, actor, record_id.lower(), note=note),
    )
    cli.render.one(shown)


@command(
    app,
    "due",
    "booking payments due --org fjord-tours",
    "booking payments due --org fjord-tours --method invoice --overdue",
)
def due(
    ctx: typer.Context,
    org: Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.", show_default=False)],
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="|".join(METHODS),
            parser=one_of(*METHODS),
            help="Only those; card: confirmed by staff before the card was charged.",
            show_default=False,
        ),
    ] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="Only those whose departure has begun.")] = False,
    limit: Limit = LIMIT,
) -> None:
    """Lists confirmed bookings that are not paid yet, the earliest departure first.

    Those are bookings whose invoice is due, that are paid on site, or that staff confirmed before their card was
    charged.
    """
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import organizations, payments
        from booking_core.models.bookings import PaymentMethod

        wanted = PaymentMethod(method) if method else None

        def read(tx: "Tx") -> list[dict[str, Any]]:
            organization, at = organizations.get(tx, slug=org), tx.now()
            found = payments.find_due(tx, organization, method=wanted, overdue=overdue, limit=limit + 1)
            return [payments.present_due(each, organization, at) for each in found]

        found = database.read(read)
    has_more = len(found) > limit
    cli.render.many(
        found[:limit],
        DUE_COLUMNS,
        empty="Nothing is left to pay.",
        beside={"has_more": has_more},
        clipped={"customer.name": 16, "experience": 20},
    )
    if has_more:
        cli.render.note("There are more: --limit N shows as many.")


def _instant(actor: Any, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        found: int = actor.organization.zone.parse(text)
    except ValueError as error:
        raise CliError(f"--at {error}.", hint="write 2026-11-20T09:00:00 or 2026-11-20T09:00:00+01:00") from None
    return found
