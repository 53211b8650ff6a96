"""The secrets that deliveries are signed and verified with at a shell, and where they come from.

An endpoint's own secret comes from a file or from the environment. Where there is none, a profile has a secret for
development: made when first wanted, kept beside the configuration with mode 0600, and the same from then on, so that
an application is told it once.
"""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from booking_cli.framework.context import Cli, CliError
from booking_core import private_files

VARIABLE = "BOOKING_WEBHOOK_SECRET"

SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help=f"The endpoint's secret; else ${VARIABLE}, else the profile's own for development.",
    ),
]


@dataclass(frozen=True, slots=True)
class Secrets:
    """What to sign or to verify with; several during a rotation."""

    values: tuple[str, ...] = field(repr=False)
    origin: str
    """Where they were found, in words."""


def chosen(cli: Cli, file: Path | None) -> Secrets:
    """The secrets of the file, else of the environment, else of the profile.

    Raises:
        CliError: there is no such file, or what is in it is no secret.
    """
    return _given(file) or _of_profile(cli)


def show(cli: Cli, secrets: Secrets) -> None:
    """Print the secret that deliveries are signed with: the first one, during a rotation."""
    if cli.render.is_json or cli.render.fields:
        cli.render.one({"secret": secrets.values[0], "secret_from": secrets.origin})
    else:
        cli.render.text(secrets.values[0])
    cli.render.note(f"It is kept in {secrets.origin}.")


def _given(file: Path | None) -> Secrets | None:
    if file is not None:
        return checked(_read(file), str(file))
    text = os.environ.get(VARIABLE, "")
    return checked(text, VARIABLE) if text.strip() else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CliError(f"{file} cannot be read: {reason}.", code="bad_file") from None


def checked(text: str, origin: str) -> Secrets:
    """The secrets in a text, separated by commas or lines.

    Raises:
        CliError: there is none, or one that cannot be.
    """
    from webhook_verify.signature import checked_secrets

    try:
        values = checked_secrets(part.strip() for part in text.replace(",", "\n").splitlines() if part.strip())
    except ValueError as error:
        raise CliError(f"{origin} holds no secret that can be used: {error}.", code="bad_secret") from None
    return Secrets(tuple(values), origin)


def _of_profile(cli: Cli) -> Secrets:
    from booking_cli.client.profiles import folder, profile_name

    file = folder() / "webhook-secrets" / profile_name(cli)
    try:
        if not file.exists():
            _make(file)
    except OSError as error:
        raise CliError(
            f"{file} cannot be written: {error.strerror}.",
            code="bad_file",
            hint=f"--secret-file FILE, or set {VARIABLE}",
        ) from None
    return checked(_read(file), str(file))


def _make(file: Path) -> None:
    """Makes the secret of a profile, once: of two commands that want it at the same time, one makes it for both."""
    import tempfile

    from webhook_verify.signature import generate_secret

    private_files.make_folder(file.parent)
    descriptor, draft = tempfile.mkstemp(dir=file.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "w") as writing:
            writing.write(generate_secret() + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        Path(draft).unlink()
