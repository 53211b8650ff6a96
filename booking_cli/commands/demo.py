"""`booking demo`: serve two organizations with example catalogues and an API key."""

import json
import os
import secrets
import shlex
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.options import option
from booking_cli.operator import secret_keys, service, storage
from booking_cli.operator.catalog_import import read_document
from booking_cli.operator.demo_organizations import (
    HOST,
    LEAD_DAYS,
    WINDOW_DAYS,
    DemoOrganization,
    booking_request,
    create_with_catalogue,
    demo_organizations,
)
from booking_core.base import private_files

if TYPE_CHECKING:
    from booking_core.base.context import Installation
    from booking_core.base.settings import Settings
    from booking_core.db.engine import Database

app = command_app()

FOLDER = Path(".demo")


@command(
    app,
    "demo",
    "booking demo",
    "booking demo --once",
    "booking demo --port 9000",
    "booking demo --catalog my-catalogue.json",
)
def demo(
    ctx: typer.Context,
    port: Annotated[int, option("--port PORT", "Port to listen on.")] = 8000,
    catalog: Annotated[Path | None, option("--catalog FILE", "Catalogue to serve instead of the examples.")] = None,
    once: Annotated[bool, option("--once", "Run the self-test on a free port, print its steps and exit.")] = False,
    reload: Annotated[bool, option("--reload", "Restart when the code changes; for development.")] = False,
) -> int:
    """Serve two demo organizations with example catalogues, and print an API key and calls to try.

    The database is kept in .demo/, unless BOOKING_DATABASE_URL is set. Existing organizations are used again.

    With --once nothing is kept. The self-test imports a catalogue into a temporary database, makes, replays and cancels
    a booking over HTTP, verifies every webhook, and prints each step. Exit code 1 when a step fails. If
    BOOKING_DATABASE_URL names PostgreSQL, the self-test runs there in a new organization, which stays. Use a database
    without other organizations, since webhooks may be sent to this machine meanwhile.
    """
    cli: Cli = ctx.obj
    if once:
        from booking_cli.operator import self_test

        return self_test.run(cli, demo_organizations(catalog)[0])
    service.check_address(HOST, port)
    organizations = demo_organizations(catalog)
    _set_environment(port)
    settings = storage.load_settings()
    with service.lock_sqlite(settings.sqlite_path):
        service.prepare(settings)
        with storage.open_database(cli) as database:
            installation = secret_keys.load_installation(settings)
            for each in organizations:
                _create_missing(cli, database, installation, each)
            key = _api_key(database, installation, organizations[0].slug)
            calls = _calls(database, installation, key, f"http://{HOST}:{port}")
        variables = _variables(settings, key, f"http://{HOST}:{port}")
        _write(cli, [each.slug for each in organizations], key, calls, variables)
        cli.is_service = True
        return service.run_server(settings, host=HOST, port=port, reload=reload)


def _set_environment(port: int) -> None:
    """Set the variables that the service of this process needs, unless they are set."""
    private_files.make_folder(FOLDER)
    for name, value in (
        ("BOOKING_DATABASE_URL", f"sqlite:///{FOLDER / 'booking.db'}"),
        ("BOOKING_PUBLIC_URL", f"http://{HOST}:{port}"),
    ):
        os.environ[name] = os.environ.get(name) or value


def _create_missing(cli: Cli, database: "Database", installation: "Installation", demo: DemoOrganization) -> None:
    from booking_core import organizations

    if any(each.slug == demo.slug for each in database.read(organizations.find)):
        return
    create_with_catalogue(cli, database, installation, demo, read_document(demo.catalogue))
    cli.render.note(f"imported {demo.catalogue.name} for {demo.slug}")


def _api_key(database: "Database", installation: "Installation", slug: str) -> str:
    """Return a key with every scope: that of the last run while it works, else a new one."""
    from booking_core import organizations
    from booking_core.base.errors import BookingError
    from booking_core.models.scopes import Scope
    from booking_core.organizations import keys

    path = FOLDER / "key"
    stored = path.read_text().strip() if path.exists() else ""
    try:
        if database.read(lambda tx: keys.identify(tx, stored, installation)).organization.slug == slug:
            return stored
    except BookingError:
        pass  # there is no key yet, or it belongs to another database
    _, key = database.write_once(
        lambda tx: keys.create(
            tx, organizations.get(tx, slug=slug), name="booking demo", scopes=list(Scope), now=tx.now()
        )
    )
    private_files.replace(path, f"{key}\n".encode())
    return key


def _calls(database: "Database", installation: "Installation", key: str, base_url: str) -> list[str]:
    """Return three curl commands to try; two if nothing can be booked in the next weeks."""
    from booking_core.catalogue import departures, experiences
    from booking_core.organizations import keys

    api, auth = f"{base_url}/api/v1", f"-H 'Authorization: Bearer {key}'"
    with database.reading() as tx:
        actor = keys.identify(tx, key, installation)
        first = actor.organization.zone.wall(actor.at).date() + timedelta(days=LEAD_DAYS)
        last = first + timedelta(days=WINDOW_DAYS)
        available = departures.find_available(tx, actor, date_from=first, date_to=last)["data"]
        body = booking_request(available, lambda experience_id: experiences.get(tx, actor, experience_id))
    calls = [f"curl -s {auth} {api}/me", f"curl -s {auth} '{api}/availability?from={first}&to={last}'"]
    if body:
        headers = f"-H 'Content-Type: application/json' -H 'Idempotency-Key: demo-{secrets.token_hex(8)}'"
        calls.append(f"curl -s {auth} {headers} -d '{json.dumps(body)}' {api}/bookings")
    return calls


def _variables(settings: "Settings", key: str, base_url: str) -> dict[str, str]:
    """Return the variables with which `booking` in another terminal uses this database and this service.

    The URL of a server is left out, since it may hold a password.
    """
    path = settings.sqlite_path
    url = {"BOOKING_DATABASE_URL": f"sqlite:///{path.absolute()}"} if path else {}
    return {**url, "BOOKING_BASE_URL": base_url, "BOOKING_API_KEY": key}


def _write(cli: Cli, slugs: list[str], key: str, calls: list[str], variables: dict[str, str]) -> None:
    if cli.render.is_json:
        cli.render.one({"organizations": slugs, "key": key, "calls": calls, "environment": variables})
    else:
        lines = [f"API key of {slugs[0]}, with every scope: {key}", "", "Try:", *calls, ""]
        lines += ["To use the booking command in another terminal:"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        lines += ["", "To test everything from import to verified webhook: booking demo --once", ""]
        cli.render.text("\n".join(lines))
    cli.render.flush()
