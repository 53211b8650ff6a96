"""`booking backup` and `booking restore`: write a backup of the live database to a file, and restore it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from booking_cli.commands import doctor
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import argument, option
from booking_cli.operator import secret_keys, service, storage

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
    .secret file beside an SQLite database, in another place. The command checks that the key opens the backup.

    Examples:
        booking backup booking-$(date +%F).backup
    """
    from booking_core.upkeep import backups as core

    settings = secret_keys.settings_with_secret_key()
    _check_database(cli, settings)
    with _translate_errors(), cli.render.progress("copying") as advance:
        result = core.create(settings, file, force=force, advance=advance)
    key = secret_keys.load_installation(settings).secret_keys.first_id if settings.has_secret_key else None
    cli.render.one({"file": str(file), "bytes": result.size, "revision": result.revision, "secret_key_id": key})
    cli.render.note("The secret key is not in the backup: keep it in another place.")


def _check_database(cli: Cli, settings: "Settings") -> None:
    """Check that the database exists with this release's schema, and that the secret keys open its values."""
    with storage.open_database(cli) as database:
        storage.require_usable(database)
        secret_keys.verify(settings, database, cli.render.warn)


_EXIT_CODES = {
    "not_empty": ExitCode.CONFLICT,
    "database_in_use": ExitCode.CONFLICT,
    "backup_failed": ExitCode.FAILED,
    "not_restored": ExitCode.FAILED,
}
"""The exit codes of errors; of any other a wrong file or a missing program is the cause."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn errors of a backup and of the database into errors that say what to do.

    Raises:
        CliError: the backup was not written, or not restored.
    """
    from booking_core.upkeep.backups import BackupError

    with storage.translate_errors():
        try:
            yield
        except BackupError as error:
            exit_code = _EXIT_CODES.get(error.code, ExitCode.USAGE)
            raise CliError(str(error), exit_code, code=error.code, hint=error.hint) from error


@command(app, "restore", shape="restored", changes=True)
def restore(
    cli: Cli,
    file: BackupFile,
    force: Annotated[bool, option("--force", "Replace the data of a database that is not empty.")] = False,
) -> ExitCode:
    """Restore the database of BOOKING_DATABASE_URL from a backup, upgrade it to this release, and run the doctor.

    Stop serve and worker first. The file and the secret key are checked before anything is changed, and the data is
    replaced in one transaction: an interrupted command changes nothing. The exit code is the exit code of booking
    doctor.

    Deliveries, mails and refunds that were queued at the time of the backup are sent again. The audit trail is restored
    too, with an entry of the restoration.

    Examples:
        booking restore booking-2026-11-22.backup
    """
    from booking_core.upkeep import backups as core

    settings = secret_keys.settings_with_secret_key()
    storage.note_database(cli, settings)
    with (
        service.lock_sqlite(settings.sqlite_path),
        _translate_errors(),
        cli.render.progress("copying") as advance,
    ):
        result = core.restore(settings, file, force=force, advance=advance)
        if result.warning:
            cli.render.warn(result.warning)
        with storage.open_database(cli) as database:
            storage.record_change(database)
    findings = doctor.examine(cli)
    cli.render.one(
        {
            "file": str(file),
            "bytes": result.size,
            "revision": result.revision,
            "database_revision": storage.revision(settings),
            "findings": [asdict(finding) for finding in findings] if cli.render.is_json else len(findings),
        }
    )
    if findings and cli.render.is_default_table:
        doctor.write(cli, findings)
    return doctor.exit_code(findings)
