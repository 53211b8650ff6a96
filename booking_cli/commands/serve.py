"""`booking serve`: serve the API."""

from typing import Annotated

from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import option
from booking_cli.operator import service, storage

app = command_app()


@command(app, "serve")
def serve(
    cli: Cli,
    host: Annotated[str, option("--host HOST", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port PORT", "Port to listen on; 0: any free port.")] = 8000,
    workers: Annotated[int, option("--workers N", "Number of processes; more than 1 needs PostgreSQL.")] = 1,
    no_worker: Annotated[
        bool, option("--no-worker", "Run no delivery worker; run `booking worker` beside it.")
    ] = False,
    reload: Annotated[bool, option("--reload", "Restart when the code changes; for development.")] = False,
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
    service.check_address(host, port)
    if settings.metrics_address:
        service.check_address(*settings.metrics_address)

    def start() -> int:
        service.prepare_cells(settings)
        cli.is_service = True
        return service.run_server(settings, host=host, port=port, workers=workers, reload=reload, worker=not no_worker)

    with service.lock_sqlite(settings.sqlite_path):
        return service.patiently(settings, wait_for_database, start)
