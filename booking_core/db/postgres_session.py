"""The settings of a session, such as its timeouts: for the connection, or behind a pooler for each transaction.

A connection asks for its settings when it is opened, by libpq's `options`, and no statement sets one. Between it and
the server there may be a pooler, which refuses options or drops them, and gives each transaction whichever session is
free: what one client sets there, another one inherits. So the connection verifies what it got. Unless it is the
session's only client and has its settings, each transaction sets them for itself (`decisions/0041`).
"""

import secrets
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b

import psycopg
from psycopg import pq

LOCK_TIMEOUT_MS = 3_000
STATEMENT_TIMEOUT_MS = 9_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 2_000
"""Milliseconds between two statements of a transaction after which the server ends it. They are few milliseconds apart,
unless the process is frozen. Shorter than `LOCK_TIMEOUT_MS`: a request that waits for a lock of a frozen process gets
it, instead of being refused (`decisions/0030`)."""
CLIENT_CHECK_MS = 500
"""Milliseconds between the server's checks that the client still lives: a transaction that waits for a lock must not
outlive its process, nor must the idempotency key that it holds (decision I5)."""

_MARK = "booking.session"
"""A setting of no meaning with a random value: the session that shows it was begun by this connection."""
_MILLISECONDS = "(EXTRACT(epoch FROM current_setting('{}')::interval) * 1000)::integer"
VERIFY = (
    f"SELECT pg_backend_pid(), current_setting('{_MARK}', true) = $1,"
    f" {_MILLISECONDS.format('statement_timeout')}, {_MILLISECONDS.format('lock_timeout')}"
).encode()
"""The statement that shows a session: its process, if it has the token, and its timeouts in milliseconds."""
_RESET = ("synchronous_commit", "search_path")
"""Settings that have the server's or the role's value again in each transaction behind a pooler, whatever another
client of the session has left: without the first one, what is answered could be lost."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings in which connections differ."""

    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    schema: str | None = None
    """The schema that holds the tables, for a database with several of them; None: the role's."""

    @property
    def _values(self) -> dict[str, str]:
        return ({"search_path": self.schema} if self.schema else {}) | {
            "statement_timeout": str(self.statement_timeout_ms),
            "lock_timeout": str(self.lock_timeout_ms),
            "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_TIMEOUT_MS),
            "client_connection_check_interval": str(CLIENT_CHECK_MS),
            "jit": "off",
            "random_page_cost": "1.1",
        }

    def without_statement_timeout(self) -> "SessionSettings":
        return replace(self, statement_timeout_ms=0)

    def are_shown(self, has_token: bool | None, statement_timeout_ms: int, lock_timeout_ms: int) -> bool:
        """Return whether these are the settings that `VERIFY` has shown."""
        return bool(has_token) and (statement_timeout_ms, lock_timeout_ms) == (
            self.statement_timeout_ms,
            self.lock_timeout_ms,
        )

    def options(self, token: str, before: str = "") -> str:
        """Return libpq's `options`, after those of the URL."""
        values = {**self._values, "TimeZone": "UTC", _MARK: token}
        return " ".join([before, *(f"-c {name}={value}" for name, value in values.items())]).strip()

    def setting_statements(self) -> str:
        """Return the statements that set them for a session, for tests and benchmarks with a client of their own."""
        return "; ".join(f"SET {name} = '{value}'" for name, value in {**self._values, "TimeZone": "UTC"}.items())

    def statement(self) -> bytes:
        """Return the statement that sets them until the transaction ends."""
        return _local(self)


@lru_cache
def _local(settings: SessionSettings) -> bytes:
    values: dict[str, str | None] = {**dict.fromkeys(_RESET), **settings._values}
    texts = {name: "NULL" if value is None else f"'{value}'" for name, value in values.items()}
    calls = [f"set_config('{name}', {text}, true)" for name, text in texts.items()]
    return f"SELECT {', '.join(calls)}".encode()


def new_token() -> str:
    """Return a value that no other session has."""
    return secrets.token_hex(8)


def options_before(parameters: dict[str, str]) -> str:
    """Return the options of the URL, or of libpq's environment."""
    if "options" in parameters:
        return parameters["options"]
    default = next((each.val for each in pq.Conninfo.get_defaults() if each.keyword == b"options"), None)
    return (default or b"").decode()


def is_refusal_of_options(error: psycopg.Error) -> bool:
    """Return whether a pooler refused the connection for its options: a server would name one of them."""
    return "unsupported startup parameter" in str(error)


@lru_cache(maxsize=4096)
def statement_name(text: str) -> bytes:
    """Return the name of a prepared statement: through any pooler one name is one text."""
    return b"booking_" + blake2b(text.encode(), digest_size=12).hexdigest().encode()
