"""`booking restore`: restore the database from a backup, and check it."""

from dataclasses import asdict
from typing import Annotated

from booking_cli.commands import doctor
from booking_cli.commands.backup import BackupFile
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import option
from booking_cli.operator import backups, schema, secret_keys, service, storage

app = command_app()


@command(app, "restore", shape="restored", changes=True)
def restore(
    cli: Cli,
    file: BackupFile,
    force: Annotated[bool, option("--force", "Replace the data of a database that is not empty.")] = False,
) -> ExitCode:
    """Restore the database of BOOKING_DATABASE_URL from a backup, upgrade it to this release, and run the doctor.

    Stop serve and worker first. The file and the secret key are checked before anything is changed, and the data is
    replaced in one transaction: an interrupted command changes nothing. The exit code is that of booking doctor.

    Deliveries, mails and refunds that were queued at the time of the backup are sent again. The audit trail is that of
    the backup, with an entry of the restoration.

    Examples:
        booking restore booking-2026-11-22.backup
    """
    from booking_core.upkeep import backups as core

    settings = secret_keys.settings_with_secret_key()
    storage.note_database(cli, settings)
    with (
        service.lock_sqlite(settings.sqlite_path),
        backups.translate_errors(),
        cli.render.progress("copying") as advance,
    ):
        done = core.restore(settings, file, force=force, advance=advance)
        if done.warning:
            cli.render.warn(done.warning)
        with storage.open_database(cli) as database:
            storage.record_change(database)
    found = doctor.examine(cli)
    cli.render.one(
        {
            "file": str(file),
            "bytes": done.size,
            "revision": done.revision,
            "database_revision": schema.revision(settings),
            "findings": [asdict(each) for each in found] if cli.render.is_json else len(found),
        }
    )
    if found and cli.render.is_default_table:
        doctor.write(cli, found)
    return doctor.exit_code(found)
