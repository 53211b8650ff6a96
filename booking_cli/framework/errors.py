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

LISTS: Mapping[str, str] = {
    "organization": "booking orgs list lists the organizations",
    "key": "booking keys list --org SLUG lists the keys",
    "experience": "booking experiences list lists the experiences",
    "departure": "booking availability lists the departures",
    "booking": "booking bookings list lists the bookings",
    "checkout": "booking bookings list --status pending lists the bookings that wait for a payment",
    "customer": "booking customers list lists the customers",
    "gift card": "booking gift-cards list lists the gift cards",
    "event": "booking events list lists the events, which are kept for 90 days",
    "endpoint": "booking webhooks list lists the endpoints",
    "delivery": "booking webhooks deliveries list ENDPOINT lists the deliveries, which are kept for 30 days",
    "recorded payment": "booking payments list BOOKING lists the recorded payments",
    "mail": "booking mails list lists the mails",
    "hold": "a hold expires; booking holds create creates a new one",
    "refund": "booking refunds list --org SLUG lists the refunds",
}
"""The command that lists a resource which was not found, by its noun."""

_MAX_LISTED = 6
"""The number of choices that fit into a line."""
SIMILAR = 0.6
TYPO = 0.85
"""A similarity that only a typing mistake has. It is used where the service may know newer words than this command."""


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

    def __init__(self, path: str, names: Iterable[str]) -> None:
        super().__init__(path)
        self.path = path
        self.names = tuple(dict.fromkeys(names))


def bad_file(path: object, problem: str, *, code: str = "bad_file", hint: str | None = None) -> CliError:
    """Return the error for a file that cannot be used: `PATH cannot be read: No such file or directory.`

    The path `-` is stdin.
    """
    return CliError(f"{'stdin' if str(path) == '-' else path} {problem}.", code=code, hint=hint)


def is_no_args_error(error: Exception) -> bool:
    """Return whether a group was called without a command. The message of the error is the help then."""
    from booking_cli.framework.typer_parts import NoArgsIsHelpError

    return isinstance(error, NoArgsIsHelpError)


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
    suggestion = closest(error.path, error.names)
    message = f"There is no field {error.path!r}." + (f" Did you mean {suggestion!r}?" if suggestion else "")
    parts = [name for name in error.names if "." in name and not name.endswith(".*")]
    example = f"; their parts have a dot: {parts[0]}" if parts else ""
    names = ", ".join(dict.fromkeys(name.removesuffix(".*") for name in error.names if name not in parts))
    return CliError(message, code="unknown_field", hint=f"the fields are {names}{example}")


def _from_usage_error(error: "TyperException") -> CliError:
    command = getattr(getattr(error, "ctx", None), "command_path", "booking")
    message = error.format_message()
    if is_no_args_error(error) or message == "Missing command.":
        message = f"{command} needs a command."
    return CliError(message, hint=f"{command} --help")


def _from_booking_error(error: "BookingError") -> CliError:
    from booking_core.base.errors import NotFound

    reasons = [detail.reason for detail in error.details]
    hint = next((HINTS[reason] for reason in (*reasons, error.code) if reason in HINTS), None)
    if hint is None and isinstance(error, NotFound):
        hint = LISTS.get(error.noun or "")
    exit_code = BY_CODE.get(error.code, ExitCode.FAILED)
    details = [detail.to_json() for detail in error.details]
    return CliError(str(error), exit_code, code=error.code, hint=hint, details=details)


def closest(word: str, choices: Iterable[str], *, cutoff: float = SIMILAR) -> str | None:
    """Return the choice that is spelt most like the word, or the only choice that begins with it."""
    from difflib import get_close_matches

    by_lower = {choice.lower(): choice for choice in choices}
    if matches := get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff):
        return by_lower[matches[0]]
    starting = [choice for lower, choice in by_lower.items() if word and lower.startswith(word.lower())]
    return starting[0] if len(starting) == 1 else None


def invalid_choice(word: str, choices: Sequence[str], *, cutoff: float = SIMILAR) -> str:
    """Return the error message for a word that is none of the choices.

    It suggests the closest choice, and lists all choices when they fit into a line.
    """
    suggestion = closest(word, choices, cutoff=cutoff)
    if suggestion and len(choices) > _MAX_LISTED:
        return f"There is no {word!r}. Did you mean {suggestion!r}?"
    message = f"{word!r} is not one of {', '.join(choices)}."
    return f"{message} Did you mean {suggestion!r}?" if suggestion else message


def retry_hint(key: str) -> str:
    """Return the hint for a change that may have been made, with its idempotency key."""
    return f"run the same command with --idempotency-key {key}: it makes the change once, and shows the result"
