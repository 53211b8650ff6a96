"""`booking orgs`: organizations and their settings."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from booking_cli.framework import context
from booking_cli.framework.arguments import near
from booking_cli.framework.command import command, group
from booking_cli.framework.context import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage

app = group("Organizations and their settings.")

COLUMNS = ("slug", "name", "timezone", "default_currency", "id")
CLIPPED = {"slug": 24, "name": 32}
Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The organization.", show_default=False)]


@command(
    app,
    "create",
    'booking orgs create --slug fjord-tours --name "Fjord Tours" --timezone Europe/Oslo --currency NOK',
    shape="organization",
    changes=True,
)
def create(
    ctx: typer.Context,
    slug: Annotated[
        str, typer.Option("--slug", metavar="SLUG", help="Lower-case words joined by hyphens; never changes.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Shown to guests.")],
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="IANA name; every timestamp is shown in it.")
    ],
    currency: Annotated[str, typer.Option("--currency", metavar="CODE", help="ISO 4217 code.")],
) -> None:
    """Creates an organization."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import organizations

        made = database.write_once(
            lambda tx: organizations.create(
                tx, slug=slug, name=name, timezone=timezone, currency=currency, now=tx.now()
            )
        )
        cli.render.one(organizations.present(made))
    cli.render.note(f"next: booking keys create --org {slug} --name NAME")


@command(app, "list", "booking orgs list --fields slug", shape="organization")
def list_(ctx: typer.Context) -> None:
    """Lists all organizations by slug."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import organizations

        found = [organizations.present(each) for each in database.read(organizations.find)]
    cli.render.many(found, COLUMNS, clipped=CLIPPED, empty="There is no organization yet: booking orgs create --help")


@command(app, "show", "booking orgs show fjord-tours -o json", shape="organization_settings")
def show(ctx: typer.Context, slug: Slug) -> None:
    """Shows an organization with every setting."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import organizations

        found = database.read(lambda tx: organizations.get(tx, slug=slug))
        storage.tell_organization(cli, found)
        cli.render.one(_with_settings(found))


@command(
    app,
    "set",
    "booking orgs set fjord-tours add_ons_app=off refund_late_percent=50",
    "booking orgs set fjord-tours staff_email=staff@fjord.example",
    "booking orgs set fjord-tours pending_minutes=     (the installation's default again)",
    shape="organization_settings",
    changes=True,
)
def set_(
    ctx: typer.Context,
    slug: Slug,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What to change.", show_default=False)],
) -> None:
    """Changes settings of an organization.

    \b
    api_app, plan_api, add_ons_app        on or off: the API app, the plan's API, the Add-ons app
    name                                  shown to guests
    timezone                              IANA name
    default_currency                      ISO 4217 code
    hours_before_booking_closes           lead time of experiences that name none
    pending_minutes                       how long an unpaid booking keeps its seats
    refund_full_until_hours               a cancellation this long before the start is refunded in full,
    refund_late_percent                   a later one by this much
    notify_staff, staff_email             on or off, and where to
    on_site_fee_percent                   fee on bookings paid on site
    cancel_under_minimum                  on or off: cancel a departure that is short of guests
    """
    cli = context.of(ctx)
    texts = dict(map(_key_and_value, changes))
    with storage.database(cli) as database:
        from booking_core import organizations

        found = database.read(lambda tx: organizations.get(tx, slug=slug))
        storage.tell_organization(cli, found)
        with _near_named(texts, tuple(organizations.present_settings(found))):
            changed = database.write(
                lambda tx: organizations.set_settings(tx, organizations.get(tx, slug=slug), texts, now=tx.now())
            )
        cli.render.one(_with_settings(changed))


@command(
    app,
    "notify-email",
    "booking orgs notify-email fjord-tours",
    "booking orgs notify-email fjord-tours staff@fjord.example",
    "booking orgs notify-email fjord-tours --off",
    shape="notices",
    changes=True,
)
def notify_email(
    ctx: typer.Context,
    slug: Slug,
    address: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS]", help="Where notices go from now on.", show_default=False)
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Send none; the address is kept.")] = False,
) -> None:
    """Shows or sets where staff is told of bookings, cancellations and endpoints that fail.

    With an address the notices are switched on; `orgs set` has both as notify_staff and staff_email. That a refund
    needs a person is told in any case.
    """
    cli = context.of(ctx)
    if off and address:
        raise CliError("An address and --off exclude each other.", hint="booking orgs notify-email --help")
    texts = {"staff_email": address, "notify_staff": "on"} if address else {"notify_staff": "off"} if off else {}
    with storage.database(cli) as database:
        from booking_core import organizations

        def work(tx: Any) -> Any:
            organization = organizations.get(tx, slug=slug)
            return organizations.set_settings(tx, organization, texts, now=tx.now()) if texts else organization

        storage.tell_organization(cli, database.read(lambda tx: organizations.get(tx, slug=slug)))
        settings = organizations.present_settings(database.write(work) if texts else database.read(work))
    cli.render.one({"slug": slug} | {key: settings[key] for key in ("notify_staff", "staff_email")})


@contextmanager
def _near_named(keys: Iterable[str], known: Sequence[str]) -> Iterator[None]:
    """Name in the hint of a refusal what was probably meant by keys that are not known."""
    from booking_core.errors import Malformed

    try:
        yield
    except Malformed as error:
        meant = [found for key in keys if key not in known and (found := near(key, known))]
        if not meant:
            raise
        details = [detail.to_json() for detail in error.details]
        hint = f"did you mean {', '.join(meant)}?"
        raise CliError(str(error), ExitCode.INVALID, code=error.code, hint=hint, details=details) from error


def _key_and_value(change: str) -> tuple[str, str]:
    key, equals, value = change.partition("=")
    if not equals:
        raise CliError(f"{change!r} is not KEY=VALUE.", hint="booking orgs set --help")
    return key, value


def _with_settings(organization: Any) -> dict[str, Any]:
    from booking_core import organizations

    return organizations.present(organization) | organizations.present_settings(organization)
