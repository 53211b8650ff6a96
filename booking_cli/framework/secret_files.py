"""Keeping a secret that is shown only once: in a file that nobody else can read."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode


def would_be_shown(cli: Cli, path: Path | None, field: str) -> None:
    """Sees that a secret which is about to be made is shown, or kept in a file: nobody could show it again.

    Raises:
        CliError: `--fields` leaves it out.
    """
    if path is None and cli.render.fields and field not in cli.render.fields:
        raise CliError(
            f"--fields leaves out {field}, which is shown only once.",
            hint=f"--fields {','.join((*cli.render.fields, field))}, or --secret-file FILE",
        )


@dataclass(frozen=True, slots=True)
class Keeper:
    """Hands a new secret over, this once: on the screen, or into its file."""

    path: Path | None
    write: Callable[[str], None]

    def hand_over(self, cli: Cli, made: dict[str, Any], field: str, *, lost: str, hint: str, note: str) -> None:
        """Shows what was made, with the secret that it holds as `field`, or with the name of the file.

        Args:
            lost: what to say of it when the secret can be neither shown nor kept.
            hint: the command that helps then.
            note: what whoever sees the secret is told.

        Raises:
            CliError: `secret_lost`; with a file, `not_shown` when only the rest could not be shown.
            BrokenPipeError: the secret is in its file, and nobody reads the rest.
        """
        try:
            self.write(made[field])
        except OSError as error:
            raise CliError(f"{lost}: {error.strerror}.", ExitCode.FAILED, code="secret_lost", hint=hint) from error
        if self.path:
            made = {name: value for name, value in made.items() if name != field} | {"secret_file": str(self.path)}
        try:
            cli.render.one(made)
            cli.render.flush()
        except OSError as error:
            if self.path is None:
                raise CliError(f"{lost}: {error.strerror}.", ExitCode.FAILED, code="secret_lost", hint=hint) from error
            if isinstance(error, BrokenPipeError):
                raise
            raise CliError(
                f"The secret is in {self.path}; the rest could not be shown: {error.strerror}.",
                ExitCode.FAILED,
                code="not_shown",
            ) from error
        if not self.path:
            cli.render.note(note)


@contextmanager
def kept(path: Path | None) -> Iterator[Keeper]:
    """Gives what hands the secret over, and with a path writes it into that file, mode 0600; the file must be new.

    It is made before the secret is, so that no secret is ever issued that cannot be kept; and taken away again when
    nothing was written.
    """
    if path is None:
        yield Keeper(None, lambda secret: None)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CliError(f"{path} exists; a secret is only written to a new file.", code="file_exists") from None
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}.", code="bad_file") from None
    written = False
    with os.fdopen(descriptor, "w") as file:

        def write(secret: str) -> None:
            nonlocal written
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
            written = True

        try:
            yield Keeper(path, write)
        finally:
            if not written:
                path.unlink(missing_ok=True)
