"""Load the secrets to sign and verify deliveries with.

An endpoint's secret comes from a file or from the environment. Without them, a profile has a secret for development. It
is made at its first use, stored beside the configuration with mode 0600, and stays the same: an application is
configured once.
"""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, bad_file
from booking_cli.framework.options import option
from booking_core.base import private_files

VARIABLE = "BOOKING_WEBHOOK_SECRET"

SecretFile = Annotated[
    Path | None,
    option(
        "--secret-file FILE", f"The endpoint's secret; default: ${VARIABLE}, or the profile's secret for development."
    ),
]


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of an endpoint: several during a rotation."""

    values: tuple[str, ...] = field(repr=False)
    origin: str
    """The file or the variable that they were read from."""


def load(cli: Cli, file: Path | None) -> Secrets:
    """Return the secrets of the file, of the environment or of the profile, in this order.

    Raises:
        CliError: the file cannot be read, or holds no valid secret.
    """
    return _from_file_or_environment(file) or _from_profile(cli)


def write(cli: Cli, secrets: Secrets) -> None:
    """Write the secret that deliveries are signed with: the first one during a rotation."""
    if cli.render.is_json_or_fields:
        cli.render.one({"secret": secrets.values[0], "secret_from": secrets.origin})
    else:
        cli.render.text(secrets.values[0])
    cli.render.note(f"It is stored in {secrets.origin}.")


def _from_file_or_environment(file: Path | None) -> Secrets | None:
    if file is not None:
        return parse(_read(file), str(file))
    text = os.environ.get(VARIABLE, "")
    return parse(text, VARIABLE) if text.strip() else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise bad_file(file, f"cannot be read: {reason}") from None


def parse(text: str, origin: str) -> Secrets:
    """Return the secrets of a text, separated by commas or lines.

    Raises:
        CliError: there is no secret, or an invalid one.
    """
    from webhook_verify.signature import checked_secrets, split_secrets

    try:
        values = checked_secrets(split_secrets(text))
    except ValueError as error:
        raise CliError(f"{origin} has no valid secret: {error}.", code="bad_secret") from None
    return Secrets(tuple(values), origin)


def _from_profile(cli: Cli) -> Secrets:
    from booking_cli.client.profiles import folder, profile_name

    file = folder() / "webhook-secrets" / profile_name(cli)
    try:
        if not file.exists():
            _create(file)
    except OSError as error:
        hint = f"pass --secret-file FILE, or set {VARIABLE}"
        raise bad_file(file, f"cannot be written: {error.strerror}", hint=hint) from None
    return parse(_read(file), str(file))


def _create(file: Path) -> None:
    """Make the secret of a profile. If two commands do so at the same time, both use the first one."""
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
