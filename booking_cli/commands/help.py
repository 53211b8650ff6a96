"""`booking help`, `booking commands` and `booking completion`: everything about the command itself."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from booking_cli.commands.registry import MODULES
from booking_cli.framework import openapi_parts
from booking_cli.framework.arguments import offers, one_of
from booking_cli.framework.command import COMPLETION_VARIABLE, command, command_app, global_options, leaves
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, closest
from booking_cli.framework.exit_codes import MEANINGS
from booking_cli.framework.options import argument

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

ENVIRONMENT: tuple[tuple[str, str, str], ...] = (
    ("BOOKING_API_KEY", "client", "the API key; overrides the profile"),
    ("BOOKING_BASE_URL", "client", "the base URL of the service; overrides the profile"),
    ("BOOKING_PROFILE", "client", "the profile; --profile overrides it"),
    ("BOOKING_LOG", "client", "debug or info: the SDK writes its log to stderr"),
    ("BOOKING_CONFIG_DIR", "client", "the folder of the configuration, instead of the platform's"),
    ("BOOKING_WEBHOOK_SECRET", "client", "the secret for webhooks sign, verify, listen and trigger"),
    ("NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE", "both", "no colors; colors also in a pipe"),
    ("BOOKING_DATABASE_URL", "operator", "SQLAlchemy's or libpq's URL, also with several hosts; sqlite:///booking.db"),
    ("BOOKING_DATABASE_DIRECT_URL", "operator", "the same database without a pooler in transaction mode, to listen on"),
    ("BOOKING_CELLS", "operator", "further cells, as NAME or NAME=URL with spaces between; see booking cells"),
    ("BOOKING_CELL", "operator", "the one cell that this process works on; all of them"),
    (
        "BOOKING_SECRET_KEY",
        "operator",
        "32 random bytes to sign and seal with; a comma list while rotating; required for PostgreSQL",
    ),
    (
        "BOOKING_SECRET_KEY_CHECK",
        "operator",
        "refuse or warn, if the key does not open the values in the database; refuse",
    ),
    ("BOOKING_PUBLIC_URL", "operator", "base URL of guests' links; http://127.0.0.1:8000"),
    ("BOOKING_RATE_LIMIT", "operator", "requests/seconds of each key, or off; 600/60"),
    ("BOOKING_RATE_LIMIT_STORE", "operator", "memory://, or redis://… for several processes"),
    ("BOOKING_TRUSTED_PROXIES", "operator", "networks whose X-Forwarded-For is trusted, such as 10.0.0.0/8"),
    ("BOOKING_SMTP_URL", "operator", "smtp://user:pass@host:port or smtps://…; if not set, mails are written to files"),
    ("BOOKING_MAIL_FROM", "operator", "the sender of mails"),
    ("BOOKING_MAIL_DIR", "operator", "the folder for mails as files"),
    ("BOOKING_STRIPE_API_KEY", "operator", "for card refunds; if not set, staff refunds by hand, see booking refunds"),
    ("BOOKING_STRIPE_BASE_URL", "operator", "another base URL of Stripe, for tests"),
    ("BOOKING_WEBHOOK_WAITS", "operator", "seconds after failed attempts 1 to 5; 60,300,1800,7200,28800"),
    ("BOOKING_WEBHOOK_DEADLINE", "operator", "timeout of an attempt in seconds; 10"),
    ("BOOKING_WEBHOOK_DISABLE_AFTER", "operator", "seconds without a success; 259200"),
    ("BOOKING_WEBHOOK_ALLOW_HTTP", "operator", "for development: allow endpoints without TLS"),
    ("BOOKING_WEBHOOK_ALLOW_CIDRS", "operator", "for development: private networks that may be called"),
    ("BOOKING_WEBHOOK_CA_FILE", "operator", "an additional CA bundle"),
    ("BOOKING_EVENT_RETENTION_DAYS", "operator", "90"),
    ("BOOKING_DELIVERY_RETENTION_DAYS", "operator", "30; also for mails and ended holds"),
    ("BOOKING_IDEMPOTENCY_RETENTION_DAYS", "operator", "30"),
    ("BOOKING_GUEST_RETENTION_DAYS", "operator", "days after the last booking ended, or off; off"),
    ("BOOKING_PENDING_MINUTES", "operator", "how long an unpaid booking holds its seats; 30"),
    ("BOOKING_LOG_FORMAT", "operator", "console or json; console on a terminal"),
    ("BOOKING_REQUEST_LOG", "operator", "share of the requests with a line in the log, or off; 0"),
    ("BOOKING_METRICS_ADDRESS", "operator", "HOST:PORT of booking serve for /metrics, /healthz and /readyz"),
    ("BOOKING_METRICS_TOKEN", "operator", "bearer token of /metrics; with it they are served beside the API too"),
    ("BOOKING_TRACING", "operator", "send traces by OpenTelemetry, configured by its OTEL_* variables; off"),
    ("BOOKING_SHUTDOWN_DELAY", "operator", "seconds from SIGTERM, when /readyz begins to fail, to the end; 0"),
)


TOPICS: Mapping[str, str] = {
    "exit-codes": "The exit codes of commands.",
    "environment": "The environment variables and their defaults.",
    "event-types": "The types of events, for webhooks and events.",
    "options": "The options of every command.",
    "output": "Output formats, fields, notes and errors.",
}
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
            ctx.obj, [{"variable": name, "for": mode, "meaning": meaning} for name, mode, meaning in ENVIRONMENT]
        )
    else:
        _write_text(ctx.obj, OUTPUT if words == ["output"] else _command_help(ctx, words))


def _command_help(ctx: typer.Context, words: Sequence[str]) -> str:
    """Return the help of a command.

    Raises:
        CliError: there is no such command; the closest name is suggested.
    """
    found: Any = ctx.find_root()
    command: Any = found.command
    for word in words:
        known = command.list_commands(found) if hasattr(command, "list_commands") else []
        if word not in known:
            raise CliError(_unknown(word, found.command_path, known), hint="list the commands with booking help")
        command = command.get_command(found, word)
        found = command.context_class(command, parent=found, info_name=word)
    return str(command.get_help(found)).rstrip()


def _unknown(word: str, path: str, known: Sequence[str]) -> str:
    choices = (*known, *TOPICS) if path == "booking" else tuple(known)
    suggestion = closest(word, choices)
    message = f"There is no help about {' '.join((path, word)).removeprefix('booking ')!r}."
    return f"{message} Did you mean {suggestion!r}?" if suggestion else message


def _write_text(cli: Cli, text: str) -> None:
    if cli.render.is_json:
        cli.render.one({"text": text})
    else:
        cli.render.text(text)


def _write_table(cli: Cli, rows: list[dict[str, Any]]) -> None:
    cli.render.many(rows, tuple(rows[0]), wrapped=("meaning",))


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
    ctx.obj.render.many(rows, ("command", "summary"), wrapped=("summary",))


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
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="booking", complete_var=COMPLETION_VARIABLE, shell=shell)
    if cli.render.is_json:
        cli.render.one({"shell": shell, "script": script + "\n"})
    else:
        cli.render.text(script)
