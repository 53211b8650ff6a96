"""`booking backup`: write a backup of the live database to a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.options import argument, option
from booking_cli.operator import backups, schema, secret_keys, storage

if TYPE_CHECKING:
    from booking_core.base.settings import Settings

app = command_app()

BackupFile = Annotated[Path, argument("FILE", "The file of the backup.", dir_okay=False)]


@command(app, "backup", shape="backup", changes=True)
def backup(
    cli: Cli,
    file: BackupFile,
    force: Annotated[bool, option("--force", "Replace the file if it exists.")] = False,
) -> None:
    """Write a backup of the live database to a file that only its owner can read.

    It can run beside the service. On PostgreSQL it needs pg_dump and pg_restore of the server's version or a newer one.

    The secret key is not in the backup, and a backup without its key cannot be used: keep BOOKING_SECRET_KEY, or the
    .secret file beside an SQLite database, in another place. The command checks that the key opens what it has written.

    Examples:
        booking backup booking-$(date +%F).backup
    """
    from booking_core.upkeep import backups as core

    settings = secret_keys.settings_with_secret_key()
    _check_database(cli, settings)
    with backups.translate_errors(), cli.render.progress("copying") as advance:
        done = core.create(settings, file, force=force, advance=advance)
    key = secret_keys.load_installation(settings).secret_keys.first_id if settings.has_secret_key else None
    cli.render.one({"file": str(file), "bytes": done.size, "revision": done.revision, "secret_key_id": key})
    cli.render.note("The secret key is not in the backup: keep it in another place.")


def _check_database(cli: Cli, settings: "Settings") -> None:
    """Check that the database exists with this release's schema, and that the secret keys open its values."""
    with storage.open_database(cli) as database:
        schema.require_usable(database)
        secret_keys.verify(settings, database, cli.render.warn)
