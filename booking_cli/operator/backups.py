"""Report errors of backups."""

from collections.abc import Iterator
from contextlib import contextmanager

from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage

_EXIT_CODES = {
    "not_empty": ExitCode.CONFLICT,
    "database_in_use": ExitCode.CONFLICT,
    "backup_failed": ExitCode.FAILED,
    "not_restored": ExitCode.FAILED,
}
"""The exit codes of errors; of any other a wrong file or a missing program is the cause."""


@contextmanager
def translate_errors() -> Iterator[None]:
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
