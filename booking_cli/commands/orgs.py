"""`booking orgs`: create organizations and change their settings, in the database."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, closest
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import argument, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import cells, storage

if TYPE_CHECKING:
    from booking_core.base.context import Organization
    from booking_core.db.engine import Database
    from booking_core.upkeep.cells import Cell

app = command_group("Manage organizations and their settings (operator).")

FIRST_CELL = "first"
COLUMNS = Columns(
    ("slug", "name", "timezone", "default_currency", "id"),
    empty="There is no organization yet: booking orgs create --help",
    truncated={"slug": 24, "name": 32},
)
Slug = Annotated[str, argument("SLUG", "The organization.")]


@command(app, "create", shape="organization", changes=True)
def create(
    cli: Cli,
    slug: Annotated[str, option("--slug SLUG", "Lower-case words joined by hyphens; it cannot be changed.")],
    name: Annotated[str, option("--name NAME", "The name that guests see.")],
    timezone: Annotated[str, option("--timezone ZONE", "IANA time zone of all times.")],
    currency: Annotated[str, option("--currency CODE", "ISO 4217 code of the default currency.")],
    cell: Annotated[str | None, option("--cell NAME", "The cell; see `booking cells list`.")] = None,
    sandbox: Annotated[bool, option("--sandbox", "Create a sandbox, which never sends mail or charges.")] = False,
) -> None:
    """Create an organization.

    Examples:
        booking orgs create --slug fjord-tours --name "Fjord Tours" --timezone Europe/Oslo --currency NOK
        booking orgs create --slug fjord-test --name "Fjord Test" --timezone Europe/Oslo --currency NOK --sandbox
    """
    with _open_for_creation(cli, slug, cell) as database:
        from booking_core import organizations

        organization = database.write_once(
            lambda tx: organizations.create(
                tx, slug=slug, name=name, timezone=timezone, currency=currency, now=tx.now(), is_sandbox=sandbox
            )
        )
        cli.render.one(organizations.present(organization))
    environment = f"BOOKING_CELL={cell} " if cell and cell != FIRST_CELL else ""
    cli.render.note(f"next: {environment}booking keys create --org {slug} --name NAME")


@contextmanager
def _open_for_creation(cli: Cli, slug: str, name: str | None) -> Iterator["Database"]:
    """Yield the database of the cell, after the slug was looked for in all others.

    Raises:
        CliError: an organization of another cell has the slug, or another cell cannot be asked.
    """
    settings = storage.load_settings()
    if not settings.cells:
        if name is not None:
            cells.get(settings, name)
        with storage.open_database(cli) as database:
            yield database
        return
    target = cells.get(settings, name or settings.cell or FIRST_CELL)
    for cell in cells.every(settings):
        if cell.name != target.name:
            _refuse_taken(cli, cell, slug)
    with cells.open_database(cli, target) as database:
        storage.note_database(cli, target.settings)
        yield database


def _refuse_taken(cli: Cli, cell: "Cell", slug: str) -> None:
    from booking_core import organizations

    with cells.open_database(cli, cell) as database:
        if any(organization.slug == slug for organization in database.read(organizations.find)):
            raise CliError(
                f"There is an organization {slug} already, in the cell {cell.name}.",
                ExitCode.CONFLICT,
                code="slug_taken",
            )


@command(app, "list", shape="organization")
def list_(cli: Cli) -> None:
    """List all organizations, sorted by slug.

    With BOOKING_CELLS, the organizations of each cell, one cell after the other.

    Examples:
        booking orgs list --fields slug
    """
    settings = storage.load_settings()
    rows = []
    for cell in cells.every(settings):
        with cells.open_database(cli, cell) if settings.cells else storage.open_database(cli) as database:
            from booking_core import organizations

            of_cell = [organizations.present(organization) for organization in database.read(organizations.find)]
            rows += [row | {"cell": cell.name} for row in of_cell] if settings.cells else of_cell
    cli.render.many(rows, COLUMNS)


@command(app, "show", shape="organization_settings")
def show(cli: Cli, slug: Slug) -> None:
    """Show an organization with all its settings.

    Examples:
        booking orgs show fjord-tours -o json
    """
    with storage.open_database(cli) as database:
        cli.render.one(_with_settings(storage.find_organization(cli, database, slug)))


@command(app, "set", shape="organization_settings", changes=True)
def set_(
    cli: Cli,
    slug: Slug,
    changes: Annotated[list[str], argument("KEY=VALUE...", "The settings to change.")],
) -> None:
    """Change settings of an organization.

    \b
    api_app, plan_api, add_ons_app   on or off: the API app, the plan's API,
                                     the Add-ons app
    name                             the name that guests see
    timezone                         IANA time zone
    default_currency                 ISO 4217 code
    hours_before_booking_closes      default lead time of experiences
    pending_minutes                  how long an unpaid booking holds its seats
    refund_full_until_hours          hours before the start until which a
                                     cancellation is refunded in full
    refund_late_percent              percentage refunded after that
    notify_staff, staff_email        on or off, and the address
    on_site_fee_percent              fee on bookings paid on site
    cancel_under_minimum             on or off: cancel departures with fewer
                                     guests than the minimum
    availability_events              on or off: publish departure.updated
                                     also without an endpoint for it
    language                         of mails and page for guests who gave
                                     none: en, de, fr, es, it, de-AT, ...
    logo_url, brand_color, website   how mails and page look: an https
                                     address, #rrggbb, an https address
    contact_email, contact_phone     where guests can ask
    reply_to_email                   where answers to mails go; default:
                                     staff_email
    guest_cancel_until_hours,        hours before the start until which guests
    guest_move_until_hours           cancel or move their booking on their
                                     page; empty: never

    Examples:
        booking orgs set fjord-tours add_ons_app=off refund_late_percent=50
        booking orgs set fjord-tours staff_email=staff@fjord.example
        booking orgs set fjord-tours language=de 'brand_color=#0f766e' logo_url=https://fjord.example/logo.png
        booking orgs set fjord-tours pending_minutes=     (reset to the installation's default)
    """
    texts = dict(map(_key_and_value, changes))
    cli.audited["settings"] = sorted(texts)
    with storage.open_database(cli) as database:
        from booking_core import organizations

        organization = storage.find_organization(cli, database, slug)
        with _suggest_keys(texts, tuple(organizations.present_settings(organization))):
            organization = _change(database, slug, texts)
        cli.render.one(_with_settings(organization))


@command(app, "notify-email", shape="notices", changes=True)
def notify_email(
    cli: Cli,
    slug: Slug,
    address: Annotated[str | None, argument("[ADDRESS]", "The new address for notifications.")] = None,
    off: Annotated[bool, option("--off", "Turn notifications off; the address is kept.")] = False,
) -> None:
    """Show or set the address for notifications about bookings, cancellations and failing endpoints.

    An address also turns notifications on. The same settings in `orgs set` are notify_staff and staff_email.
    Notifications about refunds that need a person are always sent.

    Examples:
        booking orgs notify-email fjord-tours
        booking orgs notify-email fjord-tours staff@fjord.example
        booking orgs notify-email fjord-tours --off
    """
    if off and address:
        raise CliError("An address and --off exclude each other.", hint="booking orgs notify-email --help")
    texts = {"staff_email": address, "notify_staff": "on"} if address else {"notify_staff": "off"} if off else {}
    cli.audited["settings"] = sorted(texts)
    with storage.open_database(cli) as database:
        from booking_core import organizations

        organization = storage.find_organization(cli, database, slug)
        settings = organizations.present_settings(_change(database, slug, texts) if texts else organization)
    cli.render.one({"slug": slug} | {key: settings[key] for key in ("notify_staff", "staff_email")})


def _change(database: "Database", slug: str, texts: Mapping[str, str]) -> "Organization":
    from booking_core import organizations

    return database.write(
        lambda tx: organizations.set_settings(tx, organizations.get(tx, slug=slug), texts, now=tx.now())
    )


@contextmanager
def _suggest_keys(keys: Iterable[str], setting_keys: Sequence[str]) -> Iterator[None]:
    """Suggest the closest keys in the hint of a validation error."""
    from booking_core.base.errors import Malformed

    try:
        yield
    except Malformed as error:
        suggestions = [
            suggestion for key in keys if key not in setting_keys and (suggestion := closest(key, setting_keys))
        ]
        if not suggestions:
            raise
        details = [detail.to_json() for detail in error.details]
        hint = f"did you mean {', '.join(suggestions)}?"
        raise CliError(str(error), ExitCode.INVALID, code=error.code, hint=hint, details=details) from error


def _key_and_value(change: str) -> tuple[str, str]:
    key, equals, value = change.partition("=")
    if not equals:
        raise CliError(f"{change!r} is not KEY=VALUE.", hint="booking orgs set --help")
    return key, value


def _with_settings(organization: "Organization") -> dict[str, Any]:
    from booking_core import organizations

    return organizations.present(organization) | organizations.present_settings(organization)
