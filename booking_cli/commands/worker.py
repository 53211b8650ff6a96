"""`booking worker`: run the delivery worker and the periodic jobs in a process of their own."""

import logging
import logging.config
import sys
from typing import TYPE_CHECKING

from booking_cli.framework.command import command, command_app
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import logs, service, storage

if TYPE_CHECKING:
    from booking_core.settings import Settings

app = command_app()
log = logging.getLogger("booking.worker")


@command(app, "worker", "booking worker")
def worker() -> int:
    """Run the delivery worker and periodic jobs, until SIGINT or SIGTERM.

    Any number of workers may share a PostgreSQL database. With SQLite the worker is part of `booking serve`, and a
    separate one is refused.
    """
    settings = storage.load_settings()
    with service.lock_sqlite(settings.sqlite_path):
        service.prepare(settings)
        logging.config.dictConfig(logs.config(settings.log_format))
        logs.log_settings(log, settings)
        run(settings)
    return ExitCode.OK


def run(settings: "Settings") -> None:
    """Run until SIGINT or SIGTERM. Deliveries in progress are finished and recorded."""
    import asyncio

    from booking_server.worker.process import serve_forever

    service.raise_open_files_limit()
    if sys.platform == "win32":
        asyncio.run(serve_forever(settings))
        return
    import uvloop

    # uvloop, because the TLS of asyncio's loop keeps a quarter of a megabyte for each connection.
    uvloop.run(serve_forever(settings))
