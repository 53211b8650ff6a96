"""`booking serve`: the HTTP service."""

import contextlib
import logging
import logging.config
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.commands import db
from booking_cli.framework.command import command, single
from booking_cli.framework.context import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import logs, storage

if TYPE_CHECKING:
    from pathlib import Path

    from booking_core.settings import Settings

app = single()
log = logging.getLogger("booking.serve")

_KEEP_ALIVE_S = 75
"""Longer than the 60 seconds after which most load balancers let go of an idle connection: the one who may be sending
should be the one who closes."""
_OPEN_FILES = 65_536
_PORT_MAX = 65_535
_SHUTDOWN_S = 30
"""What is being answered may finish; a client that never finishes its request does not hold the service up."""


@command(app, "serve", "booking serve", "booking serve --host 0.0.0.0 --port 80 --workers 4")
def serve(
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Where to listen.", show_default=True)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", help="Where to listen; 0: any free one.", show_default=True)
    ] = 8000,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Processes; PostgreSQL only.")] = 1,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Deliver nothing: booking worker does.")] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when the code changes; for development.")
    ] = False,
) -> int:
    """Serves the API.

    An embedded (SQLite) database is created and upgraded by itself; PostgreSQL wants `booking db upgrade` first.
    """
    settings = storage.settings()
    if workers < 1:
        raise CliError("--workers must be at least 1.", hint="booking serve --help")
    if settings.is_sqlite and workers > 1:
        raise CliError(
            "An SQLite database is served by one process.",
            hint="leave out --workers, or use postgresql:// in BOOKING_DATABASE_URL",
        )
    if reload and workers > 1:
        raise CliError("--reload goes with one process.", hint="leave out --workers")
    check_address(host, port)
    with alone(settings.sqlite_path):
        make_ready(settings)
        return start(settings, host=host, port=port, workers=workers, reload=reload, worker=not no_worker)


@contextmanager
def alone(path: "Path | None") -> Iterator[None]:
    """Keeps a second process from serving the same SQLite file, for as long as this one lives, however it ends."""
    if path is None or sys.platform == "win32":
        yield
        return
    import fcntl

    lock = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CliError(f"{lock} cannot be opened: {error.strerror}.", code="no_database") from None
    with os.fdopen(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CliError(
                f"Another process serves {path} already, and an SQLite database is served by one.",
                code="already_served",
                hint="stop it, or use postgresql:// in BOOKING_DATABASE_URL",
            ) from None
        yield


def make_ready(settings: "Settings") -> None:
    """Sees that the database is at this release's schema, and that there is a secret key which opens what it holds.

    Raises:
        CliError: something is missing.
    """
    with storage.installed(), storage.explained():
        import uvicorn  # noqa: F401 - told now rather than when everything else is ready

        for warning in (*storage.tightened(settings), *settings.secret_key_warnings()):
            _warn(settings, warning)
        if settings.has_secret_key or not settings.is_sqlite:
            storage.installation(settings)  # refused before the database is touched
        if settings.is_sqlite:
            db.bring_to_head(settings)
        else:
            db.require_head(settings)
        _check_secret_keys(settings)


def _check_secret_keys(settings: "Settings") -> None:
    """Refuse secret keys that do not open what the database holds; make one for a database that holds nothing."""
    from booking_core.db.engine import Database

    with contextlib.closing(Database(settings.database_url)) as database:
        storage.unlocked(settings, database, lambda warning: _warn(settings, warning))


def _warn(settings: "Settings", warning: str) -> None:
    """Log a warning before the service has begun to log."""
    logging.config.dictConfig(logs.config(settings.log_format))
    log.warning("%s", warning)


def start(
    settings: "Settings", *, host: str, port: int, workers: int = 1, reload: bool = False, worker: bool = True
) -> int:
    """Serves until it is told to stop. With `worker`, each process also delivers webhooks and keeps house."""
    import uvicorn

    allow_many_sockets()
    log_config = logs.config(settings.log_format)
    logging.config.dictConfig(log_config)
    logs.tell_settings(log, settings)
    run = _run_several if workers > 1 and sys.platform == "linux" else uvicorn.run
    try:
        run(
            "booking_cli.operator.server_app:create_app_with_worker"
            if worker
            else "booking_cli.operator.server_app:create_app",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            reload=reload,
            loop="asyncio" if sys.platform == "win32" else "uvloop",
            http="booking_server.protocol:HttpProtocol",
            ws="none",
            lifespan="on",
            log_config=log_config,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
    except SystemExit as stopped:  # its codes would be taken for ours
        return ExitCode.FAILED if stopped.code else ExitCode.OK
    return ExitCode.OK


def allow_many_sockets() -> None:
    """Raises how many files this process may have open, as far as it is allowed to. Clients, receivers that hang and
    the database can be more than the 1,024 that many systems begin with."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit that it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _run_several(app: str, *, host: str, port: int, **options: Any) -> None:
    """As `uvicorn.run` does it, but for the socket."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from booking_cli.operator.shared_port import bound

    config = uvicorn.Config(app, host=host, port=port, **options)
    taken = bound(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))
    shown = f"[{host}]" if ":" in host else host
    logging.getLogger("uvicorn.error").info(
        "Uvicorn running on http://%s:%d (Press CTRL+C to quit)", shown, taken.getsockname()[1]
    )
    with contextlib.suppress(KeyboardInterrupt):
        Multiprocess(config, sockets=[taken]).run()


def check_address(host: str, port: int) -> None:
    """Refuses an address where nobody can listen, before anything is made or changed.

    Raises:
        CliError: another process listens there, or it is not this machine's.
    """
    if not 0 <= port <= _PORT_MAX:
        raise CliError(f"{port} is no port: there are 0 to {_PORT_MAX}.", code="bad_address")
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        raise CliError(
            f"Cannot listen on {host}:{port}: {error.strerror}.",
            code="bad_address",
            hint="choose another with --host or --port",
        ) from None
