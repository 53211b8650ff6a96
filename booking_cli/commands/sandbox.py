"""`booking sandbox`: serve a sandbox, and its clock and captured mails over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from booking_cli.client import api_client, pagination
from booking_cli.framework import options
from booking_cli.framework.command import command, default_group
from booking_cli.framework.context import Cli
from booking_cli.framework.durations import duration_us
from booking_cli.framework.errors import CliError
from booking_cli.framework.idempotency import idempotency_key

app = default_group("Serve a sandbox for tests, move its clock, and read its mails.")

MAIL_COLUMNS = ("created_at", "kind", "recipient", "subject", "booking_id", "id")
TRUNCATED = {"subject": 40}


Port = Annotated[int, typer.Option("--port", metavar="PORT", help="Port to listen on; 0 takes a free one.")]
File = Annotated[
    Path | None, typer.Option("--db", metavar="FILE", help="Keep the database in this SQLite file and use it again.")
]


@app.callback()
def sandbox(ctx: typer.Context, port: Port = 8000, db: File = None) -> int | None:
    """Serve a sandbox for tests, or move its clock and read its mails. Without a command it is `serve`."""
    return serve(ctx, port, db) if ctx.invoked_subcommand is None else None


@command(
    app,
    "serve",
    "booking sandbox serve --port 9000     (booking sandbox --port 9000 is the same)",
    "booking sandbox serve --port 0 --json     (for programs)",
    "booking sandbox serve --port 9000 --db sandbox.db",
)
def serve(ctx: typer.Context, port: Port = 8000, db: File = None) -> int:
    """Serve a sandbox with a catalogue and a worker, and print its API key and calls to try.

    It never mails and never charges; webhooks are delivered, to this machine too. Without --db the database is deleted
    at the end. Other BOOKING_ variables of the environment do not count. With --json it prints one object before it
    serves; wait until the URL in `ready` answers.
    """
    from booking_cli.operator import sandbox_service

    return sandbox_service.serve(ctx.obj, port=port, db=db)


@command(app, "clock", "booking sandbox clock", "booking sandbox clock --fields now,status", shape="sandbox_clock")
def clock(ctx: typer.Context) -> None:
    """Show the clock of the sandbox, and what is due at its instant."""
    api_client.write_resource(ctx.obj, "sandbox", "clock")


@command(
    app,
    "advance",
    "booking sandbox advance 31m",
    "booking sandbox advance --to 2026-12-24T09:00",
    shape="sandbox_clock",
    changes=True,
)
def advance(
    ctx: typer.Context,
    duration: Annotated[
        str | None, typer.Argument(metavar="DURATION", help="How far the clock moves: 90d, 24h, 10m or 30s.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="T", help="Move it to this instant; ISO 8601, local time without an offset."),
    ] = None,
    idempotency_key_option: options.IdempotencyKey = None,
) -> None:
    """Move the clock of the sandbox ahead. It never goes back.

    What has become due is done by the worker; `booking sandbox clock` shows the status `ready` once all of it is done.
    """
    cli: Cli = ctx.obj
    if (duration is None) == (to is None):
        raise CliError("Write a duration, or --to and an instant.", hint="booking sandbox advance 31m")
    body = {"to": to} if duration is None else {"seconds": duration_us(duration) // 1_000_000}
    path = api_client.path("sandbox", "clock", "advance")
    with api_client.connect(cli) as client, idempotency_key(cli, idempotency_key_option) as key:
        moved = api_client.request(client, "POST", path, body=body, idempotency_key=key).body
    cli.render.one(moved)


@command(
    app,
    "mails",
    "booking sandbox mails",
    "booking sandbox mails --limit 1 --fields subject,text -o json",
    shape="sandbox_mail",
)
def mails(
    ctx: typer.Context,
    limit: options.Limit = options.DEFAULT_LIMIT,
    all_pages: options.AllPages = False,
    order: options.Order = "desc",
    starting_after: options.StartingAfter = None,
) -> None:
    """List the mails that the sandbox has captured instead of sending them, newest first."""
    pagination.write_list(
        ctx.obj,
        api_client.path("sandbox", "mails"),
        MAIL_COLUMNS,
        params={"order": order},
        limit=limit,
        all_pages=all_pages,
        starting_after=starting_after,
        truncated=TRUNCATED,
        empty="No mail was captured.",
    )
