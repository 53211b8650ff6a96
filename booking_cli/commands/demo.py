"""`booking demo`: serve two organizations with example catalogues and an API key."""

from pathlib import Path
from typing import Annotated

from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.options import Reload, option

app = command_app()


@command(app, "demo")
def demo(
    cli: Cli,
    port: Annotated[int, option("--port PORT", "Port to listen on.")] = 8000,
    catalog: Annotated[Path | None, option("--catalog FILE", "Catalogue to serve instead of the examples.")] = None,
    once: Annotated[bool, option("--once", "Run the self-test on a free port, print its steps and exit.")] = False,
    reload: Reload = False,
) -> int:
    """Serve two demo organizations with example catalogues, and print an API key and commands to try.

    The database is kept in .demo/, unless BOOKING_DATABASE_URL is set. Existing organizations are used again.

    With --once nothing is kept. The self-test imports a catalogue into a temporary database, makes, replays and cancels
    a booking over HTTP, verifies every webhook, and prints each step. Exit code 1 when a step fails. If
    BOOKING_DATABASE_URL names PostgreSQL, the self-test runs there in a new organization, which stays. Use a database
    without other organizations, since webhooks may be sent to this machine meanwhile.

    Examples:
        booking demo
        booking demo --once
        booking demo --port 9000
        booking demo --catalog my-catalogue.json
    """
    if once:
        from booking_cli.operator import self_test

        return self_test.run(cli, catalog)
    from booking_cli.operator import demo_service

    return demo_service.serve(cli, port=port, catalogue=catalog, reload=reload)
