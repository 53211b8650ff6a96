"""The entry point: finds the command, and turns whatever goes wrong into a line, a hint and an exit code."""

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from booking_cli.framework import gc_tuning
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import BY_CODE, ExitCode
from booking_cli.framework.output import Renderer, UnknownField

if TYPE_CHECKING:
    from typer import TyperException

    from booking_core.errors import BookingError

HELP = """Booking Service at a shell.

Operator commands open the database that BOOKING_DATABASE_URL names. Client commands ask the service over HTTP, with
the API key of `booking login` or BOOKING_API_KEY. Some of `booking bookings` do both: --org chooses the database.
"""

MODULES: Mapping[str, tuple[str, str]] = {
    "login": ("booking_cli.commands.login", "Store an API key for the commands that follow."),
    "logout": ("booking_cli.commands.logout", "Remove a stored API key."),
    "whoami": ("booking_cli.commands.whoami", "Show the organization and the scopes of the key in use."),
    "config": ("booking_cli.commands.config", "Show and change profiles and client settings."),
    "experiences": ("booking_cli.commands.experiences", "List and get experiences."),
    "availability": ("booking_cli.commands.availability", "List departures and the seats that are left."),
    "bookings": ("booking_cli.commands.bookings", "List, get, create, cancel, confirm and move bookings."),
    "customers": ("booking_cli.commands.customers", "List, get, create and update customers."),
    "gift-cards": ("booking_cli.commands.gift_cards", "List, issue and deactivate gift cards."),
    "events": ("booking_cli.commands.events", "List events, and follow them as they come."),
    "webhooks": ("booking_cli.commands.webhooks", "Manage endpoints and deliveries, and test a receiver."),
    "api": ("booking_cli.commands.api", "Send any request to the API."),
    "serve": ("booking_cli.commands.serve", "Serve the API."),
    "worker": ("booking_cli.commands.worker", "Run the delivery worker and periodic jobs."),
    "demo": ("booking_cli.commands.demo", "Serve two demo organizations with real catalogues."),
    "db": ("booking_cli.commands.db", "Create, upgrade and check the database."),
    "orgs": ("booking_cli.commands.orgs", "Create organizations and change their settings."),
    "keys": ("booking_cli.commands.keys", "Create, list, rotate, expire and revoke API keys."),
    "catalog": ("booking_cli.commands.catalog", "Import, export and validate catalogue files."),
    "departures": ("booking_cli.commands.departures", "List, show, close, reopen and cancel departures."),
    "storefront": ("booking_cli.commands.storefront", "Hold seats, check out and pay, as a guest does."),
    "payments": ("booking_cli.commands.payments", "Record payments by hand, and list what is due."),
    "refunds": ("booking_cli.commands.refunds", "List, retry and settle refunds."),
    "mails": ("booking_cli.commands.mails", "List mails, and retry those that failed."),
    "secrets": ("booking_cli.commands.secrets", "Show what each secret key seals, and reseal it."),
    "doctor": ("booking_cli.commands.doctor", "Check the integrity of the database."),
    "completion": ("booking_cli.commands.completion", "Print a shell completion script."),
    "commands": ("booking_cli.commands.command_list", "List every command on one page."),
    "help": ("booking_cli.commands.help", "Show help about a command or a topic."),
}
"""Each command with its module, which is imported when the command is used, and its line in the list of commands."""

_CLIENT = (
    *("login", "logout", "whoami", "config", "experiences", "availability", "bookings", "customers", "gift-cards"),
    *("events", "webhooks", "api"),
)
_ABOUT = ("completion", "commands", "help")
SECTIONS: Mapping[str, Sequence[str]] = {
    "Client commands": _CLIENT,
    "Operator commands": [name for name in MODULES if name not in (*_CLIENT, *_ABOUT)],
    "About the command": _ABOUT,
}
"""The order in which the help shows them."""

HINTS: Mapping[str, str] = {
    "slug_taken": "booking orgs list",
    "key_limit_reached": "booking keys list --org SLUG, then booking keys revoke ID",
    "refund_under_way": "booking refunds show ID",
    "refund_exists": "booking refunds show BOOKING",
    "paid_by_card": "booking storefront pay BOOKING --payment-intent PI",
    "overpaid": "booking payments list BOOKING shows what was recorded",
    "mail_too_old": "--anyway writes it all the same",
    "mail_queued": "is a worker running? booking doctor tells",
    "seats_sold": "--force sets it all the same: nobody loses a seat, and none is for sale",
    "service_unavailable": "is the database that BOOKING_DATABASE_URL names running?",
}
"""What to do next, by error code or reason."""


_HELP_WANTED = "NoArgsIsHelpError"
"""A group without a command; its message is the help. The class has no public name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _ready_streams()
    cli = Cli()
    if argv is None:  # a process of its own, in which nothing else makes garbage
        gc_tuning.begin()
    try:
        code = _run(cli, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = ExitCode.OK
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last handler: an operator gets a line, not a traceback
        code = _report(error, cli, arguments)
    gc_tuning.end()
    _settle_stdout()
    return code


def _run(cli: Cli, arguments: list[str]) -> int:
    from typer import Exit

    from booking_cli.framework.command import Root

    root = Root(MODULES, SECTIONS, help=HELP, no_args_is_help=True, rich_markup_mode=None)
    if asked := os.environ.get("BOOKING_COMPLETE"):
        from booking_cli.commands import completion

        completion.answer(root, arguments, described=asked == "described")
        return ExitCode.OK
    try:
        with root.make_context("booking", arguments, obj=cli) as ctx:
            outcome = root.invoke(ctx)
    except Exit as end:
        return end.exit_code
    return outcome if isinstance(outcome, int) else ExitCode.OK


def _report(error: Exception, cli: Cli, arguments: Sequence[str]) -> int:
    if cli.options.debug or "--debug" in arguments:
        import traceback

        traceback.print_exception(error)
    failure, render = _failure(error), _renderer(cli, arguments)
    with contextlib.suppress(OSError):  # nobody reads stderr any more
        if type(error).__name__ == _HELP_WANTED and not render.is_json:
            sys.stderr.write(f"{error}\n")
        else:
            render.error(
                str(failure),
                code=failure.code,
                exit_code=failure.exit_code,
                hint=failure.hint,
                details=failure.details,
                status=failure.status,
                request_id=failure.request_id,
            )
    return failure.exit_code


def _failure(error: Exception) -> CliError:
    """What to tell of an error."""
    import typer

    if isinstance(error, CliError):
        return error
    if isinstance(error, UnknownField):
        return _unknown_field(error)
    if isinstance(error, typer.TyperException):
        return _misused(error)
    from booking_core.errors import BookingError

    if isinstance(error, BookingError):
        return _refused(error)
    message = f"{type(error).__name__}: {error}"
    return CliError(message, ExitCode.FAILED, code="internal_error", hint="--debug shows where it happened")


def _unknown_field(error: UnknownField) -> CliError:
    from booking_cli.framework.arguments import near

    meant = near(error.path, error.known)
    message = f"There is no field {error.path!r}." + (f" Did you mean {meant!r}?" if meant else "")
    return CliError(message, code="unknown_field", hint=f"the fields are {', '.join(error.known)}")


def _misused(error: "TyperException") -> CliError:
    command = getattr(getattr(error, "ctx", None), "command_path", "booking")
    message = error.format_message()
    if type(error).__name__ == _HELP_WANTED or message == "Missing command.":
        message = f"{command} needs a command."
    return CliError(message, hint=f"{command} --help")


def _refused(error: "BookingError") -> CliError:
    reasons = [detail.reason for detail in error.details]
    hint = next((HINTS[each] for each in (*reasons, error.code) if each in HINTS), None)
    if hint is None and error.code == "not_found":
        from booking_cli.framework import not_found_hints

        hint = not_found_hints.hint_of_sentence(str(error))
    exit_code = BY_CODE.get(error.code, ExitCode.FAILED)
    return CliError(
        str(error), exit_code, code=error.code, hint=hint, details=[detail.to_json() for detail in error.details]
    )


def _renderer(cli: Cli, arguments: Sequence[str]) -> Renderer:
    """The renderer of the options; when they could not be read to the end, of what they seem to ask for."""
    if not (cli.options.output or cli.options.json):
        words = [*arguments, ""]
        asked = [after for word, after in pairwise(words) if word in ("-o", "--output")]
        asked += [
            word.removeprefix("--output=").removeprefix("-o")
            for word in words
            if word[:2] == "-o" or word[:9] == "--output="
        ]
        if "--json" in words or any(each in ("json", "jsonl") for each in asked):
            return Renderer(output="json")
    return cli.render


def _ready_streams() -> None:
    """Sees that whatever is written can be. It may be a key that was just made, and is lost when the writing fails.

    A stream that was closed from the start is one that leads nowhere; a letter that the console does not have is
    written as its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _settle_stdout() -> None:
    """Points stdout at nothing when its reader has gone, or its disk is full: the interpreter would complain while it
    ends, and with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
