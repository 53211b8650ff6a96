"""The service of `booking sandbox`: a sandbox with a small catalogue, in a separate database."""

import json
import os
import shlex
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from booking_cli.framework.context import Cli
from booking_cli.operator import secret_keys, service, storage
from booking_cli.operator.demo_organizations import HOST, DemoOrganization, create_key, create_with_catalogue
from booking_core import organizations
from booking_core.base.context import Installation
from booking_core.db.engine import Database
from booking_core.models.json import JsonObject

SANDBOX = DemoOrganization(
    "sandbox", "Fjord Tours", "Europe/Oslo", "NOK", Path(__file__).with_name("sandbox_catalogue.json")
)
_DAYS = 365
_VARIABLES = ("BOOKING_SECRET_KEY", "BOOKING_LOG_FORMAT", "BOOKING_REQUEST_LOG")


def serve(cli: Cli, *, port: int, db: Path | None) -> int:
    """Serve a sandbox until a signal, and return the exit code.

    Args:
        port: 0 takes a free one.
        db: the SQLite file, which is kept; None: a new one, which is deleted at the end.

    Raises:
        CliError: another process listens on the port, or serves the file.
    """
    port = port or _free_port()
    service.check_addresses({"--port": (HOST, port)})
    with _database_file(db) as path:
        _set_environment(path, port)
        settings = storage.load_settings()
        with service.lock_sqlite(settings.sqlite_path):
            service.prepare(settings)
            with storage.open_database(cli) as database:
                key = _prepare(cli, database, secret_keys.load_installation(settings))
            _write(cli, key, f"http://{HOST}:{port}", path)
            return service.run_server(settings, host=HOST, port=port)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def _database_file(db: Path | None) -> Iterator[Path]:
    if db is not None:
        yield db.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="booking-sandbox-") as folder:
        yield Path(folder) / "sandbox.db"


def _set_environment(path: Path, port: int) -> None:
    """Set every variable of the service: no mail server, gateway or database of the environment is used."""
    for name in [name for name in os.environ if name.startswith("BOOKING_") and name not in _VARIABLES]:
        del os.environ[name]
    os.environ |= {
        "BOOKING_DATABASE_URL": f"sqlite:///{path}",
        "BOOKING_PUBLIC_URL": f"http://{HOST}:{port}",
        "BOOKING_RATE_LIMIT": "off",
        "BOOKING_WEBHOOK_ALLOW_HTTP": "on",
        "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8,::1/128",
    }


def _prepare(cli: Cli, database: Database, installation: Installation) -> str:
    """Return a new key of every scope, for the sandbox of the file or a new one with a catalogue."""
    if SANDBOX.slug not in {organization.slug for organization in database.read(organizations.find)}:
        create_with_catalogue(cli, database, installation, SANDBOX, _catalogue(), is_sandbox=True)
    return create_key(database, SANDBOX.slug, "booking sandbox")


def _catalogue() -> JsonObject:
    """Return the document of two tours with departures every day."""
    document: JsonObject = json.loads(SANDBOX.catalogue.read_text(encoding="utf-8"))
    today = datetime.now(ZoneInfo(SANDBOX.timezone)).date()
    window = {"from": str(today + timedelta(days=1)), "to": str(today + timedelta(days=_DAYS))}
    for experience in document["experiences"]:
        experience["schedules"] = [schedule | window for schedule in experience["schedules"]]
    return document


def _write(cli: Cli, key: str, base_url: str, path: Path) -> None:
    """Write the key, the variables of a client, and first calls."""
    api, auth = f"{base_url}/api/v1", f"-H 'Authorization: Bearer {key}'"
    day = datetime.now(UTC).date() + timedelta(days=2)  # has departures, wherever midnight has passed
    json_body = "-H 'Content-Type: application/json' -d"
    calls = [
        f"curl -s {auth} {api}/me",
        f"curl -s {auth} '{api}/availability?from={day}&to={day}'",
        f"curl -s {auth} {json_body} '{{\"seconds\": 3600}}' {api}/sandbox/clock/advance",
        f"curl -s {auth} {api}/sandbox/mails",
    ]
    environment = {"BOOKING_BASE_URL": base_url, "BOOKING_API_KEY": key}
    if cli.render.is_json:
        ready = f"{base_url}/readyz"
        cli.render.one(
            {"key": key, "base_url": base_url, "ready": ready, "database": str(path), "calls": calls}
            | {"environment": environment}
        )
    else:
        lines = [f"API key of the sandbox, with every scope: {key}", "", "Try:", *calls, ""]
        lines += ["To use the booking command or the SDK in another terminal:"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        cli.render.text("\n".join([*lines, ""]))
    cli.render.flush()
