"""The error that ends a command, and how other exceptions become one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.framework.exit_codes import BY_CODE, ExitCode

if TYPE_CHECKING:
    from typer import TyperException

    from booking_core.base.errors import BookingError

HINTS: Mapping[str, str] = {
    "slug_taken": "booking orgs list",
    "key_limit_reached": "booking keys list --org SLUG, then booking keys revoke ID",
    "refund_under_way": "booking refunds show ID",
    "refund_exists": "booking refunds show BOOKING",
    "paid_by_card": "booking storefront pay BOOKING --payment-intent PI",
    "overpaid": "list the recorded payments: booking payments list BOOKING",
    "mail_too_old": "send it anyway with --anyway",
    "mail_queued": "check that a worker is running: booking doctor",
    "seats_sold": "--force sets it anyway; existing bookings keep their seats",
    "service_unavailable": "check that the database in BOOKING_DATABASE_URL is running",
}
"""The next step by error code or reason."""

NO_ARGS_ERROR = "NoArgsIsHelpError"
"""Typer's error for a group without a command. Its message is the help. The class has no public name."""


class CliError(Exception):
    """An error that ends the command, with a message of one line and a hint for the next step."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode = ExitCode.USAGE,
        *,
        code: str = "usage",
        hint: str | None = None,
        details: Sequence[Mapping[str, Any]] = (),
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.hint = hint
        self.details = details
        self.status = status
        self.request_id = request_id


class UnknownField(Exception):
    """An error for a path in `--fields` that the output does not have."""

    def __init__(self, path: str, known: Iterable[str]) -> None:
        super().__init__(path)
        self.path = path
        self.known = tuple(dict.fromkeys(known))


def bad_file(path: object, problem: str, *, code: str = "bad_file", hint: str | None = None) -> CliError:
    """Return the error for a file that cannot be used: `PATH cannot be read: No such file or directory.`"""
    return CliError(f"{path} {problem}.", code=code, hint=hint)


def is_no_args_error(error: Exception) -> bool:
    """Return whether a group was called without a command."""
    return type(error).__name__ == NO_ARGS_ERROR


def to_cli_error(error: Exception) -> CliError:
    """Return the error that is reported for any exception."""
    import typer

    if isinstance(error, CliError):
        return error
    if isinstance(error, UnknownField):
        return _from_unknown_field(error)
    if isinstance(error, typer.TyperException):
        return _from_usage_error(error)
    if isinstance(error, ModuleNotFoundError):
        message = f"This command needs {error.name}, which is not installed."
        return CliError(message, hint="pip install 'booking-cli[operator]'")
    from booking_core.base.errors import BookingError

    if isinstance(error, BookingError):
        return _from_booking_error(error)
    message = f"{type(error).__name__}: {error}"
    return CliError(message, ExitCode.FAILED, code="internal_error", hint="show the traceback with --debug")


def _from_unknown_field(error: UnknownField) -> CliError:
    from booking_cli.framework.suggestions import closest

    suggestion = closest(error.path, error.known)
    message = f"There is no field {error.path!r}." + (f" Did you mean {suggestion!r}?" if suggestion else "")
    return CliError(message, code="unknown_field", hint=f"the fields are {', '.join(error.known)}")


def _from_usage_error(error: "TyperException") -> CliError:
    command = getattr(getattr(error, "ctx", None), "command_path", "booking")
    message = error.format_message()
    if is_no_args_error(error) or message == "Missing command.":
        message = f"{command} needs a command."
    return CliError(message, hint=f"{command} --help")


def _from_booking_error(error: "BookingError") -> CliError:
    reasons = [detail.reason for detail in error.details]
    hint = next((HINTS[each] for each in (*reasons, error.code) if each in HINTS), None)
    if hint is None and error.code == "not_found":
        from booking_cli.framework import not_found_hints

        hint = not_found_hints.hint_of_message(str(error))
    exit_code = BY_CODE.get(error.code, ExitCode.FAILED)
    details = [detail.to_json() for detail in error.details]
    return CliError(str(error), exit_code, code=error.code, hint=hint, details=details)
