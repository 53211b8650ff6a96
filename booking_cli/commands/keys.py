"""`booking keys`: API keys of organizations."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.framework import context, secret_files
from booking_cli.framework.arguments import open_set
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.durations import length_us
from booking_cli.framework.secret_files import Keeper
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.context import ApiKey, Organization

SCOPES = (
    *("experiences:read", "availability:read", "bookings:read", "bookings:write", "customers:read"),
    *("customers:write", "gift_cards:read", "webhooks:manage"),
)
"""The scopes of API v1 section 5; a test compares them with those of the wire models, which take pydantic to load."""


app = group("API keys. The HTTP API has no endpoint for them: these commands open the database.")

COLUMNS = ("id", "name", "status", "expires_at", "last_used_at", "prefix")
CLIPPED = {"name": 14}
"""The first ones are the most important: a narrow terminal shows only those that fit."""
Org = Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.", show_default=False)]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id; `booking keys list` shows it.")]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Write the key to this new file (0600) instead of showing it."),
]


@command(
    app,
    "create",
    'booking keys create --org fjord-tours --name "Website" --all-read --scope bookings:write',
    "booking keys create --org fjord-tours --name ci --expires-in 90d --secret-file ci.key",
    shape="new_key",
    changes=True,
)
def create(
    ctx: typer.Context,
    org: Org,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the key is for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", parser=open_set(*SCOPES), help="Such as bookings:write; repeatable."),
    ] = None,
    all_read: Annotated[
        bool, typer.Option("--all-read", help="Every read scope; the default when no --scope is given.")
    ] = False,
    expires_in: Annotated[str | None, typer.Option("--expires-in", metavar="90d", help="End after this long.")] = None,
    expires_at: Annotated[
        str | None,
        typer.Option("--expires-at", metavar="T", help="End at this instant; ISO 8601, without an offset local time."),
    ] = None,
    secret_file: SecretFile = None,
) -> None:
    """Creates an API key and shows it, this once.

    Only its hash is stored; a lost key cannot be recovered.
    """
    cli = context.of(ctx)
    if expires_in and expires_at:
        raise CliError("--expires-in and --expires-at exclude each other.", hint="booking keys create --help")
    lifetime = length_us(expires_in) if expires_in else None
    secret_files.would_be_shown(cli, secret_file, "key")
    with storage.database(cli) as database, secret_files.kept(secret_file) as keeper:
        from booking_core import keys, organizations
        from booking_core.models.scopes import READ_SCOPES

        organization = database.read(lambda tx: organizations.get(tx, slug=org))
        storage.tell_organization(cli, organization)
        at = _instant(organization, "--expires-at", expires_at) if expires_at else None
        scopes = [*(scope or ()), *(READ_SCOPES if all_read else ())]
        key, secret = database.write_once(
            lambda tx: keys.create(
                tx,
                organization,
                name=name,
                scopes=scopes,
                expires_at=at if lifetime is None else tx.now() + lifetime,
                now=tx.now(),
            )
        )
        _hand_over(cli, _shown(key, organization, key.created_at), secret, keeper)


@command(
    app,
    "list",
    "booking keys list --org fjord-tours",
    "booking keys list --org fjord-tours --fields id,status",
    shape="key",
)
def list_(ctx: typer.Context, org: Org) -> None:
    """Lists an organization's keys, the oldest first, revoked and expired ones too."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import keys, organizations

        with database.reading() as tx:
            organization, now = organizations.get(tx, slug=org), tx.now()
            found = [_shown(key, organization, now) for key in keys.find(tx, organization)]
    storage.tell_organization(cli, organization)
    cli.render.many(
        found,
        COLUMNS,
        clipped=CLIPPED,
        empty=f"{org} has no key yet: booking keys create --org {org} --name NAME",
    )


@command(app, "show", "booking keys show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json", shape="key")
def show(ctx: typer.Context, key_id: KeyId) -> None:
    """Shows a key, without the secret."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import keys

        with database.reading() as tx:
            key, organization = keys.get(tx, key_id)
            storage.tell_organization(cli, organization)
            cli.render.one(_shown(key, organization, tx.now()))


@command(app, "revoke", "booking keys revoke 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --yes", shape="key", changes=True)
def revoke(ctx: typer.Context, key_id: KeyId) -> None:
    """Revokes a key, at once and for good."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import keys

        key, organization = database.read(lambda tx: keys.get(tx, key_id))
        storage.tell_organization(cli, organization)
        if key.revoked_at is None:
            cli.confirm(f"Revoke the key {key.prefix}… ({key.name}) of {organization.slug}? It cannot be undone.")
        _change(cli, lambda tx: keys.revoke(tx, key_id, now=tx.now()), database)


@command(
    app,
    "rotate",
    "booking keys rotate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --overlap 24h",
    "booking keys rotate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --overlap 0 --secret-file new.key",
    shape="new_key",
    changes=True,
)
def rotate(
    ctx: typer.Context,
    key_id: KeyId,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="24h", help="How long the old key goes on working.")
    ] = "24h",
    secret_file: SecretFile = None,
) -> None:
    """Makes a successor with the same name and scopes, and shows it, this once.

    The old key expires after the overlap. Both count towards the 20 active keys until then; --overlap 0 always fits.
    """
    cli = context.of(ctx)
    overlap_us = length_us(overlap)
    secret_files.would_be_shown(cli, secret_file, "key")
    with storage.database(cli) as database, secret_files.kept(secret_file) as keeper:
        from booking_core import keys

        _, owner = database.read(lambda tx: keys.get(tx, key_id))
        storage.tell_organization(cli, owner)
        key, secret, organization = database.write_once(
            lambda tx: keys.rotate(tx, key_id, overlap=overlap_us, now=tx.now())
        )
        _hand_over(cli, _shown(key, organization, key.created_at), secret, keeper)


@command(
    app,
    "expire",
    "booking keys expire 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --at 2027-01-01T00:00:00",
    shape="key",
    changes=True,
)
def expire(
    ctx: typer.Context,
    key_id: KeyId,
    at: Annotated[
        str, typer.Option("--at", metavar="T", help="ISO 8601, without an offset local time; in the past: at once.")
    ],
) -> None:
    """Sets when a key ends, sooner or later than before."""
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import keys

        _, organization = database.read(lambda tx: keys.get(tx, key_id))
        storage.tell_organization(cli, organization)
        instant = _instant(organization, "--at", at)
        _change(cli, lambda tx: keys.expire(tx, key_id, at=instant, now=tx.now()), database)


def _change(cli: Cli, act: Callable[[Any], "tuple[ApiKey, Organization]"], database: Any) -> None:
    key, organization, now = database.write(lambda tx: (*act(tx), tx.now()))
    cli.render.one(_shown(key, organization, now))


def _instant(organization: "Organization", option: str, text: str) -> int:
    try:
        return organization.zone.parse(text)
    except ValueError as error:
        raise CliError(f"{option} {error}.", hint="write 2027-01-01T00:00:00 or 2027-01-01T00:00:00+01:00") from None


def _shown(key: "ApiKey", organization: "Organization", now: int) -> dict[str, Any]:
    """The wire ApiKey, and what only the operator sees of it."""
    from booking_core import keys

    revoked_at = None if key.revoked_at is None else organization.zone.iso(key.revoked_at)
    return keys.present(key, organization.zone) | {"status": keys.status(key, now), "revoked_at": revoked_at}


def _hand_over(cli: Cli, shown: dict[str, Any], secret: str, keeper: Keeper) -> None:
    keeper.hand_over(
        cli,
        shown | {"key": secret},
        "key",
        lost=f"The key {shown['id']} was created, and could not be handed over",
        hint=f"booking keys revoke {shown['id']}",
        note="Keep the key now: it is not shown again.",
    )
