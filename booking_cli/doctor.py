"""`booking doctor`: what must always be true, checked."""

from dataclasses import asdict
from typing import Annotated

import typer

from booking_cli import context, storage
from booking_cli.command import command, single
from booking_cli.exit_codes import ExitCode

app = single()

COLUMNS = ("invariant", "organization_id", "subject", "message")


@command(app, "doctor", "booking doctor", "booking doctor --org fjord-tours -o json")
def doctor(
    ctx: typer.Context,
    org: Annotated[
        str | None, typer.Option("--org", metavar="SLUG", help="Only this organization.", show_default=False)
    ] = None,
) -> int:
    """Recomputes seats, numbers, events and balances, and lists what is off; exit code 1 when anything is.

    Reads only, and may run beside a service.
    """
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import doctor as checks
        from booking_core import organizations

        only = database.read(lambda tx: organizations.get(tx, slug=org)).id if org else None
        found = database.read(lambda tx: checks.examine(tx, only))
    cli.render.many([asdict(each) for each in found], COLUMNS, empty="All is well.")
    return ExitCode.FAILED if found else ExitCode.OK
