"""PostgreSQL through psycopg's own binding of libpq: READ COMMITTED, prepared statements, bounded waiting.

The statements of the service are few and run millions of times, so each is prepared once on a connection and then
executed by name. psycopg's cursor would parse, plan its adaptation and step a generator each time, which costs more
than twice as much (`decisions/0001`).
"""

from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.types.string import TextLoader
from sqlalchemy.engine import URL, Dialect

from booking_core.db.statements import POSTGRESQL, Compiled, Row
from booking_core.errors import Unavailable

LOCK_TIMEOUT_MS = 3_000
STATEMENT_TIMEOUT_MS = 10_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000
CLIENT_CHECK_MS = 500
"""How often the server looks whether we still live: a transaction that waits for a lock must not outlive its process,
and with it the idempotency key that it holds (decision I5)."""
CONNECT_TIMEOUT_S = 5
SERVER_GONE_MS = 15_000
"""A server that answers nothing for so long, not even to keep-alives, is gone."""

# SQLSTATE codes and classes, by what we do about them.
_TRY_AGAIN = frozenset({"40001", "40P01", "23505"})
"""Serialization, deadlock, and a unique row that another transaction wrote first: a second look sees it."""
_BUSY = frozenset({"55P03", "57014", "53300", "25P03"})
"""Lock timeout, statement timeout, too many connections, idle in transaction."""

_SESSION = (
    f"SET lock_timeout = {LOCK_TIMEOUT_MS}; SET statement_timeout = {STATEMENT_TIMEOUT_MS};"
    f" SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_TIMEOUT_MS};"
    f" SET client_connection_check_interval = {CLIENT_CHECK_MS};"
    " SET jit = off; SET TIME ZONE 'UTC'; SET client_encoding = 'UTF8'"
)
_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


def _encoded(value: Any) -> Any:
    """A value in PostgreSQL's text format; the statement casts it to its type."""
    if value is None:
        return None
    if value is True or value is False:
        return b"t" if value else b"f"
    return str(value).encode()


class PostgresConnection:
    """One connection, with our own BEGIN and COMMIT."""

    def __init__(self, conninfo: str) -> None:
        self._raw = psycopg.connect(
            conninfo,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            keepalives_idle=SERVER_GONE_MS // 3000,
            tcp_user_timeout=SERVER_GONE_MS,
        )
        self._raw.adapters.register_loader("uuid", TextLoader)
        self._libpq = self._raw.pgconn
        self._rows = Transformer(self._raw)
        self._prepared: dict[str, bytes] = {}
        self.command(_SESSION)

    def _checked(self, result: Any) -> Any:
        if result.status not in _SUCCESS:
            raise error_from_result(result, encoding="utf-8")
        return result

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """The rows, and how many were touched."""
        name = self._prepared.get(compiled.text) or self._prepare(compiled.text)
        values = [_encoded(parameters[key]) for key in compiled.positions]
        result = self._checked(self._libpq.exec_prepared(name, values))
        if result.status == pq.ExecStatus.TUPLES_OK:
            self._rows.set_pgresult(result)
            return self._rows.load_rows(0, result.ntuples, tuple), result.ntuples
        return [], result.command_tuples or 0

    def _prepare(self, text: str) -> bytes:
        name = b"s%d" % len(self._prepared)
        self._checked(self._libpq.prepare(name, text.encode()))
        self._prepared[text] = name
        return name

    def command(self, text: str) -> None:
        """A statement without parameters and rows, such as COMMIT."""
        self._checked(self._libpq.exec_(text.encode()))

    def begin(self) -> None:
        self.command("BEGIN")

    @property
    def in_transaction(self) -> bool:
        return self._libpq.transaction_status != pq.TransactionStatus.IDLE

    @property
    def broken(self) -> bool:
        return bool(self._raw.closed) or self._libpq.status != pq.ConnStatus.OK

    def close(self) -> None:
        self._raw.close()


class PostgresDriver:
    """How connections to one server are made, and what its errors mean."""

    dialect: Dialect = POSTGRESQL
    readers = 2
    writers = 8

    def __init__(self, url: URL) -> None:
        self._conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)

    def connect(self, writable: bool) -> PostgresConnection:
        return PostgresConnection(self._conninfo)

    def translate(self, error: Exception) -> Exception | None:
        """What a client is told; none for an error that is ours to mend."""
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        away = state in _BUSY or state in _TRY_AGAIN or state[:2] in ("08", "57")
        return Unavailable() if away or _is_lost(error) else None

    def worth_another_try(self, error: Exception) -> bool:
        """Whether a second run can settle it.

        A connection that died leaves the outcome open; every write of ours may be run again (idempotency, unique
        e-mail), so running it again is how the outcome is learnt.
        """
        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate or ""
        return state in _TRY_AGAIN or _is_lost(error) or (state[:2] == "57" and state != "57014")


def _is_lost(error: psycopg.Error) -> bool:
    """An error that the server did not send: the connection is gone, or was never made."""
    return isinstance(error, psycopg.DatabaseError) and not error.sqlstate
