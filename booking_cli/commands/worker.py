"""`booking worker`: the delivery worker and periodic jobs, in a process of their own."""

import logging
import logging.config
import sys
from typing import TYPE_CHECKING

import typer

from booking_cli.commands.serve import allow_many_sockets, alone, make_ready
from booking_cli.framework.command import command, single
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import logs, storage

if TYPE_CHECKING:
    from booking_core.settings import Settings

app = single()
log = logging.getLogger("booking.worker")


@command(app, "worker", "booking worker")
def worker(ctx: typer.Context) -> int:
    """Run the delivery worker and periodic jobs, until SIGINT or SIGTERM.

    Any number may run beside one PostgreSQL. An SQLite database is worked on by the process that serves it, and a
    worker beside it is refused.
    """
    settings = storage.settings()
    with alone(settings.sqlite_path):
        make_ready(settings)
        logging.config.dictConfig(logs.config(settings.log_format))
        logs.tell_settings(log, settings)
        run(settings)
    return ExitCode.OK


def run(settings: "Settings") -> None:
    """Works until SIGINT or SIGTERM; what is being sent then is finished and recorded."""
    import asyncio

    from booking_server.worker.delivery_worker import serve_forever

    allow_many_sockets()
    if sys.platform == "win32":
        asyncio.run(serve_forever(settings))
        return
    import uvloop

    # Not asyncio's own loop: its TLS keeps a quarter of a megabyte for each connection.
    uvloop.run(serve_forever(settings))
