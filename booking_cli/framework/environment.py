"""The environment variables of the command, and those that look like one and are none."""

from collections.abc import Iterator, Mapping

from booking_cli.framework.errors import closest

VARIABLES: tuple[tuple[str, str, str], ...] = (
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
    (
        "BOOKING_TRUSTED_PROXIES",
        "operator",
        "networks whose X-Forwarded-For is trusted, such as 10.0.0.0/8; none: all clients of a proxy count as one",
    ),
    (
        "BOOKING_SMTP_URL",
        "operator",
        "smtp://user:pass@host:port or smtps://…; mails are written to files, and on PostgreSQL wait for"
        " BOOKING_MAIL_DIR",
    ),
    ("BOOKING_MAIL_FROM", "operator", "the sender of mails, an address or Name <a@b>; no-reply@ the public host"),
    ("BOOKING_MAIL_DIR", "operator", "the folder for mails as files .eml; booking.db.mail beside an SQLite database"),
    ("BOOKING_STRIPE_API_KEY", "operator", "for card refunds; if not set, staff refunds by hand, see booking refunds"),
    ("BOOKING_STRIPE_BASE_URL", "operator", "another base URL of Stripe, for tests"),
    ("BOOKING_WEBHOOK_WAITS", "operator", "seconds after failed attempts 1 to 5; 60,300,1800,7200,28800"),
    ("BOOKING_WEBHOOK_DEADLINE", "operator", "timeout of an attempt in seconds; 10"),
    ("BOOKING_WEBHOOK_DISABLE_AFTER", "operator", "seconds without a success until an endpoint is disabled; 259200"),
    ("BOOKING_WEBHOOK_ALLOW_HTTP", "operator", "for development: allow endpoints without TLS"),
    ("BOOKING_WEBHOOK_ALLOW_CIDRS", "operator", "for development: private networks that may be called"),
    ("BOOKING_WEBHOOK_CA_FILE", "operator", "an additional CA bundle"),
    ("BOOKING_EVENT_RETENTION_DAYS", "operator", "days that events are kept; 90"),
    (
        "BOOKING_DELIVERY_RETENTION_DAYS",
        "operator",
        "days that the log of deliveries, mails and ended holds are kept; 30",
    ),
    ("BOOKING_IDEMPOTENCY_RETENTION_DAYS", "operator", "days that stored answers are kept; 30"),
    (
        "BOOKING_GUEST_RETENTION_DAYS",
        "operator",
        "days after the last booking ended until a guest is anonymized, or off; off",
    ),
    ("BOOKING_PENDING_MINUTES", "operator", "how long an unpaid booking holds its seats; 30"),
    ("BOOKING_LOG_FORMAT", "operator", "console or json; console on a terminal"),
    ("BOOKING_REQUEST_LOG", "operator", "share of the requests with a line in the log, or off; 0"),
    ("BOOKING_METRICS_ADDRESS", "operator", "HOST:PORT of booking serve for /metrics, /healthz and /readyz"),
    ("BOOKING_METRICS_TOKEN", "operator", "bearer token of /metrics; with it they are served beside the API too"),
    (
        "BOOKING_TRACING",
        "operator",
        "send traces by OpenTelemetry, with booking-server[otel] and the OTEL_* variables; off",
    ),
    ("BOOKING_SHUTDOWN_DELAY", "operator", "seconds from SIGTERM, when /readyz begins to fail, to the end; 0"),
)
"""The name, the half that reads it, and the meaning with the default."""

_PREFIX = "BOOKING_"


def misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each `BOOKING_*` variable that nothing reads. An empty variable counts as absent."""
    names = [name.removeprefix(_PREFIX) for name, _, _ in VARIABLES if name.startswith(_PREFIX)]
    for variable in sorted(environment):
        name = variable.removeprefix(_PREFIX)
        if variable.startswith(_PREFIX) and environment[variable] and name not in names:
            near = closest(name, names)
            yield f"{variable} is not a setting" + (f"; did you mean {_PREFIX}{near}?" if near else "")
