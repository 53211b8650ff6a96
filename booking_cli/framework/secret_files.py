"""Write a secret that is shown only once: to the terminal, or to a file that only its owner can read."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, bad_file
from booking_cli.framework.exit_codes import ExitCode


def require_secret_in_output(cli: Cli, path: Path | None, field: str) -> None:
    """Check before a secret is made that it will be written: to a file, or among the chosen fields.

    Raises:
        CliError: `--fields` leaves it out.
    """
    if path is None and cli.render.fields and field not in cli.render.fields:
        raise CliError(
            f"--fields leaves out {field}, which is shown only once.",
            hint=f"--fields {','.join((*cli.render.fields, field))}, or --secret-file FILE",
        )


@dataclass(frozen=True, slots=True)
class SecretOutput:
    """Writes a new secret to the terminal or to its file."""

    path: Path | None
    write: Callable[[str], None]

    def write_with_secret(self, cli: Cli, item: dict[str, Any], field: str, *, lost: str, hint: str, note: str) -> None:
        """Write an item with its secret, or with the name of the secret's file.

        Args:
            field: the field of the item that holds the secret.
            lost: the error message if the secret cannot be written.
            hint: the hint of that error.
            note: the note beside a secret on the terminal.

        Raises:
            CliError: `secret_lost`; with a file `not_shown`, if only the rest could not be written.
            BrokenPipeError: stdout is closed; the secret is in its file.
        """
        secret, is_shown_first = item[field], self.path is None and cli.render.is_default_table
        if self.path or is_shown_first:
            item = {name: value for name, value in item.items() if name != field}
        if self.path:
            item |= {"secret_file": str(self.path)}
        is_in_file = False
        try:
            self.write(secret)
            is_in_file = self.path is not None
            if is_shown_first:
                cli.render.text(f"{secret}\n")
            cli.render.one(item)
            cli.render.flush()
        except OSError as error:
            if not is_in_file:
                raise CliError(f"{lost}: {error.strerror}.", ExitCode.FAILED, code="secret_lost", hint=hint) from error
            if isinstance(error, BrokenPipeError):
                raise
            message = f"The secret is in {self.path}; the rest could not be shown: {error.strerror}."
            raise CliError(message, ExitCode.FAILED, code="not_shown") from error
        if not self.path:
            cli.render.note(note)


@contextmanager
def secret_output(path: Path | None) -> Iterator[SecretOutput]:
    """Yield the output for a new secret. With a path it is written to that new file, with mode 0600.

    The file is created before the secret: a secret that cannot be stored is not created. It is removed again if nothing
    was written.

    Raises:
        CliError: the file exists, or cannot be created.
    """
    if path is None:
        yield SecretOutput(None, lambda secret: None)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise bad_file(path, "exists; a secret is only written to a new file", code="file_exists") from None
    except OSError as error:
        raise bad_file(path, f"cannot be written: {error.strerror}") from None
    is_written = False
    with os.fdopen(descriptor, "w") as file:

        def write(secret: str) -> None:
            nonlocal is_written
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
            is_written = True

        try:
            yield SecretOutput(path, write)
        finally:
            if not is_written:
                path.unlink(missing_ok=True)
