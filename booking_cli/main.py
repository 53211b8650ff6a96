"""The entry point of `booking`: runs a command, and reports an error as one line with a hint and an exit code."""

import contextlib
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.framework.context import Cli, pause_collections, resume_collections
from booking_cli.framework.errors import is_no_args_error, to_cli_error
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.global_options import Options
from booking_cli.framework.output import Renderer

HELP = """Sell seats, and run the service that sells them.

Commands call the API with the key of `booking login` or BOOKING_API_KEY. Operator commands, and others with --org, open
the database in BOOKING_DATABASE_URL.
"""
MORE = """
More:
  booking commands       every command on one page
  booking help bookings  the commands, options and examples of a group
  booking help TOPIC     options, output, event-types, exit-codes, environment
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    cli = Cli()
    if argv is None:  # this process runs nothing else
        pause_collections()
    try:
        code = _run(cli, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = ExitCode.OK
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last handler: prints a line instead of a traceback
        code = _report(error, cli, arguments)
    resume_collections()
    _discard_unwritable_output()
    if argv is None and cli.is_service:
        _end_process(code)
    return code


def _run(cli: Cli, arguments: list[str]) -> int:
    from typer import Exit

    from booking_cli.framework import typer_parts
    from booking_cli.framework.command import RootGroup

    root = RootGroup(MODULES, SECTIONS, help=HELP, epilog=MORE, no_args_is_help=True, rich_markup_mode=None)
    if instruction := os.environ.get(typer_parts.COMPLETION_VARIABLE):
        return typer_parts.complete(root, cli, instruction)
    try:
        with root.make_context("booking", arguments, obj=cli) as ctx:
            result = root.invoke(ctx)
    except Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else ExitCode.OK


def _end_process(code: int) -> NoReturn:
    """End this process without finalizing the interpreter, after its log is written.

    Threads of libraries outlive the event loop, such as uvloop's threads that resolve names. Finalizing frees objects
    that such a thread may still use: the process would crash although its work is done.
    """
    import logging

    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        sys.stderr.flush()
    os._exit(code)


def _report(error: Exception, cli: Cli, arguments: Sequence[str]) -> int:
    if cli.options.debug or "--debug" in arguments:
        import traceback

        traceback.print_exception(error)
    reported, render = to_cli_error(error), _error_renderer(cli, arguments)
    with contextlib.suppress(OSError):  # stderr may be closed
        if is_no_args_error(error) and not render.is_json:
            sys.stderr.write(f"{error}\n")
        else:
            render.error(reported)
    return reported.exit_code


def _error_renderer(cli: Cli, arguments: Sequence[str]) -> Renderer:
    """Return the renderer for an error. The options may be unread, so the arguments are searched for a json mode."""
    if not (cli.options.output or cli.options.json):
        words = [*arguments, ""]
        formats = [value for word, value in pairwise(words) if word in ("-o", "--output")]
        formats += [
            word.removeprefix("--output=").removeprefix("-o")
            for word in words
            if word[:2] == "-o" or word[:9] == "--output="
        ]
        if "--json" in words or any(name in ("json", "jsonl") for name in formats):
            return Renderer(Options(output="json"))
    return cli.render


def _prepare_streams() -> None:
    """Make stdin, stdout and stderr usable, since a new key that cannot be written is lost.

    A closed stream is opened on the null device. Characters that stdout cannot encode are written as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_unwritable_output() -> None:
    """Point stdout and stderr at the null device when they cannot be written. Otherwise the interpreter would print an
    error at exit, and end with its own exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
