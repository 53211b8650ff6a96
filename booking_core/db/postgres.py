"""PostgreSQL through psycopg's binding of libpq: READ COMMITTED, prepared statements, timeouts everywhere.

The service has few statements and runs them millions of times, so each is prepared once on a connection and then
executed by name. psycopg's cursor would parse the statement, plan its adaptation and step a generator each time, which
costs more than twice as much (`decisions/0001`). BEGIN travels with a transaction's first statement and COMMIT with
its last one, so that neither costs a round trip of its own.
"""

import selectors
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.types.string import TextLoader
from sqlalchemy.engine import URL, Dialect

from booking_core.db.driver import Step
from booking_core.db.faults import fault_of
from booking_core.db.statements import POSTGRESQL, Compiled, Row
from booking_core.errors import Unavailable

LOCK_TIMEOUT_MS = 3_000
STATEMENT_TIMEOUT_MS = 9_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 2_000
"""Milliseconds between two statements of a transaction after which the server ends it. They are few milliseconds apart,
unless the process is frozen. Shorter than `LOCK_TIMEOUT_MS`: a request that waits for a lock of a frozen process gets
it, instead of being refused (`decisions/0030`)."""
PAUSE_MS = 15_000
"""The same for an import, which decides about many rows between two statements."""
CLIENT_CHECK_MS = 500
"""Milliseconds between the server's checks that the client still lives: a transaction that waits for a lock must not
outlive its process, nor must the idempotency key that it holds (decision I5)."""
CONNECT_TIMEOUT_S = 5
_FIRST_PLANS = 16
"""Statements after which a new connection discards its plans for the first time."""
TCP_TIMEOUT_MS = 15_000
"""Milliseconds without any answer, keep-alives included, after which the server counts as unreachable."""
RESPONSE_TIMEOUT_S = 9.5
"""Seconds without a response after which none is expected: the server would have ended the statement before. Its
machine may be frozen, with a kernel that still answers keep-alives, or a proxy may keep the connection open."""

# SQLSTATE codes and classes, by how they are handled.
_RETRYABLE = frozenset({"40001", "40P01", "23505"})
"""Serialization failure, deadlock, and a unique row that another transaction wrote first: a second run sees it."""
_LOCK_TIMEOUT = "55P03"
_TIMEOUT = "57014"
_IDLE_IN_TRANSACTION = "25P03"
_BUSY = frozenset({_LOCK_TIMEOUT, _TIMEOUT, _IDLE_IN_TRANSACTION})
"""Lock timeout, statement timeout, idle in transaction."""
_READ_ONLY = "25006"
"""The server takes no writes: it is a standby, or was configured so. After a failover a connection may lead to such a
server, and would lead there for ever."""

_SESSION = (
    f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_TIMEOUT_MS};"
    f" SET client_connection_check_interval = {CLIENT_CHECK_MS};"
    " SET jit = off; SET random_page_cost = 1.1; SET TIME ZONE 'UTC'; SET client_encoding = 'UTF8'"
)
_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)

_TEXT_OID = 25
_ARRAY_HEAD = struct.Struct(">iiIii")
"""The header of an array: number of dimensions, 1 if there are nulls, element type, number of elements, first index."""
_LENGTH = struct.Struct(">i")


def _array(texts: Sequence[str]) -> bytes:
    """Encode texts as an array in PostgreSQL's binary format, in which no text is quoted."""
    parts = [_ARRAY_HEAD.pack(1, 0, _TEXT_OID, len(texts), 1)]
    for each in texts:
        encoded = each.encode()
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def _encoded(value: Any) -> Any:
    """Encode a value in PostgreSQL's text format, which the statement casts to its type; a list in binary format."""
    if value is None:
        return None
    if value is True or value is False:
        return b"t" if value else b"f"
    if isinstance(value, list):
        return _array(value)
    return str(value).encode()


def _session(statement_timeout_s: float | None, lock_timeout_ms: int | None) -> str:
    """Return the statements that set up a session, also again after one of its settings was changed."""
    statement_timeout_ms = STATEMENT_TIMEOUT_MS if statement_timeout_s is None else int(statement_timeout_s * 1000)
    own = f"SET statement_timeout = {statement_timeout_ms}; SET lock_timeout = {lock_timeout_ms or LOCK_TIMEOUT_MS}"
    return f"{own}; {_SESSION}"


class PostgresConnection:
    """A connection in autocommit mode, with an explicit BEGIN and COMMIT."""

    def __init__(
        self, conninfo: str, *, statement_timeout_s: float | None = None, lock_timeout_ms: int | None = None
    ) -> None:
        self._raw = psycopg.connect(
            conninfo,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            keepalives_idle=TCP_TIMEOUT_MS // 3000,
            tcp_user_timeout=TCP_TIMEOUT_MS,
        )
        self._raw.adapters.register_loader("uuid", TextLoader)
        self._libpq = self._raw.pgconn
        self._socket = selectors.DefaultSelector()
        self._socket.register(self._libpq.socket, selectors.EVENT_READ)
        self._rows = Transformer(self._raw)
        self._prepared: dict[str, bytes] = {}
        self._begin_is_due = False
        self._executed = 0
        self._is_read_only_server = False
        self._response_timeout_s: float | None = RESPONSE_TIMEOUT_S
        self._plans_until = _FIRST_PLANS
        self._session = _session(statement_timeout_s, lock_timeout_ms)
        try:
            self.command(self._session)
        except BaseException:
            self.close()
            raise

    def _checked(self, result: Any) -> Any:
        if result.status not in _SUCCESS:
            error = error_from_result(result, encoding="utf-8")
            self._is_read_only_server |= error.sqlstate == _READ_ONLY
            raise error
        return result

    def _discard_plans_if_due(self) -> None:
        """Discard the plans of prepared statements now and then, each time after four times as many statements.

        PostgreSQL keeps a plan after five executions. On a new installation all tables are empty then, so that it plans
        to read them whole, and it would plan again only after autovacuum has analyzed them.
        """
        self._executed += 1
        if self._executed >= self._plans_until and (self._begin_is_due or not self.in_transaction):
            self._plans_until *= 4
            self.command("DISCARD PLANS")

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Run a statement and return its rows and the number of affected rows."""
        self._discard_plans_if_due()
        if self._begin_is_due:
            self._begin_is_due = False
            return self._loaded(self._pipeline(b"BEGIN", (compiled, parameters))[-1])
        self._libpq.send_query_prepared(*self._bound(compiled, parameters))
        return self._loaded(self._answer())

    def execute_pipeline(self, steps: Sequence[Step]) -> list[list[Row]]:
        """Run the statements in one round trip and return the rows of each."""
        self._discard_plans_if_due()
        begin = [b"BEGIN"] if self._begin_is_due else []
        self._begin_is_due = False
        return [self._loaded(result)[0] for result in self._pipeline(*begin, *steps)[len(begin) :]]

    def commit(self, last: Step | None = None) -> None:
        """End the transaction, after a last statement whose rows are not read: in one round trip."""
        if self._begin_is_due:  # no statement has run yet
            self._begin_is_due = False
            if last:
                self._pipeline(b"BEGIN", last, b"COMMIT")
        elif last:
            self._pipeline(last, b"COMMIT")
        else:
            self.command("COMMIT")

    def rollback(self) -> None:
        if not self._begin_is_due:
            self.command("ROLLBACK")
        self._begin_is_due = False

    def _loaded(self, result: Any) -> tuple[list[Row], int]:
        if result.status == pq.ExecStatus.TUPLES_OK:
            self._rows.set_pgresult(result)
            return self._rows.load_rows(0, result.ntuples, tuple), result.ntuples
        return [], result.command_tuples or 0

    def _bound(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[bytes, list[Any], list[int]]:
        """Return the statement's name, its values and their formats, as libpq takes them."""
        name = self._prepared.get(compiled.text) or self._prepare(compiled.text)
        values = [parameters[key] for key in compiled.positions]
        return name, [_encoded(value) for value in values], [isinstance(value, list) for value in values]

    def _pipeline(self, *steps: Step | bytes) -> list[Any]:
        """Return the results of statements and commands that are sent at once; after a failed one none is run."""
        bound = [step if isinstance(step, bytes) else self._bound(*step) for step in steps]
        libpq = self._libpq
        libpq.enter_pipeline_mode()
        for step in bound:
            if isinstance(step, bytes):
                libpq.send_query_params(step, None)
            else:
                libpq.send_query_prepared(*step)
        libpq.pipeline_sync()
        results = self._results()
        libpq.exit_pipeline_mode()
        return [self._checked(result) for result in results]

    def _results(self) -> list[Any]:
        self._flush()
        results: list[Any] = []
        while True:
            result = self._next()
            if result is None:
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)

    def _answer(self) -> Any:
        """Return the last result of a command that was sent alone; the results before it, if any, succeeded."""
        self._flush()
        last = None
        while (result := self._next()) is not None:
            last = result
        return self._checked(last)

    def _next(self) -> Any:
        libpq = self._libpq
        while libpq.is_busy():
            self._wait()
            libpq.consume_input()
        return libpq.get_result()

    def _flush(self) -> None:
        libpq = self._libpq
        while libpq.flush():
            self._socket.modify(libpq.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            self._wait()
            self._socket.modify(libpq.socket, selectors.EVENT_READ)
            libpq.consume_input()  # else client and server could each wait for the other to read

    def _wait(self) -> None:
        """Wait until the socket can be read or written.

        Raises:
            Unavailable: there was no response in time. The connection is closed, the transaction's outcome unknown.
        """
        if not self._socket.select(self._response_timeout_s):
            self._raw.close()
            raise Unavailable(for_all=True)

    def _prepare(self, text: str) -> bytes:
        name = b"s%d" % len(self._prepared)
        self._libpq.send_prepare(name, text.encode())
        self._answer()
        self._prepared[text] = name
        return name

    def command(self, text: str) -> None:
        """Run a statement without parameters and rows, such as COMMIT."""
        self._libpq.send_query(text.encode())
        self._answer()

    def begin(self) -> None:
        """Begin a transaction: its BEGIN is sent with its first statement."""
        self._begin_is_due = True

    @property
    def in_transaction(self) -> bool:
        return self._begin_is_due or self._libpq.transaction_status != pq.TransactionStatus.IDLE

    @property
    def broken(self) -> bool:
        """Return True if the connection is lost, in the middle of a statement, or leads to a read-only server."""
        libpq = self._libpq
        is_ready = libpq.status == pq.ConnStatus.OK and libpq.pipeline_status == pq.PipelineStatus.OFF
        is_busy = libpq.transaction_status == pq.TransactionStatus.ACTIVE
        return bool(self._raw.closed) or not is_ready or is_busy or self._is_read_only_server

    @property
    def was_closed_by_server(self) -> bool:
        """Return True if the server has closed the connection since its last use: an idle one gets no other message."""
        return bool(self._socket.select(0))

    @contextmanager
    def without_statement_timeout(self) -> Iterator[None]:
        """Lift the statement timeout inside the block."""
        self.command("SET statement_timeout = 0")
        self._response_timeout_s = None
        try:
            yield
        finally:
            self._response_timeout_s = RESPONSE_TIMEOUT_S
            if not self.broken:
                self.command(self._session)

    def allow_pauses(self) -> None:
        """Let this transaction pause for longer between two statements than others may."""
        begin = "BEGIN; " if self._begin_is_due else ""
        self._begin_is_due = False
        self.command(f"{begin}SET LOCAL idle_in_transaction_session_timeout = {PAUSE_MS}")

    def close(self) -> None:
        self._socket.close()
        self._raw.close()


class PostgresDriver:
    """Opens connections to one server and classifies its errors."""

    dialect: Dialect = POSTGRESQL
    readers = 2
    """Statements that a process reads with at once: more only compete for the interpreter."""
    readers_max = 6
    """The same, with those that have waited for the server for a while."""
    writers = 8

    def __init__(self, url: URL) -> None:
        self._conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)

    def connect(
        self, writable: bool, *, statement_timeout_s: float | None = None, lock_timeout_ms: int | None = None
    ) -> PostgresConnection:
        """Open a connection.

        Args:
            statement_timeout_s: seconds after which the server ends a statement.
            lock_timeout_ms: how long a statement waits for a lock; `LOCK_TIMEOUT_MS` by default.

        Raises:
            Unavailable: the server cannot be reached. This is not retried, since the timeout has been waited for once.
        """
        try:
            return PostgresConnection(
                self._conninfo, statement_timeout_s=statement_timeout_s, lock_timeout_ms=lock_timeout_ms
            )
        except psycopg.Error as error:
            if _is_lost(error):
                raise Unavailable(for_all=True) from error
            raise

    def translate(self, error: Exception) -> Exception | None:
        """Return the error that a client gets; none for an error of the program."""
        if not isinstance(error, psycopg.Error):
            return None
        fault = fault_of(error)
        if fault:
            return Unavailable(for_all=True, fault=fault)
        state = error.sqlstate or ""
        if state == _LOCK_TIMEOUT:
            return Unavailable(is_locked=True)
        away = state in _BUSY or state in _RETRYABLE or state[:2] in ("08", "57")
        return Unavailable() if away or _is_lost(error) else None

    def is_timeout(self, error: Exception) -> bool:
        """Return True if the error ended a statement that ran longer than it may."""
        return isinstance(error, psycopg.Error) and error.sqlstate == _TIMEOUT

    def is_retryable(self, error: Exception) -> bool:
        """Return whether another run of the transaction may succeed.

        A lost connection leaves the outcome unknown. Most writes find what they did (an idempotency key, a unique
        e-mail), so another run settles it; for the others see `Database.write_once`.
        """
        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate or ""
        is_of_connection = state in (_READ_ONLY, _IDLE_IN_TRANSACTION) or (state[:2] == "57" and state != _TIMEOUT)
        return state in _RETRYABLE or _is_lost(error) or is_of_connection


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection was lost or never made: the error did not come from the server."""
    return isinstance(error, psycopg.DatabaseError) and not error.sqlstate
