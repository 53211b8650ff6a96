"""`booking help`, `booking commands` and `booking completion`: everything about the command itself."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from booking_cli.commands.registry import MODULES
from booking_cli.framework import openapi_parts, typer_parts
from booking_cli.framework.arguments import offers, one_of
from booking_cli.framework.command import command, command_app, global_options, leaves
from booking_cli.framework.context import Cli
from booking_cli.framework.environment import VARIABLES
from booking_cli.framework.errors import CliError, closest
from booking_cli.framework.exit_codes import MEANINGS
from booking_cli.framework.options import argument
from booking_cli.framework.tables import Columns

app = command_app()

OUTPUT = """
table   the default on a terminal: the columns that fit, amounts and times in a readable form
tsv     the default in a pipe: tab-separated full values without a header
json    one JSON value: an object of the API, or a list as {"data", "has_more", "next_cursor"}
jsonl   one JSON object per line

Choose a format with -o FORMAT; --json is the same as -o json. In json and jsonl, stdout contains only JSON, and an
error is one JSON object on stderr: {"error": {"code", "message", "status", "request_id", "hint", "exit_code"}}.

--fields id,totals.total.amount_minor selects fields by their paths in json. The selected fields of a single object are
written on one line. An unknown field is an error (exit code 2) that lists the known ones; a command that changes
something checks the fields first. In a table, long names end in an ellipsis and some columns are left out; tsv and json
contain all values.

Notes, questions and progress go to stderr. Operator commands note the database and the organization. In json and jsonl
there are no notes. -q suppresses notes, -v prints each request, --debug prints tracebacks. --yes answers every
question. Without a terminal there are no questions, and a command that needs an answer ends with exit code 2. --color
always|never overrides NO_COLOR, which overrides FORCE_COLOR and CLICOLOR_FORCE. Closing the pipe early is not an error.
Data is sent to the service only: there is no telemetry and no update check.
""".strip()

TOPICS = ("exit-codes", "environment", "event-types", "options", "output")
"""The help topics."""
SHELLS = ("bash", "zsh", "fish", "powershell")


@offers(*TOPICS, *MODULES)
def _topic(text: str) -> str:
    return text


@command(app, "help")
def help_(
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None,
        argument(
            "[TOPIC...]",
            f"A command, a group of commands, or one of {', '.join(TOPICS)}.",
            parser=_topic,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the help of a command or a group, or a help topic.

    Without a topic the list of commands is shown, as by `booking --help`.

    Examples:
        booking help webhooks
        booking help bookings create
        booking help exit-codes
        booking help output
    """
    words = topic or []
    if words == ["exit-codes"]:
        _write_table(ctx.obj, [{"exit_code": int(code), "meaning": meaning} for code, meaning in MEANINGS.items()])
    elif words == ["event-types"]:
        rows = openapi_parts.load()["summaries"].items()
        _write_table(ctx.obj, [{"event_type": kind, "meaning": summary} for kind, summary in rows])
    elif words == ["options"]:
        _write_table(ctx.obj, [{"option": names, "meaning": meaning} for names, meaning in global_options(ctx)])
    elif words == ["environment"]:
        _write_table(
            ctx.obj, [{"variable": name, "for": mode, "meaning": meaning} for name, mode, meaning in VARIABLES]
        )
    else:
        _write_text(ctx.obj, OUTPUT if words == ["output"] else _command_help(ctx, words))


def _command_help(ctx: typer.Context, words: Sequence[str]) -> str:
    """Return the help of a command.

    Raises:
        CliError: there is no such command; the closest name is suggested.
    """
    context: Any = ctx.find_root()
    command: Any = context.command
    for word in words:
        names = command.list_commands(context) if hasattr(command, "list_commands") else []
        if word not in names:
            raise CliError(_unknown(word, context.command_path, names), hint="list the commands with booking help")
        command = command.get_command(context, word)
        context = command.context_class(command, parent=context, info_name=word)
    return str(command.get_help(context)).rstrip()


def _unknown(word: str, path: str, names: Sequence[str]) -> str:
    choices = (*names, *TOPICS) if path == "booking" else tuple(names)
    suggestion = closest(word, choices)
    message = f"There is no help about {' '.join((path, word)).removeprefix('booking ')!r}."
    return f"{message} Did you mean {suggestion!r}?" if suggestion else message


def _write_text(cli: Cli, text: str) -> None:
    if cli.render.is_json:
        cli.render.one({"text": text})
    else:
        cli.render.text(text)


def _write_table(cli: Cli, rows: list[dict[str, Any]]) -> None:
    cli.render.many(rows, Columns(tuple(rows[0]), wrapped=("meaning",)))


@command(app, "commands")
def commands(ctx: typer.Context) -> None:
    """List every command with its summary.

    Examples:
        booking commands
        booking commands -o json --fields command
    """
    root = ctx.find_root()
    rows: list[dict[str, Any]] = [
        {
            "command": " ".join(("booking", *leaf.words)),
            "summary": leaf.summary,
            "examples": list(leaf.command.examples),
        }
        for leaf in leaves(root.command, root)
    ]
    ctx.obj.render.many(rows, Columns(("command", "summary"), wrapped=("summary",)))


@command(app, "completion")
def completion(
    cli: Cli, shell: Annotated[str, argument("|".join(SHELLS), "The shell.", parser=one_of(*SHELLS))]
) -> None:
    """Print a script that completes commands, options and values in a shell.

    Examples:
        booking completion bash > ~/.local/share/bash-completion/completions/booking
        source <(booking completion bash)
        booking completion fish > ~/.config/fish/completions/booking.fish
    """
    script = typer_parts.script(shell)
    if cli.render.is_json:
        cli.render.one({"shell": shell, "script": script + "\n"})
    else:
        cli.render.text(script)
