"""`booking demo`: from nothing to a service with two operators, their catalogues and a key, in one command.

The story that `--once` plays is told in `story`.
"""

import json
import os
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from booking_cli.commands.catalog import read_document
from booking_cli.commands.serve import alone, check_address, make_ready, start
from booking_cli.framework import context
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli, CliError
from booking_cli.operator import storage
from booking_core import private_files

if TYPE_CHECKING:
    from booking_core.catalog import Summary
    from booking_core.context import Installation, Organization
    from booking_core.db.engine import Database, Tx
    from booking_core.settings import Settings

app = single()

HOST = "127.0.0.1"
FOLDER = Path(".demo")
EXAMPLES = Path(__file__).parents[2] / "examples"
"""In a clone. A wheel carries no catalogues."""
LEAD_DAYS = 7
WINDOW_DAYS = 30


class Shop(NamedTuple):
    """A demo organization and its catalogue."""

    slug: str
    name: str
    timezone: str
    currency: str
    catalogue: Path


SHOPS = (
    Shop("fjord-tours", "Fjord Tours", "Europe/Oslo", "NOK", EXAMPLES / "fjord-tours.json"),
    Shop("isla-tours", "Isla Tours", "America/Santiago", "CLP", EXAMPLES / "isla-tours.json"),
)


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
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="Where to listen.", show_default=True)] = 8000,
    catalog: Annotated[
        Path | None, typer.Option("--catalog", metavar="FILE", help="Serve this catalogue instead of the examples.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Play the whole story on any free port, print it and exit.")
    ] = False,
) -> int:
    """Serves two demo organizations with real catalogues, and prints a key and three calls to try.

    The database is kept under .demo/ unless BOOKING_DATABASE_URL names one; what is there already is used again.

    With --once nothing is kept: a catalogue is imported into a database of its own, a booking is made, replayed and
    cancelled over HTTP, a receiver verifies every webhook, and each step is printed. Exit code 1 when one of them is
    not as it should be. If BOOKING_DATABASE_URL names PostgreSQL, the story plays there, in a new organization, which
    stays; let that be a database that serves nobody else, since webhooks may go to this machine meanwhile.
    """
    cli = context.of(ctx)
    if once:
        with storage.installed():
            from booking_cli.operator import self_test
        return self_test.play(cli, _shops(catalog)[0])
    check_address(HOST, port)
    shops = _shops(catalog)
    _choose_database(port)
    settings = storage.settings()
    with alone(settings.sqlite_path):
        make_ready(settings)
        with storage.database(cli) as database:
            installation = storage.installation(settings)
            for shop in shops:
                _open(cli, database, installation, shop)
            key = _key(database, installation, shops[0].slug)
            calls = _calls(database, installation, key, f"http://{HOST}:{port}")
        _show(cli, [shop.slug for shop in shops], key, calls, _exports(settings, key, f"http://{HOST}:{port}"))
        return start(settings, host=HOST, port=port)


def _shops(catalogue: Path | None) -> tuple[Shop, ...]:
    if catalogue is not None:
        currency = next(_currencies(read_document(catalogue)), "EUR")
        return (Shop("demo", "Demo", "UTC", currency, catalogue),)
    missing = [shop.catalogue.name for shop in SHOPS if not shop.catalogue.exists()]
    if missing:
        raise CliError(
            f"The example catalogues ({', '.join(missing)}) come with a clone of the project, not with the package.",
            code="no_examples",
            hint="booking demo --catalog FILE",
        )
    return SHOPS


def _currencies(document: Any) -> Iterator[str]:
    """Every currency that stands in the document, the first one first."""
    if isinstance(document, dict):
        if isinstance(document.get("currency"), str):
            yield document["currency"]
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            yield from _currencies(item)


def _choose_database(port: int) -> None:
    """Sets, for this process and the application in it, what the environment leaves open."""
    private_files.make_folder(FOLDER)
    for name, value in (
        ("BOOKING_DATABASE_URL", f"sqlite:///{FOLDER / 'booking.db'}"),
        ("BOOKING_PUBLIC_URL", f"http://{HOST}:{port}"),
    ):
        os.environ[name] = os.environ.get(name) or value


def _open(cli: Cli, database: "Database", installation: "Installation", shop: Shop) -> None:
    """Creates the organization with its catalogue, unless it is there."""
    from booking_core import organizations

    if any(each.slug == shop.slug for each in database.read(organizations.find)):
        return
    open_shop(cli, database, installation, shop, read_document(shop.catalogue))
    cli.render.note(f"imported {shop.catalogue.name} for {shop.slug}")


def open_shop(
    cli: Cli, database: "Database", installation: "Installation", shop: Shop, document: Any
) -> "tuple[Organization, Summary]":
    """Creates the organization with that catalogue, both or neither."""
    from booking_core import catalog, organizations

    def work(tx: "Tx") -> "tuple[Organization, Summary]":
        now = tx.now()
        organization = organizations.create(
            tx, slug=shop.slug, name=shop.name, timezone=shop.timezone, currency=shop.currency, now=now
        )
        return organization, catalog.import_document(
            tx, organization, installation, document, now=now, progress=advance
        )

    with cli.render.progress(f"importing {shop.catalogue.name}") as advance:
        return database.write_once(work)


def _key(database: "Database", installation: "Installation", slug: str) -> str:
    """A key with every scope: the one of the last run while it works, else a new one."""
    from booking_core import keys, organizations
    from booking_core.errors import BookingError
    from booking_core.models.scopes import Scope

    path = FOLDER / "key"
    kept = path.read_text().strip() if path.exists() else ""
    try:
        if database.read(lambda tx: keys.identify(tx, kept, installation)).organization.slug == slug:
            return kept
    except BookingError:
        pass  # none yet, or another database's
    _, key = database.write_once(
        lambda tx: keys.create(
            tx, organizations.get(tx, slug=slug), name="booking demo", scopes=list(Scope), now=tx.now()
        )
    )
    private_files.replace(path, f"{key}\n".encode())
    return key


def _calls(database: "Database", installation: "Installation", key: str, base_url: str) -> list[str]:
    """Three calls that work as they are printed; two when nothing can be booked in the next weeks."""
    from booking_core import departures, experiences, keys

    api, auth = f"{base_url}/api/v1", f"-H 'Authorization: Bearer {key}'"
    with database.reading() as tx:
        caller = keys.identify(tx, key, installation)
        first = caller.organization.zone.wall(caller.at).date() + timedelta(days=LEAD_DAYS)
        last = first + timedelta(days=WINDOW_DAYS)
        found = departures.find_available(tx, caller, date_from=first, date_to=last)["data"]
        body = a_booking(found, lambda experience_id: experiences.get(tx, caller, experience_id))
    calls = [f"curl -s {auth} {api}/me", f"curl -s {auth} '{api}/availability?from={first}&to={last}'"]
    if body:
        headers = f"-H 'Content-Type: application/json' -H 'Idempotency-Key: demo-{secrets.token_hex(8)}'"
        calls.append(f"curl -s {auth} {headers} -d '{json.dumps(body)}' {api}/bookings")
    return calls


def a_booking(
    departures: Iterable[dict[str, Any]], experience_of: Callable[[str], dict[str, Any]]
) -> dict[str, Any] | None:
    """The body of a booking of one unit on the first of the departures that takes it."""
    for departure in departures:
        experience = experience_of(departure["experience_id"])
        tiers = [tier for tier in experience["price_tiers"] if tier["seats_per_unit"] <= departure["seats_available"]]
        if departure["status"] == "open" and experience["is_published"] and tiers:
            return {
                "experience_date_id": departure["id"],
                "guests": [{"tier_id": tiers[0]["id"], "count": 1}],
                "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
                "payment": "pay_on_site",
            }
    return None


def _exports(settings: "Settings", key: str, base_url: str) -> dict[str, str]:
    """Return the variables with which `booking` works on this database and this service from another terminal.

    A URL with a password in it is not printed: whoever set it has it.
    """
    path = settings.sqlite_path
    url = {"BOOKING_DATABASE_URL": f"sqlite:///{path.absolute()}"} if path else {}
    return {**url, "BOOKING_BASE_URL": base_url, "BOOKING_API_KEY": key}


def _show(cli: Cli, slugs: list[str], key: str, calls: list[str], exports: dict[str, str]) -> None:
    if cli.render.is_json:
        cli.render.one({"organizations": slugs, "key": key, "calls": calls, "environment": exports})
    else:
        lines = [f"API key of {slugs[0]}, with every scope: {key}", "", "Try:", *calls, ""]
        lines += ["For the booking command in another terminal:"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        lines += ["", "The whole story, from import to verified webhook: booking demo --once", ""]
        cli.render.text("\n".join(lines))
    cli.render.flush()
