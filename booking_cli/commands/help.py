"""`booking help`: the help of any command or group, and pages about what holds for all of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from booking_cli.framework import context
from booking_cli.framework.arguments import near
from booking_cli.framework.command import command, single
from booking_cli.framework.context import CliError
from booking_cli.framework.exit_codes import MEANINGS

app = single()

OUTPUT = """
table   what a terminal gets: the columns that fit, amounts and times for people
tsv     what a pipe gets: every value in full, separated by tabs, without a header
json    one JSON value: an object as the API shows it, a list as {"data", "has_more", "next_cursor"}
jsonl   an object a line

-o FORMAT chooses one of them, --json is short for -o json. In json and jsonl stdout holds JSON and nothing else, and
an error is one JSON object on stderr: {"error": {"code", "message", "status", "request_id", "hint", "exit_code"}}.

--fields id,totals.total.amount_minor picks fields by the paths that json shows. Of a single thing the picked fields are
one line. A field that is not there ends with exit code 2 and the list of those that are; a command that changes
something refuses it before it begins. On a terminal long names end in an ellipsis and some ids are left out: tsv and
json have all of them.

Notes, questions and progress go to stderr; commands that open the database say there which one, and whose data they
work on. In json and jsonl there are no notes. -q leaves them out, -v tells each request, --debug also shows where an
error happened. --yes answers every question; without a terminal nothing is asked, and what needs an answer ends with
exit code 2. --color always|never wins over NO_COLOR, and that over FORCE_COLOR and CLICOLOR_FORCE. A pipe that is
closed early is no error. Nothing is ever sent anywhere but to the service.
""".strip()

ENVIRONMENT: tuple[tuple[str, str, str], ...] = (
    ("BOOKING_API_KEY", "client", "the API key; wins over the profile's"),
    ("BOOKING_BASE_URL", "client", "the service's root; wins over the profile's"),
    ("BOOKING_PROFILE", "client", "the profile; --profile wins"),
    ("BOOKING_CONFIG_DIR", "client", "where the profiles are kept, instead of the platform's usual place"),
    ("BOOKING_WEBHOOK_SECRET", "client", "what webhooks sign, verify, listen and trigger sign with"),
    ("NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE", "both", "no color; color also in a pipe"),
    ("BOOKING_DATABASE_URL", "operator", "SQLAlchemy URL; sqlite:///booking.db"),
    (
        "BOOKING_SECRET_KEY",
        "operator",
        "32 random bytes that sign and seal; a comma list rotates; needed for PostgreSQL",
    ),
    ("BOOKING_SECRET_KEY_CHECK", "operator", "refuse or warn, when it does not open what the database holds; refuse"),
    ("BOOKING_PUBLIC_URL", "operator", "base of the guests' links; http://127.0.0.1:8000"),
    ("BOOKING_RATE_LIMIT", "operator", "requests/seconds for a key, or off; 600/60"),
    ("BOOKING_RATE_LIMIT_STORE", "operator", "memory://, or redis://… for several processes"),
    ("BOOKING_TRUSTED_PROXIES", "operator", "networks whose X-Forwarded-For names the client, such as 10.0.0.0/8"),
    ("BOOKING_SMTP_URL", "operator", "smtp://user:pass@host:port or smtps://…; none: mails are kept as files"),
    ("BOOKING_MAIL_FROM", "operator", "the sender of mails"),
    ("BOOKING_MAIL_DIR", "operator", "where mails are kept as files"),
    ("BOOKING_STRIPE_API_KEY", "operator", "for refunds; none: staff makes them by hand, see booking refunds"),
    ("BOOKING_STRIPE_BASE_URL", "operator", "another address of the gateway, for tests"),
    ("BOOKING_WEBHOOK_WAITS", "operator", "seconds after the failed attempts 1 to 5; 60,300,1800,7200,28800"),
    ("BOOKING_WEBHOOK_DEADLINE", "operator", "seconds for one attempt; 10"),
    ("BOOKING_WEBHOOK_DISABLE_AFTER", "operator", "seconds without a success; 259200"),
    ("BOOKING_WEBHOOK_ALLOW_HTTP", "operator", "development: endpoints without TLS"),
    ("BOOKING_WEBHOOK_ALLOW_CIDRS", "operator", "development: private ranges that may be called"),
    ("BOOKING_WEBHOOK_CA_FILE", "operator", "one more CA bundle"),
    ("BOOKING_EVENT_RETENTION_DAYS", "operator", "90"),
    ("BOOKING_DELIVERY_RETENTION_DAYS", "operator", "30; also for mails and holds that are over"),
    ("BOOKING_IDEMPOTENCY_RETENTION_DAYS", "operator", "30"),
    ("BOOKING_PENDING_MINUTES", "operator", "how long an unpaid booking keeps its seats; 30"),
    ("BOOKING_LOG_FORMAT", "operator", "console or json; console on a terminal"),
)


TOPICS: Mapping[str, str] = {
    "exit-codes": "What the exit code of a command means.",
    "environment": "The environment variables that commands read.",
    "output": "What is written where, in which format.",
}
"""The pages that are no command's own."""


@command(
    app,
    "help",
    "booking help webhooks",
    "booking help bookings create",
    "booking help exit-codes",
    "booking help output",
)
def help_(
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC...]",
            help=f"A command, a group of commands, or one of {', '.join(TOPICS)}.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the help of a command or a group, or a page about all of them.

    Without a topic it is the list of commands, as `booking --help` shows it.
    """
    words = topic or []
    if words == ["exit-codes"]:
        _table(ctx, [{"exit_code": int(code), "meaning": meaning} for code, meaning in MEANINGS.items()])
    elif words == ["environment"]:
        _table(ctx, [{"variable": name, "for": mode, "meaning": meaning} for name, mode, meaning in ENVIRONMENT])
    else:
        _text(ctx, OUTPUT if words == ["output"] else _of_command(ctx, words))


def _of_command(ctx: typer.Context, words: Sequence[str]) -> str:
    """Return the help of the command that the words lead to.

    Raises:
        CliError: they lead to none; the near one is named.
    """
    place: Any = ctx.find_root()
    command: Any = place.command
    for word in words:
        known = command.list_commands(place) if hasattr(command, "list_commands") else []
        if word not in known:
            raise CliError(_unknown(word, place.command_path, known), hint="booking help lists the topics")
        command = command.get_command(place, word)
        place = command.context_class(command, parent=place, info_name=word)
    return str(command.get_help(place)).rstrip()


def _unknown(word: str, path: str, known: Sequence[str]) -> str:
    choices = (*known, *TOPICS) if path == "booking" else tuple(known)
    meant = near(word, choices)
    told = f"There is no help about {' '.join((path, word)).removeprefix('booking ')!r}."
    return f"{told} Did you mean {meant!r}?" if meant else told


def _text(ctx: typer.Context, text: str) -> None:
    render = context.of(ctx).render
    if render.is_json:
        render.one({"text": text})
    else:
        render.text(text)


def _table(ctx: typer.Context, rows: list[dict[str, Any]]) -> None:
    context.of(ctx).render.many(rows, tuple(rows[0]), prose=("meaning",))
