"""Run the service: lock and prepare the database, and start uvicorn. Used by `serve`, `worker` and `demo`."""

import contextlib
import logging
import logging.config
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.locks import lock_file
from booking_cli.framework.options import option
from booking_cli.operator import cells, logs, secret_keys, storage

if TYPE_CHECKING:
    from pathlib import Path

    from booking_core.base.settings import Settings

log = logging.getLogger("booking.serve")
T = TypeVar("T")

_KEEP_ALIVE_S = 75
"""Longer than the 60 seconds of most load balancers for an idle connection. The side that may send a request should
close it."""
_OPEN_FILES = 65_536
_PORT_MAX = 65_535
METRICS = "BOOKING_METRICS_ADDRESS"
_SHUTDOWN_S = 30
"""The time for requests in progress at shutdown. A client that never finishes its request does not delay it longer."""


@contextmanager
def lock_sqlite(path: "Path | None") -> Iterator[None]:
    """Hold a lock on an SQLite file while the service runs; the lock ends with the process.

    Raises:
        CliError: another process serves the file.
    """
    if path is None:
        yield
        return
    refusal = CliError(
        f"Another process serves {path} already; an SQLite database is served by one process.",
        code="already_served",
        hint="stop it, or use postgresql:// in BOOKING_DATABASE_URL",
    )
    with lock_file(path.with_name(path.name + ".lock"), refusal, code="no_database"):
        yield


def prepare(settings: "Settings") -> None:
    """Check the schema of the database and its secret keys. An SQLite database is created or upgraded.

    Raises:
        CliError: the schema is not this release's, or a secret key is missing or wrong.
    """
    with storage.translate_errors(), storage.translate_setting_errors():
        import uvicorn  # noqa: F401 - a missing package is reported before the database is changed

        from booking_server.tracing import require_packages

        require_packages(settings)
        for warning in (*storage.restrict_file_modes(settings), *settings.secret_key_warnings()):
            _warn(settings, warning)
        if settings.has_secret_key or not settings.is_sqlite:
            secret_keys.load_installation(settings)  # an invalid key is reported before the database is changed
        if settings.is_sqlite and not storage.schema_state(settings)["is_head"]:
            storage.upgrade(settings)
        _verify(settings)


def is_of_cells(settings: "Settings") -> bool:
    """Return whether a process serves several cells."""
    return bool(settings.cells) and settings.cell is None


WaitForDatabase = Annotated[
    float,
    option("--wait-for-database SECONDS", "How long to wait for a database that is unavailable or recovers.", min=0),
]
WAIT_S = 60.0


def patiently(
    settings: "Settings", wait_s: float, start: Callable[[], T], *, pause: Callable[[float], object] = time.sleep
) -> T:
    """Start something, repeatedly while the databases are unavailable or recover, and return its result.

    Args:
        pause: as in `booking_core.db.waiting.patiently`.

    Raises:
        CliError: the start failed for another cause, or after `wait_s`.
        Unavailable: likewise.
    """
    from booking_core.base.errors import Unavailable
    from booking_core.db import waiting

    every = [cell.settings for cell in cells.every(settings)] if is_of_cells(settings) else [settings]

    def is_away(error: Exception) -> bool:
        is_server_error = isinstance(error, CliError) and error.exit_code is ExitCode.SERVER
        is_outage = is_server_error or isinstance(error, Unavailable)
        return is_outage and all(waiting.is_away(cell_settings.database_url) for cell_settings in every)

    def notify(error: Exception) -> None:
        _warn(settings, f"waiting for the database, {wait_s:g} s at most: {error}")

    return waiting.patiently(start, is_away, notify, wait_s=wait_s, pause=pause)


def prepare_cells(settings: "Settings") -> None:
    """Prepare each cell as `prepare` does. A cell that fails is logged, and opened later by the process.

    Raises:
        CliError: the error of the first cell, if every cell fails.
    """
    if not is_of_cells(settings):
        prepare(settings)
        return
    every = cells.every(settings)
    failed: dict[str, CliError] = {}
    for cell in every:
        try:
            prepare(cell.settings)
        except CliError as error:
            failed[cell.name] = error
    if len(failed) == len(every):
        raise next(iter(failed.values()))
    for name, reason in failed.items():
        _warn(settings, f"cell {name}: {reason}")


def _verify(settings: "Settings") -> None:
    """Check the schema and the secret keys of the database; make a key for a database without sealed values."""
    from booking_core.db.engine import Database

    with contextlib.closing(Database(settings.database_url)) as database:
        storage.require_usable(database)
        secret_keys.verified_installation(settings, database, lambda warning: _warn(settings, warning))


def _warn(settings: "Settings", warning: str) -> None:
    """Log a warning before the service has configured logging."""
    logging.config.dictConfig(logs.config(settings.log_format))
    log.warning("%s", warning)


def run_server(
    settings: "Settings",
    *,
    host: str,
    port: int,
    workers: int = 1,
    reload: bool = False,
    worker: bool = True,
    app: str | None = None,
) -> int:
    """Serve the API until a signal, and return the exit code.

    Args:
        worker: whether each process also runs the delivery worker and the periodic jobs.
        app: the function that creates the application, as `module:function`; by default the settings decide.
    """
    import uvicorn

    raise_open_files_limit()
    logs.log_crashes()
    log_config = logs.config(settings.log_format)
    logging.config.dictConfig(log_config)
    logs.log_settings(log, settings)
    addresses = addresses_of(settings, host, port)
    run = _run_processes if workers > 1 and sys.platform == "linux" else uvicorn.run
    factory = ("create_cells_app" if is_of_cells(settings) else "create_app") + ("_with_worker" if worker else "")
    try:
        run(
            app or f"booking_cli.operator.server_app:{factory}",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            reload=reload,
            loop="asyncio" if sys.platform == "win32" else "uvloop",
            http="booking_server.transport.protocol:HttpProtocol",
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
    except SystemExit as stopped:  # uvicorn's exit codes have other meanings
        if stopped.code:
            check_addresses(addresses)
        return ExitCode.FAILED if stopped.code else ExitCode.OK
    except OSError:
        check_addresses(addresses)
        raise
    return ExitCode.OK


def addresses_of(settings: "Settings", host: str, port: int) -> dict[str, tuple[str, int]]:
    """Return the addresses that `booking serve` listens on, by the option or the setting of each."""
    return {"--port": (host, port)} | ({METRICS: settings.metrics_address} if settings.metrics_address else {})


def raise_open_files_limit() -> None:
    """Raise the limit of open files as far as the system allows. Clients, slow receivers and database connections can
    be more than the usual 1,024."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit that it does not report
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _run_processes(app: str, *, host: str, port: int, **options: Any) -> None:
    """Run several processes as `uvicorn.run` does, with a port that they share (see `server_app`)."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from booking_cli.operator.server_app import bound

    config = uvicorn.Config(app, host=host, port=port, **options)
    sock = bound(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))
    address = f"[{host}]" if ":" in host else host
    logging.getLogger("uvicorn.error").info(
        "Uvicorn running on http://%s:%d (Press CTRL+C to quit)", address, sock.getsockname()[1]
    )
    with contextlib.suppress(KeyboardInterrupt), _processes_folder():
        Multiprocess(config, sockets=[sock]).run()


@contextmanager
def _processes_folder() -> Iterator[None]:
    """Give the processes a folder to find each other, for their metrics."""
    from booking_server.monitoring.exposition import FOLDER

    with tempfile.TemporaryDirectory(prefix="booking-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def check_addresses(addresses: Mapping[str, tuple[str, int]]) -> None:
    """Check that addresses are free, before anything is created or changed, or after a process could not listen.

    Args:
        addresses: the host and the port by the option or the setting.

    Raises:
        CliError: another process or another setting has an address, or it does not belong to this machine.
    """
    with contextlib.ExitStack() as probes:
        for setting, (host, port) in addresses.items():
            if not 0 <= port <= _PORT_MAX:
                raise CliError(f"{setting} must be a port between 0 and {_PORT_MAX}.", code="bad_address")
            try:
                _listen(probes, host, port)
            except OSError as error:
                address = f"[{host}]" if ":" in host else host
                message = f"{setting}: cannot listen on {address}:{port}: {error.strerror}."
                raise CliError(message, code="bad_address", hint=f"choose another address with {setting}") from None


def _listen(probes: contextlib.ExitStack, host: str, port: int) -> None:
    """Listen on each address of a name until the stack is closed. A port that is only bound may be shared."""
    # Some resolvers give an address of localhost twice.
    for family, kind, protocol, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
        probe = probes.enter_context(socket.socket(family, kind, protocol))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(address)
        probe.listen()
