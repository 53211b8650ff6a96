"""`booking refunds`: money that goes back to guests, and the refunds that wait for a person."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client.pagination import LIMIT, Limit
from booking_cli.framework import amounts, context
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli
from booking_cli.operator import staff_bookings, storage, transactions

if TYPE_CHECKING:
    from booking_core.context import Organization
    from booking_core.db.engine import Tx

app = group("Refunds: what goes back to guests, and what waits for a person. These commands open the database.")

COLUMNS = (
    "id",
    "status",
    "amount",
    "booking_number",
    "customer.name",
    "reason",
    "organization",
    "created_at",
    "settled_amount",
    "booking_id",
)
"""The first ones are the most important: a narrow terminal shows only those that fit."""
STATUSES = ("waiting", "requested", "sending", "succeeded", "settled", "failed", "needs_review")
_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

Org = Annotated[str | None, typer.Option("--org", metavar="SLUG", help="Only this organization's.", show_default=False)]
RefundId = Annotated[
    str, typer.Argument(metavar="ID", help="The refund's id, or its booking's; `booking refunds list` shows both.")
]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="How and when it was paid; for the timeline.")]


@command(
    app,
    "list",
    "booking refunds list --org fjord-tours --status waiting",
    "booking refunds list --status needs_review -o json",
)
def list_(
    ctx: typer.Context,
    org: Org = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="|".join(STATUSES), parser=one_of(*STATUSES), help="Only those.", show_default=False
        ),
    ] = None,
    limit: Limit = LIMIT,
) -> None:
    """Lists refunds, the newest first.

    \b
    requested      owed; the worker is about to send it to the gateway
    sending        sent; the gateway has not settled it yet
    succeeded      the gateway returned the money
    settled        staff closed it by hand
    failed         the gateway refused it
    needs_review   it was never sent, or what became of it is unclear; `show` says which
    waiting        failed and needs_review: a person has to act
    """
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import payments
        from booking_core.payments import RefundFilter

        wanted = RefundFilter(status) if status else None
        found = database.read(
            lambda tx: payments.find_refunds(tx, _organization(tx, org), status=wanted, limit=limit + 1)
        )
        shown = [payments.present_refund(*each) for each in found[:limit]]
    has_more = len(found) > limit
    cli.render.many(shown, COLUMNS, empty="No refund.", beside={"has_more": has_more}, clipped={"customer.name": 16})
    if has_more:
        cli.render.note("There are more: --limit N shows as many.")


@command(app, "show", f"booking refunds show {_ID}", f"booking refunds show {_ID} -o json --fields status,summary")
def show(ctx: typer.Context, refund_id: RefundId) -> None:
    """Shows a refund, with what is true of it in a sentence and what can be done."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import payments

        shown = payments.present_refund(*database.read(lambda tx: payments.find_refund(tx, refund_id)))
    cli.render.one(shown)
    if shown["waits_for_a_person"]:
        cli.render.note(_next(shown))


@command(app, "retry", f"booking refunds retry {_ID}", shape="refund", changes=True)
def retry(ctx: typer.Context, refund_id: RefundId) -> None:
    """Has a refund sent once more that failed or needs a review.

    The money cannot go back twice: before it asks for a refund again, the worker looks at every refund of the payment
    that the gateway knows, also at those that somebody made at its dashboard.
    """
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import payments

    shown = _act(cli, refund_id, lambda tx, actor, found: payments.reopen_refund(tx, actor, found))
    cli.render.one(shown)
    cli.render.note("Queued: a worker sends it.")
    if storage.settings().stripe_api_key is None:
        cli.render.warn("BOOKING_STRIPE_API_KEY is not set here: a worker without it leaves the refund to staff again.")


@command(
    app,
    "settle",
    f"booking refunds settle {_ID} --note 'Bank transfer of 23 November'",
    f"booking refunds settle {_ID} --amount 500.00 --note 'The rest was waived'",
    f"booking refunds settle {_ID} --amount 0 --note 'The bank returned it after a dispute'",
    shape="refund",
    changes=True,
)
def settle(
    ctx: typer.Context,
    refund_id: RefundId,
    note: Note,
    amount: Annotated[
        str | None,
        typer.Option(
            "--amount",
            metavar="AMOUNT",
            parser=amounts.amount_text,
            help="What was returned: 500.00, or 50000 minor units; all that is owed unless said. 0 closes it unpaid.",
        ),
    ] = None,
) -> None:
    """Records that a refund was paid by hand, and closes it.

    The booking's payment.status then says refunded or partially_refunded, as if the gateway had returned the money. A
    refund that a worker is sending at this moment is refused.
    """
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import payments

    def work(tx: "Tx", actor: Any, found: str) -> Any:
        minor = None
        if amount is not None:
            minor = amounts.parse_amount(amount, payments.get_refund(tx, actor.organization, found).currency)
        return payments.settle_refund(tx, actor, found, note=note, amount_minor=minor)

    cli.render.one(_act(cli, refund_id, work))


@command(
    app,
    "record",
    f"booking refunds record {_ID} --amount 500.00 --note 'Cash, as a goodwill'",
    shape="refund",
    changes=True,
)
def record(
    ctx: typer.Context,
    booking: Annotated[
        str, typer.Argument(metavar="BOOKING", help="The booking's id, or with --org its number; it is cancelled.")
    ],
    amount: Annotated[
        str,
        typer.Option(
            "--amount",
            metavar="AMOUNT",
            parser=amounts.amount_text,
            help="What was returned: 500.00, or 50000 minor units.",
        ),
    ],
    note: Note,
    org: Annotated[
        str | None, typer.Option("--org", metavar="SLUG", help="Whose booking it is, when it is named by its number.")
    ] = None,
) -> None:
    """Records money that was returned by hand for a cancelled booking of which nothing was owed.

    Once for a booking, and no more than what was paid by card or recorded with `booking payments record`.
    """
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings, payments

    def verb(tx: "Tx", actor: Any, pending: Any) -> Any:
        found = bookings.refer(tx, actor, booking)
        minor = amounts.parse_amount(amount, bookings.lock(tx, actor, found).row.currency)
        made = payments.record_refund(tx, actor, found, amount_minor=minor, note=note)
        return payments.present_refund(made, actor.organization)

    cli.render.one(transactions.act(cli, staff_bookings.owner(booking, org), verb))


def _act(cli: Cli, refund_id: str, work: Any) -> Any:
    """Runs a verb on the refund of that id, and gives the refund ready for JSON."""
    from booking_core import payments

    def verb(tx: "Tx", actor: Any, pending: Any) -> Any:
        found = payments.find_refund(tx, refund_id)[0].id
        return payments.present_refund(work(tx, actor, found), actor.organization)

    return transactions.act(cli, lambda tx: payments.find_refund(tx, refund_id)[1], verb)


def _next(shown: dict[str, Any]) -> str:
    by_hand = f"once it is paid by hand: booking refunds settle {shown['id']} --note TEXT"
    can_retry = shown["payment_intent"] is not None
    return f"Next, {by_hand}" + (f"; to have it sent again: booking refunds retry {shown['id']}" if can_retry else "")


def _organization(tx: "Tx", slug: str | None) -> "Organization | None":
    from booking_core import organizations

    return organizations.get(tx, slug=slug) if slug else None
