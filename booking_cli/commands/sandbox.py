"""`booking sandbox`: serve a sandbox, and its clock, payments and captured mails over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import duration_s
from booking_cli.framework.command import command, default_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import argument, choice, option
from booking_cli.framework.tables import Columns

app = default_group("Serve a sandbox for tests, move its clock, and read its mails.")

MAIL_COLUMNS = Columns(
    ("created_at", "kind", "recipient", "subject", "booking_id", "id"),
    empty="No mail was captured.",
    truncated={"subject": 40},
)
CARDS = (
    "pm_card_visa",
    "pm_card_chargeDeclined",
    "pm_card_refundFail",
    "pm_card_pendingRefund",
    "pm_card_refundUnavailable",
    "pm_card_dashboardRefund",
)


Port = Annotated[int, option("--port PORT", "Port to listen on; 0 takes a free one.")]
File = Annotated[Path | None, option("--db FILE", "Keep the database in this SQLite file and use it again.")]


@app.callback()
def sandbox(ctx: typer.Context, port: Port = 8000, db: File = None) -> int | None:
    """Serve a sandbox for tests, or move its clock and read its mails. Without a command it is `serve`."""
    return serve(ctx.obj, port, db) if ctx.invoked_subcommand is None else None


@command(app, "serve")
def serve(cli: Cli, port: Port = 8000, db: File = None) -> int:
    """Serve a sandbox with a catalogue and a worker, and print its API key and calls to try.

    It never mails and never charges; webhooks are delivered, to this machine too. Without --db the database is deleted
    at the end. Other BOOKING_ variables of the environment do not count. With --json it prints one object before it
    serves; wait until the URL in `ready` answers.

    Examples:
        booking sandbox serve --port 9000     (booking sandbox --port 9000 is the same)
        booking sandbox serve --port 0 --json     (for programs)
        booking sandbox serve --port 9000 --db sandbox.db
    """
    from booking_cli.operator import sandbox_service

    return sandbox_service.serve(cli, port=port, db=db)


@command(app, "clock", shape="sandbox_clock")
def clock(cli: Cli) -> None:
    """Show the clock of the sandbox, and the work that is due.

    Examples:
        booking sandbox clock
        booking sandbox clock --fields now,status
    """
    api_client.write_resource(cli, "sandbox/clock")


@command(app, "advance", shape="sandbox_clock", changes=True)
def advance(
    cli: Cli,
    duration: Annotated[str | None, argument("DURATION", "How far the clock moves: 90d, 24h, 10m or 30s.")] = None,
    to: Annotated[
        str | None, option("--to T", "Move it to this instant; ISO 8601, local time without an offset.")
    ] = None,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Move the clock of the sandbox ahead. It never goes back.

    The worker does the work that has become due; `booking sandbox clock` then shows the status `ready`.

    Examples:
        booking sandbox advance 31m
        booking sandbox advance --to 2026-12-24T09:00
    """
    if (duration is None) == (to is None):
        raise CliError("Write a duration, or --to and an instant.", hint="booking sandbox advance 31m")
    body = {"to": to} if duration is None else {"seconds": duration_s(duration)}
    api_client.write_posted(cli, "sandbox/clock/advance", body=body, key_option=idempotency_key)


@command(app, "pay", shape="sandbox_payment", changes=True)
def pay(
    cli: Cli,
    checkout_id: options.CheckoutId,
    card: Annotated[str, choice("--card", choices=CARDS, help="The test card.")] = "pm_card_visa",
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Pay for a checkout by a test card, as a guest does at Stripe. Nothing is charged.

    \b
    pm_card_visa               the payment and its refund succeed
    pm_card_chargeDeclined     the payment is declined
    pm_card_refundFail         a later refund is refused, and waits for staff
    pm_card_pendingRefund      a later refund succeeds ten minutes after it is accepted
    pm_card_refundUnavailable  a later refund is not answered twice, then succeeds
    pm_card_dashboardRefund    all of it is refunded at once in the dashboard

    Examples:
        booking sandbox pay 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking sandbox pay 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --card pm_card_chargeDeclined
    """
    path, body = f"sandbox/checkouts/{checkout_id}/pay", {"payment_method": card}
    api_client.write_posted(cli, path, body=body, key_option=idempotency_key)


@command(app, "mails", shape="sandbox_mail")
def mails(cli: Cli, paging: options.Paging = options.FIRST_PAGE) -> None:
    """List the mails that the sandbox has captured instead of sending them, newest first.

    Examples:
        booking sandbox mails
        booking sandbox mails --limit 1 --fields subject,text -o json
    """
    api_client.write_list(cli, paging, "sandbox/mails", MAIL_COLUMNS)
