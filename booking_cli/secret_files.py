"""Keeping a secret that is shown only once: in a file that nobody else can read."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from booking_cli.context import Cli, CliError


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


@contextmanager
def kept(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Gives what writes the secret into the file, mode 0600; the file must be new.

    It is made before the secret is, so that no secret is ever issued that cannot be kept; and taken away again when
    nothing was written.
    """
    if path is None:
        yield lambda secret: None
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
            yield write
        finally:
            if not written:
                path.unlink(missing_ok=True)
