"""The service of `booking demo`: example organizations in a database that is kept, with a page of calls to try."""

import os
import shlex
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from booking_cli.framework.context import Cli
from booking_cli.operator import demo_data, secret_keys, service, storage
from booking_cli.operator.catalog_import import read_document
from booking_cli.operator.demo_organizations import (
    EXAMPLES,
    HOST,
    LEAD_DAYS,
    ORGANIZATIONS,
    WINDOW_DAYS,
    DemoOrganization,
    booking_request,
    create_key,
    create_with_catalogue,
    demo_organizations,
)
from booking_core import bookings, organizations
from booking_core.base import private_files
from booking_core.base.context import Actor, Caller, Installation
from booking_core.base.errors import BookingError
from booking_core.base.settings import Settings
from booking_core.catalogue import departures, experiences
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.models.pages import Order
from booking_core.organizations import keys

FOLDER = Path(".demo")
COMMANDS = """
curl -s -H "Authorization: Bearer $BOOKING_API_KEY" $BOOKING_BASE_URL/api/v1/me
booking availability --from tomorrow    # departures, free seats and prices
booking bookings list                   # the bookings of the demo
booking report --org {slug:<19}# sales, full departures, deliveries
booking demo --once                     # import, book, deliver, verify
"""


class DemoPage(NamedTuple):
    """The printed page."""

    slugs: list[str]
    key: str
    booking: dict[str, Any] | None
    """The body of a booking to try."""
    guest_page: str | None
    variables: dict[str, str]


def serve(cli: Cli, *, port: int, catalogue: Path | None, reload: bool) -> int:
    """Serve the organization of a catalogue file, or those of the examples, until a signal; return the exit code."""
    service.check_addresses({"--port": (HOST, port)})
    demos = demo_organizations(catalogue)
    _set_environment(port)
    settings = storage.load_settings()
    with service.lock_sqlite(settings.sqlite_path):
        service.prepare(settings)
        with storage.open_database(cli) as database:
            installation = secret_keys.load_installation(settings)
            for demo in demos:
                _create_missing(cli, database, installation, demo)
            database.write_once(lambda tx: demo_data.serve_at(tx, settings.public_url, port))
            key = _api_key(database, installation, demos[0].slug)
            with database.reading() as tx:
                actor = keys.identify(tx, key, installation)
                page = DemoPage(
                    slugs=[demo.slug for demo in demos],
                    key=key,
                    booking=_booking(tx, actor),
                    guest_page=_guest_page(tx, actor),
                    variables=_variables(settings, key, f"http://{HOST}:{port}"),
                )
        _write(cli, page)
        cli.is_service = True
        return service.run_server(
            settings, host=HOST, port=port, reload=reload, app="booking_cli.operator.demo_app:create_app"
        )


def _set_environment(port: int) -> None:
    """Set the variables that the service of this process needs, unless they are set."""
    private_files.make_folder(FOLDER)
    for name, value in (
        ("BOOKING_DATABASE_URL", f"sqlite:///{FOLDER / 'booking.db'}"),
        ("BOOKING_PUBLIC_URL", f"http://{HOST}:{port}"),
        ("BOOKING_WEBHOOK_ALLOW_HTTP", "on"),
        ("BOOKING_WEBHOOK_ALLOW_CIDRS", f"{HOST}/32,::1/128"),
    ):
        os.environ[name] = os.environ.get(name) or value


def _create_missing(cli: Cli, database: Database, installation: Installation, demo: DemoOrganization) -> None:
    """Create a demo organization that does not exist. Example organizations get bookings and webhooks, too."""
    slugs = {stored.slug for stored in database.read(organizations.find)}
    if demo.slug in slugs:
        return
    document = read_document(demo.catalogue)
    is_example = demo.catalogue.parent == EXAMPLES
    if is_example:
        document = demo_data.with_pictures(demo_data.shifted(document, datetime.now(UTC).date()))
    organization, _ = create_with_catalogue(cli, database, installation, demo, document)
    if is_example:
        is_alone = slugs <= {example.slug for example in ORGANIZATIONS}
        demo_data.fill(database, installation, organization, is_alone=is_alone)
    cli.render.note(f"imported {demo.catalogue.name} for {demo.slug}")


def _api_key(database: Database, installation: Installation, slug: str) -> str:
    """Return a key with every scope: the last run's key while it works, else a new one."""
    path = FOLDER / "key"
    stored = path.read_text().strip() if path.exists() else ""
    try:
        if database.read(lambda tx: keys.identify(tx, stored, installation)).organization.slug == slug:
            return stored
    except BookingError:
        pass  # there is no key yet, or it belongs to another database
    key = create_key(database, slug, "booking demo")
    private_files.replace(path, f"{key}\n".encode())
    return key


def _booking(tx: Tx, actor: Caller) -> dict[str, Any] | None:
    """Return the body of a booking to try, or None if nothing can be booked in the next weeks."""
    first = actor.organization.zone.wall(actor.at).date() + timedelta(days=LEAD_DAYS)
    last = first + timedelta(days=WINDOW_DAYS)
    available = departures.find_available(tx, actor, date_from=first, date_to=last)["data"]
    return booking_request(available, lambda experience_id: experiences.get(tx, actor, experience_id))


def _guest_page(tx: Tx, actor: Actor) -> str | None:
    """Return the address of the guest's page of the newest booking."""
    newest = bookings.search(tx, actor, PageRequest(10, Order.DESC, None), bookings.Search())["data"]
    return next((booking["manage_url"] for booking in newest if booking["manage_url"]), None)


def _variables(settings: Settings, key: str, base_url: str) -> dict[str, str]:
    """Return the variables for `booking` in another terminal: this database and this service.

    The URL of a server is left out, since it may hold a password.
    """
    path = settings.sqlite_path
    url = {"BOOKING_DATABASE_URL": f"sqlite:///{path.absolute()}"} if path else {}
    return {**url, "BOOKING_BASE_URL": base_url, "BOOKING_API_KEY": key}


def _write(cli: Cli, page: DemoPage) -> None:
    if cli.render.is_json:
        cli.render.one(
            {"organizations": page.slugs, "key": page.key, "booking": page.booking, "environment": page.variables}
        )
    else:
        _write_page(cli, page)
    cli.render.flush()


def _write_page(cli: Cli, page: DemoPage) -> None:
    """Write the links, the variables and the first commands, in lines that fit 80 columns where they can."""
    base_url = page.variables["BOOKING_BASE_URL"]
    links = {
        "API reference": f"{base_url}/docs",
        "A guest's page": page.guest_page,
        "Database": page.variables.get("BOOKING_DATABASE_URL", "").removeprefix("sqlite:///") or None,
    }
    cli.render.heading(f"Booking Service: {' and '.join(page.slugs)}")
    for title, link in links.items():
        if link:
            cli.render.text(f"  {title:<16}{link}")
    cli.render.text("")
    cli.render.heading(f"An API key of {page.slugs[0]} with every scope. In another terminal:")
    for name, value in page.variables.items():
        cli.render.text(f"export {name}={shlex.quote(value)}")
    if Path(sys.argv[0]).parent != Path(shutil.which("booking") or "").parent:
        cli.render.text(f'export PATH="{Path(sys.argv[0]).absolute().parent}:$PATH"')
    cli.render.text("")
    cli.render.heading("Then try:")
    if page.booking:
        cli.render.text(f"booking bookings create --departure {page.booking['departure_id']} \\")
        cli.render.text(f"    --guest {page.booking['guests'][0]['tier_id']}=1 --payment pay_on_site \\")
        cli.render.text("    --name 'Ada Lovelace' --email ada@example.com")
    cli.render.text(COMMANDS.strip().format(slug=page.slugs[0]) + "\n")
