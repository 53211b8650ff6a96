"""`booking keys`: create, list, rotate, expire and revoke API keys in the database."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework import openapi_parts
from booking_cli.framework.arguments import duration_us, one_of_or_newer
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import Item, shortened
from booking_cli.framework.options import Org, argument, option
from booking_cli.framework.secret_files import SecretOutput, require_secret_in_output, secret_output
from booking_cli.framework.tables import Columns
from booking_cli.operator import storage
from booking_cli.operator.transactions import parse_instant

if TYPE_CHECKING:
    from booking_core.base.context import CallerKey, Organization
    from booking_core.db.engine import Database

SCOPES = tuple(openapi_parts.load()["scopes"])

app = command_group("Manage API keys (operator).")

KeyId = Annotated[str, argument("ID", "The key's id or prefix; see `booking keys list`.")]
SecretFile = Annotated[Path | None, option("--secret-file FILE", "Write the key to this new file (mode 0600).")]
Scopes = Annotated[
    list[str] | None,
    option("--scope SCOPE", "A scope, such as bookings:write; repeatable.", parser=one_of_or_newer(*SCOPES)),
]
AllRead = Annotated[bool, option("--all-read", "All read scopes; the default without --scope.")]
ExpiresIn = Annotated[str | None, option("--expires-in 90d", "Expire after this duration.")]
ExpiresAt = Annotated[
    str | None, option("--expires-at T", "Expire at this time: ISO 8601, local time without an offset.")
]


@command(app, "create", shape="new_key", changes=True)
def create(
    cli: Cli,
    org: Org,
    name: Annotated[str, option("--name NAME", "A name that tells the purpose of the key.")],
    scope: Scopes = None,
    all_read: AllRead = False,
    expires_in: ExpiresIn = None,
    expires_at: ExpiresAt = None,
    secret_file: SecretFile = None,
) -> None:
    """Create an API key. The key is shown only once.

    Only a hash of the key is stored; a lost key cannot be recovered.

    Examples:
        booking keys create --org fjord-tours --name "Website" --all-read --scope bookings:write
        booking keys create --org fjord-tours --name ci --expires-in 90d --secret-file ci.key
    """
    if expires_in and expires_at:
        raise CliError("--expires-in and --expires-at exclude each other.", hint="booking keys create --help")
    lifetime = duration_us(expires_in) if expires_in else None
    require_secret_in_output(cli, secret_file, "key")
    with _database(cli) as database, secret_output(secret_file) as output:
        from booking_core.organizations import keys

        organization = storage.find_organization(cli, database, org)
        at = parse_instant(organization, "--expires-at", expires_at)
        scopes = _scopes(scope, all_read=all_read)

        def work(tx: Any) -> "tuple[CallerKey, str]":
            now = tx.now()
            end = at if lifetime is None else organization.instant(now) + lifetime
            return keys.create(tx, organization, name=name, scopes=scopes, expires_at=end, cell=_cell(), now=now)

        key, secret = database.write_once(work)
        _write_new(cli, _key_object(key, organization, key.created_at), secret, output)


@command(app, "list", shape="key")
def list_(cli: Cli, org: Org) -> None:
    """List the keys of an organization, including revoked and expired ones, oldest first.

    In the table, `all read` means every read scope.

    Examples:
        booking keys list --org fjord-tours
        booking keys list --org fjord-tours --fields id,status
    """
    with _database(cli) as database:
        from booking_core.organizations import keys

        organization = storage.find_organization(cli, database, org)
        with database.reading() as tx:
            now = organization.instant(tx.now())
            rows = [_key_object(key, organization, now) for key in keys.find(tx, organization)]
    empty = f"{org} has no key yet: booking keys create --org {org} --name NAME"
    cli.render.many(rows, replace(COLUMNS, empty=empty))


def _scopes_text(key: Item) -> str:
    """Return the scopes with a word for those that a new key has."""
    from booking_core.models.scopes import READ_SCOPES

    scopes = key["scopes"]
    rest = [scope for scope in scopes if scope not in READ_SCOPES]
    return ", ".join(["all read", *rest] if set(scopes) >= READ_SCOPES else scopes)


COLUMNS = Columns(
    ("id", "name", "status", "expires_at", "last_used_at", "prefix", "scopes"),
    # The prefix names a key as its id does.
    terminal=("prefix", "name", "status", "expires_at", "scopes", "last_used_at", "id"),
    cells={"scopes": _scopes_text},
    truncated={"name": 14, "scopes": 32},
)


@command(app, "show", shape="key")
def show(cli: Cli, key_id: KeyId) -> None:
    """Show a key, without its secret.

    Examples:
        booking keys show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json
    """
    with _key(cli, key_id) as (database, key, organization):
        now = organization.instant(database.read(lambda tx: tx.now()))
        cli.render.one(_key_object(key, organization, now))


@command(app, "revoke", shape="key", changes=True)
def revoke(cli: Cli, key_id: KeyId) -> None:
    """Revoke a key immediately and permanently.

    Examples:
        booking keys revoke 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --yes
    """
    from booking_core.organizations import keys

    with _key(cli, key_id) as (database, key, organization):
        if key.revoked_at is None:
            cli.confirm(f"Revoke the key {key.prefix}… ({key.name}) of {organization.slug}? This cannot be undone.")
        _change(cli, lambda tx: keys.revoke(tx, key.id, now=tx.now()), database)


@command(app, "update", shape="key", changes=True)
def update(
    cli: Cli,
    key_id: KeyId,
    name: Annotated[str | None, option("--name NAME", "The new name.")] = None,
    scope: Scopes = None,
    all_read: Annotated[bool, option("--all-read", "All read scopes, besides --scope.")] = False,
) -> None:
    """Change the name of a key, or replace its scopes. They hold from its next request on.

    Examples:
        booking keys update svc_Ab3dE6gH --name "Channel manager"
        booking keys update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --all-read --scope bookings:write
    """
    scopes = _scopes(scope, all_read=all_read) or None
    if name is None and scopes is None:
        raise CliError("There is nothing to change.", hint="pass --name, --scope or --all-read")
    from booking_core.organizations import keys

    if scopes:
        cli.audited["scopes"] = sorted(set(scopes))
    with _key(cli, key_id) as (database, key, _):
        _change(cli, lambda tx: keys.update(tx, key.id, name=name, scopes=scopes, now=tx.now()), database)


@command(app, "rotate", shape="new_key", changes=True)
def rotate(
    cli: Cli,
    key_id: KeyId,
    overlap: Annotated[str, option("--overlap 24h", "How long the old key remains valid.")] = "24h",
    secret_file: SecretFile = None,
) -> None:
    """Create a new key with the same name and scopes, and let the old one expire. The new key is shown only once.

    The old key ends at `previous_key_expires_at`. Both keys count towards the limit of 20 active keys until then;
    --overlap 0 always fits.

    Examples:
        booking keys rotate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --overlap 24h
        booking keys rotate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --overlap 0 --secret-file new.key
    """
    overlap_us = duration_us(overlap)
    require_secret_in_output(cli, secret_file, "key")
    from booking_core.organizations import keys

    with _key(cli, key_id) as (database, old, organization), secret_output(secret_file) as output:

        def work(tx: Any) -> "tuple[CallerKey, str, CallerKey]":
            new, secret, _ = keys.rotate(tx, old.id, overlap=overlap_us, cell=_cell(), now=tx.now())
            return new, secret, keys.get(tx, old.id)[0]

        new, secret, old = database.write_once(work)
        ending = _key_object(old, organization, new.created_at)
        extra = {"previous_key_expires_at": ending["expires_at"]}
        _write_new(cli, _key_object(new, organization, new.created_at) | extra, secret, output)
    verb = "is valid until" if ending["status"] == "active" else "is no longer valid since"
    cli.render.note(f"The old key {old.prefix}… {verb} {shortened(ending['expires_at'])}.")


@command(app, "expire", shape="key", changes=True)
def expire(
    cli: Cli,
    key_id: KeyId,
    at: Annotated[str, option("--at T", "ISO 8601, local time without an offset; a past time: immediately.")],
) -> None:
    """Set the time when a key expires.

    Examples:
        booking keys expire 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --at 2027-01-01T00:00:00
    """
    from booking_core.organizations import keys

    with _key(cli, key_id) as (database, key, organization):
        instant = parse_instant(organization, "--at", at)
        _change(cli, lambda tx: keys.expire(tx, key.id, at=instant, now=tx.now()), database)


def _database(cli: Cli) -> "AbstractContextManager[Database]":
    return storage.open_database(cli, needs="API keys")


@contextmanager
def _key(cli: Cli, reference: str) -> "Iterator[tuple[Database, CallerKey, Organization]]":
    """Open the database and yield it with the key and its organization, which is noted."""
    with _database(cli) as database:
        from booking_core.organizations import keys

        key, organization = database.read(lambda tx: keys.get(tx, keys.resolve_id(tx, reference)))
        cli.audited["key"] = [key.id]
        storage.note_organization(cli, organization)
        yield database, key, organization


def _scopes(scopes: Sequence[str] | None, *, all_read: bool) -> list[str]:
    from booking_core.models.scopes import READ_SCOPES

    return [*(scopes or ()), *(READ_SCOPES if all_read else ())]


def _cell() -> str:
    """Return the cell that new keys name; empty for the first one."""
    return storage.load_settings().cell or ""


def _change(cli: Cli, work: Callable[[Any], "tuple[CallerKey, Organization]"], database: Any) -> None:
    key, organization, now = database.write(lambda tx: (*work(tx), tx.now()))
    cli.render.one(_key_object(key, organization, organization.instant(now)))


def _key_object(key: "CallerKey", organization: "Organization", now: int) -> dict[str, Any]:
    """Return the API's key object, with the status and the time of revocation for operators."""
    from booking_core.organizations import keys

    revoked_at = organization.zone.iso_or_none(key.revoked_at)
    return keys.present(key, organization.zone) | {"status": keys.status(key, now), "revoked_at": revoked_at}


def _write_new(cli: Cli, key: dict[str, Any], secret: str, output: SecretOutput) -> None:
    output.write_with_secret(
        cli,
        key | {"key": secret},
        "key",
        lost=f"The key {key['id']} was created, but could not be written",
        hint=f"booking keys revoke {key['id']}",
        note="Save the key now: it is not shown again.",
    )
