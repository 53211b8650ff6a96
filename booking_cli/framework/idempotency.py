"""The Idempotency-Key of a change that must happen once."""

from collections.abc import Iterator
from contextlib import contextmanager

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode


@contextmanager
def idempotency_key(cli: Cli, option: str | None) -> Iterator[str]:
    """Yield the key of --idempotency-key, or a new one.

    Raises:
        CliError: Ctrl-C was pressed; the hint holds the key, with which the same command can be run again.
    """
    from secrets import token_hex

    key = option or f"cli-{token_hex(16)}"
    cli.render.detail(f"idempotency key: {key}")
    try:
        yield key
    except KeyboardInterrupt:
        raise CliError(
            "Interrupted; the change may have been made.",
            ExitCode.INTERRUPTED,
            code="interrupted",
            hint=retry_hint(key),
        ) from None


def retry_hint(key: str) -> str:
    """Return the hint for a change that may have been made."""
    return f"run the same command with --idempotency-key {key}: it makes the change once, and shows the result"
