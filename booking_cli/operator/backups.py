"""Report errors of backups, and secret keys that do not open what a backup holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.upkeep.secret_keys import Problem

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


class SecretKeyCheck:
    """Refuses secret keys that do not open the values of a backup, or warns once."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli

    def __call__(self, problem: "Problem") -> None:
        """Raise the error `wrong_secret_key`, or warn if BOOKING_SECRET_KEY_CHECK asks for that."""
        message = problem.message.replace("this database holds", "the backup holds")
        if problem.is_refused:
            raise CliError(message, code="wrong_secret_key", hint=problem.hint)
        self._cli.render.warn(message)
