"""`booking help`: what holds for every command, as pages."""

from typing import Any

import typer

from booking_cli import context
from booking_cli.command import command, group
from booking_cli.exit_codes import MEANINGS

app = group("What holds for every command: exit codes, environment, output.")

OUTPUT = """
table   what a terminal gets: the columns that fit, amounts and times for people
tsv     what a pipe gets: every value in full, separated by tabs, without a header
json    one JSON value: an object as the API shows it, a list as {"data", "has_more", "next_cursor"}
jsonl   an object a line

-o FORMAT chooses one of them, --json is short for -o json. In json and jsonl stdout holds JSON and nothing else, and
an error is one JSON object on stderr: {"error": {"code", "message", "status", "request_id", "hint", "exit_code"}}.

--fields id,totals.total.amount_minor picks fields by the paths that json shows. Of a single thing the picked fields are
one line.

Notes, questions and progress go to stderr. -q leaves the notes out, -v tells each request, --debug also shows where an
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


@command(app, "exit-codes", "booking help exit-codes")
def exit_codes(ctx: typer.Context) -> None:
    """Lists the exit codes. None of them is ever given another meaning."""
    _table(ctx, [{"exit_code": int(code), "meaning": meaning} for code, meaning in MEANINGS.items()])


@command(app, "environment", "booking help environment")
def environment(ctx: typer.Context) -> None:
    """Lists the environment variables that commands read."""
    _table(ctx, [{"variable": name, "for": mode, "meaning": meaning} for name, mode, meaning in ENVIRONMENT])


@command(app, "output", "booking help output")
def output(ctx: typer.Context) -> None:
    """Tells what goes where, in which form."""
    cli = context.of(ctx)
    if cli.render.is_json:
        cli.render.one({"text": OUTPUT})
    else:
        cli.render.text(OUTPUT)


def _table(ctx: typer.Context, rows: list[dict[str, Any]]) -> None:
    context.of(ctx).render.many(rows, tuple(rows[0]), prose=("meaning",))
