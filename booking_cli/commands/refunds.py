"""`booking refunds`: list, retry and settle refunds in the database."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework import amounts
from booking_cli.framework.arguments import amount_text, parse_amount
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import (
    DEFAULT_LIMIT,
    Amount,
    BookingRef,
    Limit,
    OrgFilter,
    OrgOfBooking,
    argument,
    choice,
    option,
)
from booking_cli.framework.tables import Columns
from booking_cli.operator import staff_bookings, storage, transactions

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx
    from booking_core.payments import OwnedRefund

app = command_group("Manage refunds (operator).")

COLUMNS = Columns(
    "id status amount booking_number customer.name reason organization created_at settled_amount booking_id".split(),
    empty="No refund found.",
    truncated={"customer.name": 16},
)
STATUSES = ("waiting", "requested", "sending", "succeeded", "settled", "failed", "needs_review")

RefundId = Annotated[
    str,
    argument(
        "ID",
        "The id of the refund; or of a booking, or its number with --org, for its newest refund that waits for a"
        " person. See `booking refunds list`.",
    ),
]
Note = Annotated[str, option("--note TEXT", "How and when it was paid; shown in the timeline.")]
SettledAmount = Annotated[
    str | None,
    option(
        "--amount AMOUNT",
        "The amount paid: 500.00, or 50000 in minor units; 0 closes it unpaid; default: the whole refund.",
        parser=amount_text,
    ),
]


@command(app, "list")
def list_(
    cli: Cli,
    org: OrgFilter = None,
    status: Annotated[str | None, choice("--status", choices=STATUSES, help="Filter by status.")] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> None:
    """List refunds, newest first.

    \b
    requested      a worker will send it to the gateway
    sending        sent; the gateway has not settled it yet
    succeeded      the gateway returned the money
    settled        staff closed it by hand
    failed         the gateway refused it
    needs_review   never sent, or its result is unknown; see `show`
    waiting        failed or needs_review: a person has to act

    Examples:
        booking refunds list --org fjord-tours --status waiting
        booking refunds list --status needs_review -o json
    """
    from booking_core import payments

    find = partial(payments.find_refunds, status=payments.RefundFilter(status) if status else None)
    storage.write_list(cli, find, payments.present_refund, org, limit, COLUMNS)


@command(app, "show")
def show(cli: Cli, refund_id: RefundId, org: OrgOfBooking = None) -> None:
    """Show a refund, its state in a sentence and the next step.

    Examples:
        booking refunds show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking refunds show 1017 --org fjord-tours
        booking refunds show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json --fields status,summary
    """
    with storage.open_database(cli) as database:
        from booking_core import payments

        refund = payments.present_refund(*database.read(lambda tx: _find(tx, refund_id, org)))
    cli.render.one(refund)
    if refund["waits_for_a_person"]:
        cli.render.note(_next_step(refund))


@command(app, "retry", shape="refund", changes=True)
def retry(cli: Cli, refund_id: RefundId, org: OrgOfBooking = None) -> None:
    """Retry a refund that failed or needs a review.

    The guest is never refunded twice: before the worker sends the refund again, it looks at every refund of the payment
    at the gateway, including those made in the gateway's dashboard.

    Examples:
        booking refunds retry 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    from booking_core import payments
    from booking_core.payments import stripe_accounts

    has_gateway = storage.load_settings().stripe_api_key is not None

    def reopen(tx: "Tx", actor: "Actor", refund_id: str) -> Any:
        nonlocal has_gateway
        organization = actor.organization
        has_gateway = has_gateway or organization.is_sandbox or stripe_accounts.exists(tx, organization.id)
        return payments.reopen_refund(tx, actor, refund_id)

    cli.render.one(_change(cli, refund_id, org, reopen))
    cli.render.note("Queued: a worker sends it.")
    if not has_gateway:
        cli.render.warn(
            "The organization has no Stripe account (booking stripe set), and BOOKING_STRIPE_API_KEY is not set here: "
            "a worker without it leaves the refund to the staff."
        )


@command(app, "settle", shape="refund", changes=True)
def settle(cli: Cli, refund_id: RefundId, note: Note, amount: SettledAmount = None, org: OrgOfBooking = None) -> None:
    """Close a refund that was paid by hand.

    The booking's payment.status becomes refunded or partially_refunded, as after a refund by the gateway. A refund that
    a worker is sending is refused. The command asks about an amount that was probably meant in the major unit.

    Examples:
        booking refunds settle 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --note 'Bank transfer of 23 November'
        booking refunds settle 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --amount 500.00 --note 'The rest was waived'
        booking refunds settle 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --amount 0 --note 'The bank returned it after a dispute'
    """  # noqa: E501
    from booking_core import bookings, payments

    def change(tx: "Tx", actor: "Actor", refund_id: str) -> Any:
        if amount is None:
            return bookings.settle_refund(tx, actor, refund_id, note=note)
        due = payments.get_refund(tx, actor.organization, refund_id)
        minor = parse_amount(amount, due.currency)
        settled = bookings.settle_refund(tx, actor, refund_id, note=note, amount_minor=minor)
        amounts.require_intended(cli, amount, minor, due.amount_minor, due.currency)
        return settled

    settled = _change(cli, refund_id, org, change)
    paid, due = settled["settled_amount"], settled["amount"]
    settled = amounts.with_rest(settled, paid["amount_minor"], due["amount_minor"], due["currency"])
    amounts.write_with_rest(cli, settled, of=" of the refund")


@command(app, "record", shape="refund", changes=True)
def record(cli: Cli, booking: BookingRef, amount: Amount, note: Note, org: OrgOfBooking = None) -> None:
    """Record a refund that was paid by hand for a cancelled booking without one.

    Once for a booking, and at most the amount paid by card or recorded with `booking payments record`. The command asks
    about an amount that was probably meant in the major unit.

    Examples:
        booking refunds record 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --amount 500.00 --note 'Cash, as a goodwill'
    """
    from booking_core import bookings, payments

    def change(tx: "Tx", actor: "Actor", booking_id: str) -> Any:
        currency, payment = bookings.lock(tx, actor, booking_id).row.currency, payments.get(tx, actor, booking_id)
        minor = parse_amount(amount, currency)
        refund = bookings.record_refund(tx, actor, booking_id, amount_minor=minor, note=note)
        assert payment is not None  # or it was refused
        open_minor = payment.amount_minor - payment.refunded_minor
        amounts.require_intended(cli, amount, minor, open_minor, currency)
        return amounts.with_rest(payments.present_refund(refund, actor.organization), minor, open_minor, currency)

    refund = staff_bookings.change_booking(cli, booking, org, change)
    amounts.write_with_rest(cli, refund, of=" of the payment")


def _find(tx: "Tx", reference: str, org: str | None) -> "OwnedRefund":
    """Return the refund with this id, or of the booking with this id or number."""
    from booking_core import payments

    return payments.find_refund(tx, staff_bookings.id_of_number(tx, reference, org))


def _change(cli: Cli, reference: str, org: str | None, change_refund: "Callable[[Tx, Actor, str], Any]") -> Any:
    """Change the refund with this id, or of the booking with this id or number, and return it as JSON."""
    from booking_core import payments

    def change(tx: "Tx", actor: "Actor") -> Any:
        refund_id = _find(tx, reference, org)[0].id
        return payments.present_refund(change_refund(tx, actor, refund_id), actor.organization)

    return transactions.change(cli, lambda tx: _find(tx, reference, org)[1], change)


def _next_step(refund: dict[str, Any]) -> str:
    step = f"Next: pay it by hand, then booking refunds settle {refund['id']} --note TEXT"
    can_retry = refund["payment_intent"] is not None
    return step + (f"; or send it again: booking refunds retry {refund['id']}" if can_retry else "")
