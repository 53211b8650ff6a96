"""`booking serve` and `booking worker`: serve the API, and run the delivery worker and the periodic jobs."""

import logging
import logging.config
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli, pause_collections
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import Reload, option
from booking_cli.operator import logs, service, storage

if TYPE_CHECKING:
    from booking_core.base.settings import Settings


app = command_app()
log = logging.getLogger("booking.worker")


@command(app, "serve")
def serve(
    cli: Cli,
    host: Annotated[str, option("--host HOST", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port PORT", "Port to listen on; 0: any free port.")] = 8000,
    workers: Annotated[int, option("--workers N", "Number of processes; more than 1 needs PostgreSQL.")] = 1,
    no_worker: Annotated[
        bool, option("--no-worker", "Run no delivery worker; run `booking worker` beside it.")
    ] = False,
    reload: Reload = False,
    wait_for_database: service.WaitForDatabase = service.WAIT_S,
) -> int:
    """Serve the API.

    An SQLite database is created and upgraded automatically; PostgreSQL needs `booking db upgrade` first.

    Examples:
        booking serve
        booking serve --host 0.0.0.0 --port 80 --workers 4
    """
    settings = storage.load_settings()
    if workers < 1:
        raise CliError("--workers must be at least 1.", hint="booking serve --help")
    if settings.is_sqlite and workers > 1:
        raise CliError(
            "An SQLite database is served by one process.",
            hint="leave out --workers, or use postgresql:// in BOOKING_DATABASE_URL",
        )
    if reload and workers > 1:
        raise CliError("--reload works with one process only.", hint="leave out --workers")
    service.check_addresses(service.addresses_of(settings, host, port))

    def start() -> int:
        if workers == 1 and not reload:  # this process makes the application, which ends the pause
            pause_collections()
        service.prepare_cells(settings)
        cli.is_service = True
        return service.run_server(settings, host=host, port=port, workers=workers, reload=reload, worker=not no_worker)

    with service.lock_sqlite(settings.sqlite_path):
        return service.patiently(settings, wait_for_database, start)


@command(app, "worker")
def worker(
    cli: Cli,
    health_port: Annotated[
        int | None, option("--health-port PORT", "Serve /healthz, /readyz and /metrics on this port.")
    ] = None,
    health_host: Annotated[str, option("--health-host HOST", "Address of that port.")] = "127.0.0.1",
    wait_for_database: service.WaitForDatabase = service.WAIT_S,
) -> int:
    """Run the delivery worker and periodic jobs, until SIGINT or SIGTERM.

    Any number of workers may share a PostgreSQL database. With SQLite the worker is part of `booking serve`, and a
    separate one is refused.

    Examples:
        booking worker
        booking worker --health-port 8081
    """
    settings = storage.load_settings()
    address = None if health_port is None else (health_host, health_port)
    with _reported(address), service.lock_sqlite(settings.sqlite_path):
        _prepare(settings, wait_for_database, address)
        cli.is_service = True
        logging.config.dictConfig(logs.config(settings.log_format))
        logs.log_settings(log, settings)
        # The database may go away again between the checks and the start.
        service.patiently(settings, wait_for_database, lambda: run_worker(settings, address))
    return ExitCode.OK


@contextmanager
def _reported(health_address: tuple[str, int] | None) -> "Iterator[None]":
    """Check the address before the worker starts, and again when it could not listen.

    Raises:
        CliError: another process has the address, or it does not belong to this machine.
    """
    addresses = {"--health-port": health_address} if health_address else {}
    service.check_addresses(addresses)
    try:
        yield
    except OSError:
        service.check_addresses(addresses)
        raise


def _prepare(settings: "Settings", wait_s: float, health_address: tuple[str, int] | None) -> None:
    """Prepare the database. A process that waits for it is alive at the health port, and not ready."""
    if health_address is None:
        service.patiently(settings, wait_s, lambda: service.prepare_cells(settings))
        return
    import asyncio

    from booking_server.worker.process import unready_while

    def prepare(pause: "Callable[[float], object]") -> None:
        service.patiently(settings, wait_s, lambda: service.prepare_cells(settings), pause=pause)

    asyncio.run(unready_while(settings, health_address, prepare))


def run_worker(settings: "Settings", health_address: tuple[str, int] | None = None) -> None:
    """Run until SIGINT or SIGTERM. Deliveries in progress are finished and recorded.

    Args:
        health_address: the host and port of the probes.
    """
    import asyncio

    if service.is_of_cells(settings):
        from booking_server.cells import serve_forever
    else:
        from booking_server.worker.process import serve_forever

    service.raise_open_files_limit()
    logs.log_crashes()
    if sys.platform == "win32":
        asyncio.run(serve_forever(settings, health_address))
        return
    import uvloop

    # uvloop, because the TLS of asyncio's loop keeps a quarter of a megabyte for each connection.
    uvloop.run(serve_forever(settings, health_address))
