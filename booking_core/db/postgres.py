"""PostgreSQL through psycopg's binding of libpq: READ COMMITTED, prepared statements, timeouts everywhere.

The service has few statements and runs them millions of times, so each is prepared once on a connection and then
executed by name. psycopg's cursor would parse the statement, plan its adaptation and step a generator each time
(`decisions/0001`). BEGIN travels with a transaction's first statement and COMMIT with its last one: neither costs a
separate round trip.

A session that only this process uses gets its settings once. With a pooler each transaction sets them: it runs in any
free session, with another client's settings (`decisions/0004`).
"""

import contextlib
import math
import selectors
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.types.string import TextLoader
from sqlalchemy.engine import URL, Dialect

from booking_core.base import database_urls
from booking_core.base.errors import Unavailable
from booking_core.db.driver import EncodingRequired, PipelineStep, fault_of
from booking_core.db.statements import POSTGRESQL, Compiled, Row

CONNECT_TIMEOUT_S = 5
"""Seconds for a connection to the only server."""
HOST_TIMEOUT_S = 2
"""Seconds for each address where there are several, the least that libpq knows."""
TCP_TIMEOUT_MS = 15_000
"""Milliseconds without any answer, keep-alives included, after which the server counts as unreachable."""
LOCK_TIMEOUT_MS = 3_000
STATEMENT_TIMEOUT_MS = 7_000
RESPONSE_TIMEOUT_S = 7.5
"""Seconds without a response after which none is expected: the server would have ended the statement before. Its
machine may be frozen, with a kernel that still answers keep-alives, or a proxy may keep the connection open. Another
server takes the next request at the latest `HOST_TIMEOUT_S` later."""
_LOOK_S = 0.5
"""Seconds between two looks if another connection has found the server frozen."""
IDLE_IN_TRANSACTION_TIMEOUT_MS = 2_000
"""Milliseconds between two statements of a transaction after which the server ends it. They are few milliseconds apart,
unless the process is frozen. Shorter than `LOCK_TIMEOUT_MS`: a request that waits for a lock of a frozen process gets
it, instead of being refused (`decisions/0008`)."""
CLIENT_CHECK_MS = 500
"""Milliseconds between the server's checks that the client still lives: a transaction that waits for a lock must not
outlive its process, nor must the idempotency key that it holds (decision I5)."""
PAUSE_MS = 15_000
"""Milliseconds between two statements of an import, which decides about many rows between them."""
_FIRST_PLANS = 16
"""Statements after which a new connection discards its plans for the first time."""

# SQLSTATE codes and classes, by how they are handled.
_RETRYABLE = frozenset({"40001", "40P01", "23505"})
"""Serialization failure, deadlock, and a unique row that another transaction wrote first: a second run sees it."""
_LOCK_TIMEOUT = "55P03"
_TIMEOUT = "57014"
_IDLE_IN_TRANSACTION = "25P03"
_BUSY = frozenset({_LOCK_TIMEOUT, _TIMEOUT, _IDLE_IN_TRANSACTION})
_READ_ONLY = "25006"
"""The server takes no writes: it is a standby, or was configured so. After a failover a connection may lead to such a
server, and would stay there."""
_NOT_PREPARED = frozenset({"26000", "42P05"})
"""A pooler gave the statement to a session that did not prepare it, or that has prepared it for another client."""
_OF_CONNECTION = _NOT_PREPARED | {_READ_ONLY, _IDLE_IN_TRANSACTION}
"""Another connection may do it."""

_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_UTF8 = "UTF8"
_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
_TEXT_OID = 25
_ARRAY_HEAD = struct.Struct(">iiIii")
"""The header of an array: number of dimensions, 1 if there are nulls, element type, number of elements, first index."""
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of a session: the settings of some connections, and the settings that all share."""

    statement_timeout_ms: int
    lock_timeout_ms: int
    schema: str | None = None
    """The schema that holds the tables, for a database with several of them; None: the role's."""

    def _values(self) -> dict[str, str]:
        return ({"search_path": self.schema} if self.schema else {}) | {
            "statement_timeout": str(self.statement_timeout_ms),
            "lock_timeout": str(self.lock_timeout_ms),
            "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_TIMEOUT_MS),
            "client_connection_check_interval": str(CLIENT_CHECK_MS),
            "TimeZone": "UTC",
            "jit": "off",
            "random_page_cost": "1.1",
        }

    def of_session(self) -> str:
        """Return the statements that set them for a session."""
        return "; ".join(f"SET {name} = '{value}'" for name, value in self._values().items())

    def of_transaction(self) -> bytes:
        """Return the statement that sets them until the transaction ends."""
        return _of_transaction(self)


@lru_cache
def _of_transaction(settings: SessionSettings) -> bytes:
    """Return it, with the server's or the role's value for two settings that another client may have left: without the
    first one, an answered booking could be lost."""
    values: dict[str, str | None] = {"synchronous_commit": None, "search_path": None, **settings._values()}
    texts = {name: "NULL" if value is None else f"'{value}'" for name, value in values.items()}
    calls = [f"set_config('{name}', {text}, true)" for name, text in texts.items()]
    return f"SELECT {', '.join(calls)}".encode()


@lru_cache(maxsize=4096)
def statement_name(text: str) -> bytes:
    """Return the name of a prepared statement: through any pooler one name is one text."""
    return b"booking_" + blake2b(text.encode(), digest_size=12).hexdigest().encode()


Server = dict[str, str]
"""The parameters of libpq that name one server."""


def connect(url: URL, server: Server | None = None) -> psycopg.Connection:
    """Open a connection in autocommit mode to the first server of the URL that is as `target_session_attrs` wants it.

    Args:
        server: the only one to try.

    Raises:
        EncodingRequired: the database keeps text in another encoding than UTF-8.
        psycopg.OperationalError: no server took it.
    """
    params = database_urls.parameters(url)
    defaults: dict[str, Any] = {
        "connect_timeout": HOST_TIMEOUT_S if database_urls.has_several_servers(params) else CONNECT_TIMEOUT_S,
        "keepalives_idle": TCP_TIMEOUT_MS // 3000,
        "tcp_user_timeout": TCP_TIMEOUT_MS,
    }
    connection = psycopg.connect(autocommit=True, **(defaults | params | (server or {})))
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, _UTF8):
        connection.close()
        raise EncodingRequired(encoding)
    return connection


def _array(texts: Sequence[str]) -> bytes:
    """Encode texts as an array in PostgreSQL's binary format, without quotes."""
    parts = [_ARRAY_HEAD.pack(1, 0, _TEXT_OID, len(texts), 1)]
    for text in texts:
        encoded = text.encode()
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


class PostgresConnection:
    """A connection in autocommit mode, with an explicit BEGIN and COMMIT."""

    def __init__(self, driver: "PostgresDriver", settings: SessionSettings, response_timeout_s: float) -> None:
        self._driver = driver
        self._settings = settings
        self._response_timeout_s = response_timeout_s
        self._found_frozen = driver.found_frozen
        self._raw = driver.open()
        self._raw.adapters.register_loader("uuid", TextLoader)
        self._libpq = self._raw.pgconn
        self._socket = selectors.DefaultSelector()
        self._socket.register(self._libpq.socket, selectors.EVENT_READ)
        self._rows = Transformer(self._raw)
        self._prepared: set[bytes] = set()
        self._begin_is_due = False
        self._executed = 0
        self._is_unusable = False
        self._plans_until = _FIRST_PLANS
        try:
            self.is_own_session = self._is_own_session()
            if self.is_own_session:
                self.command(settings.of_session())
        except BaseException:
            self.close()
            raise

    def _is_own_session(self) -> bool:
        """Return whether the session has no other client: a pooler gives its clients other process ids, to cancel
        statements."""
        self._libpq.send_query(b"SELECT pg_backend_pid()")
        return int(self._answer().get_value(0, 0)) == self._libpq.backend_pid

    # Statements --------------------------------------------------------------------------------------------------

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Run a statement and return its rows and the number of affected rows."""
        return self._loaded(self._run((compiled, parameters))[0])

    def execute_pipeline(self, steps: Sequence[PipelineStep]) -> list[tuple[list[Row], int]]:
        """Run the statements in one round trip, and return the rows and the number of affected rows of each."""
        return [self._loaded(result) for result in self._run(*steps)]

    def command(self, text: str) -> None:
        """Run a statement without parameters and rows, such as COMMIT."""
        self._libpq.send_query(text.encode())
        self._answer()

    def begin(self) -> None:
        """Begin a transaction: its BEGIN is sent with its first statement."""
        self._begin_is_due = True

    def commit(self, last: PipelineStep | None = None) -> None:
        """End the transaction, after a last statement whose rows are not read: in one round trip."""
        if last:
            self._pipeline_behind(self._first(), last, b"COMMIT")
        elif not self._begin_is_due:
            self.command("COMMIT")
        self._begin_is_due = False

    def rollback(self) -> None:
        if not self._begin_is_due:
            self.command("ROLLBACK")
        self._begin_is_due = False

    def _run(self, *steps: PipelineStep) -> list[Any]:
        """Return the results of the statements, in one round trip with the commands that have to be sent first."""
        self._discard_plans_if_due()
        first = self._first()
        if not first and len(steps) == 1 and statement_name(steps[0][0].text) in self._prepared:
            self._send(steps[0])
            return [self._answer()]
        return self._pipeline_behind(first, *steps)

    def _pipeline_behind(self, first: Sequence[bytes], *steps: PipelineStep | bytes) -> list[Any]:
        """Return the results of the steps, sent with the commands of `first`.

        Where a pooler has lost a prepared statement, and nothing was sent before, all of it is sent with its texts.
        """
        try:
            return self._pipeline(*first, *steps)[len(first) :]
        except psycopg.Error as error:
            if error.sqlstate not in _NOT_PREPARED or not first:
                raise
        if self.in_transaction:
            self.command("ROLLBACK")
        return self._pipeline(*first, *steps)[len(first) :]

    def _first(self) -> list[bytes]:
        """Return the commands to send before the next statement: the BEGIN, and with a pooler the settings.

        Without a BEGIN the statements of a pipeline are a transaction too, which ends with the pipeline.
        """
        settings = [] if self.is_own_session else [self._settings.of_transaction()]
        if self._begin_is_due:
            self._begin_is_due = False
            return [_BEGIN, *settings]
        return [] if self.in_transaction else settings

    def _discard_plans_if_due(self) -> None:
        """Discard the plans of prepared statements now and then, each time after four times as many statements.

        PostgreSQL keeps a plan after five executions. On a new installation all tables are empty then: it plans to read
        them whole, and would plan again only after autovacuum has analyzed them.
        """
        self._executed += 1
        if self._executed >= self._plans_until and (self._begin_is_due or not self.in_transaction):
            self._plans_until *= 4
            self.command("DISCARD PLANS")

    def _pipeline(self, *steps: PipelineStep | bytes) -> list[Any]:
        """Return the results of statements and commands that are sent at once; after a failed one none is run."""
        libpq = self._libpq
        libpq.enter_pipeline_mode()
        prepared = [name for step in steps for name in self._send(step)]
        libpq.pipeline_sync()
        results = self._results()
        libpq.exit_pipeline_mode()
        for name, result in zip(prepared, results, strict=True):
            if name and result.status not in _SUCCESS:
                self._prepared.discard(name)
        checked = [self._checked(result) for result in results]
        return [result for name, result in zip(prepared, checked, strict=True) if name is None]

    def _send(self, step: PipelineStep | bytes) -> tuple[bytes | None, ...]:
        """Send a statement and prepare it before its first use; return for each message the name that it prepares."""
        libpq = self._libpq
        if isinstance(step, bytes):
            libpq.send_query_params(step, None)
            return (None,)
        compiled, parameters = step
        text, values = compiled.text, [parameters[key] for key in compiled.positions]
        encoded, formats = [_encoded(value) for value in values], [isinstance(value, list) for value in values]
        if not self._driver.keeps_prepared:
            libpq.send_query_params(text.encode(), encoded, None, formats)
            return (None,)
        name = statement_name(text)
        if is_new := name not in self._prepared:
            self._prepared.add(name)
            libpq.send_prepare(name, text.encode())
        libpq.send_query_prepared(name, encoded, formats)
        return (name, None) if is_new else (None,)

    # Results -----------------------------------------------------------------------------------------------------

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
            Unavailable: there was no response in time, here or on another connection. The connection is closed, the
                transaction's outcome unknown.
        """
        left_s = self._response_timeout_s
        while not self._socket.select(min(left_s, _LOOK_S)):
            left_s -= _LOOK_S
            if left_s <= 0 and not self._is_lost:
                self._driver.note_frozen()
            if self._is_lost:
                self._raw.close()
                raise Unavailable(for_all=True)

    def _checked(self, result: Any) -> Any:
        if result.status not in _SUCCESS:
            error = error_from_result(result, encoding="utf-8")
            self._is_unusable |= error.sqlstate == _READ_ONLY
            if error.sqlstate in _NOT_PREPARED and not self.is_own_session:
                self._driver.keeps_prepared = False
            raise error
        return result

    def _loaded(self, result: Any) -> tuple[list[Row], int]:
        if result.status == pq.ExecStatus.TUPLES_OK:
            self._rows.set_pgresult(result)
            return self._rows.load_rows(0, result.ntuples, tuple), result.ntuples
        return [], result.command_tuples or 0

    # The connection itself ---------------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self._begin_is_due or self._libpq.transaction_status != pq.TransactionStatus.IDLE

    @property
    def _is_lost(self) -> bool:
        """True if the server was found frozen since the connection was opened."""
        return self._found_frozen != self._driver.found_frozen

    @property
    def broken(self) -> bool:
        """Return True if the connection is lost, in the middle of a statement, or leads to a read-only server."""
        libpq = self._libpq
        is_ready = libpq.status == pq.ConnStatus.OK and libpq.pipeline_status == pq.PipelineStatus.OFF
        is_busy = libpq.transaction_status == pq.TransactionStatus.ACTIVE
        return bool(self._raw.closed) or not is_ready or is_busy or self._is_lost or self._is_unusable

    @property
    def was_closed_by_server(self) -> bool:
        """Return True if the server has closed the connection since its last use: an idle one gets no other message."""
        return bool(self._socket.select(0))

    @contextmanager
    def without_statement_timeout(self) -> Iterator[None]:
        """Lift the statement timeout inside the block."""
        settings, timeout_s = self._settings, self._response_timeout_s
        self._settings, self._response_timeout_s = replace(settings, statement_timeout_ms=0), math.inf
        self._apply_statement_timeout()
        try:
            yield
        finally:
            self._settings, self._response_timeout_s = settings, timeout_s
            if not self.broken and self._libpq.transaction_status != pq.TransactionStatus.INERROR:
                self._apply_statement_timeout()

    def _apply_statement_timeout(self) -> None:
        """Change the timeout of a session that belongs to this connection, or of the running transaction; the next
        transaction sets it anyway."""
        scope = "" if self.is_own_session else "LOCAL "
        if self.is_own_session or (self.in_transaction and not self._begin_is_due):
            self.command(f"SET {scope}statement_timeout = {self._settings.statement_timeout_ms}")

    def allow_pauses(self) -> None:
        """Let this transaction pause for longer between two statements than others may."""
        if self._begin_is_due:
            self._pipeline(*self._first())
        self.command(f"SET LOCAL idle_in_transaction_session_timeout = {PAUSE_MS}")

    def close(self) -> None:
        self._socket.close()
        self._raw.close()


class PostgresDriver:
    """Opens connections to one server and classifies its errors."""

    dialect: Dialect = POSTGRESQL
    readers = 2
    """Statements that a process reads with at once: more only compete for the interpreter."""
    writers = 8

    def __init__(self, url: URL) -> None:
        self.url = url
        self.schema = database_urls.schema_of(url)
        self.keeps_prepared = True
        """False once a pooler has lost a prepared statement: PgBouncer keeps them from 1.21 on if configured to."""
        self.found_frozen = 0
        """How often the server gave no response in time: connections from before the last time are lost."""

        self._is_several = database_urls.has_several_servers(database_urls.parameters(url))
        self._worked: Server | None = None

    def open(self) -> psycopg.Connection:
        """Open a connection to the server of the last one, or else to the first that takes it.

        So only one connection waits for a frozen server at the head of the URL, and no other does after it.
        """
        worked, self._worked = self._worked, None
        if worked:
            with contextlib.suppress(psycopg.OperationalError):
                connection = connect(self.url, worked)
                self._worked = worked
                return connection
        connection = connect(self.url)
        if self._is_several:
            info = connection.info
            self._worked = {"host": info.host, "hostaddr": info.hostaddr, "port": str(info.port)}
        return connection

    def note_frozen(self) -> None:
        """Drop all connections that are open: the server gave no response in time."""
        self.found_frozen += 1
        self._worked = None

    def connect(
        self,
        writable: bool,
        *,
        statement_timeout_s: float | None = None,
        lock_timeout_ms: int | None = None,
    ) -> PostgresConnection:
        """Open a connection.

        Args:
            statement_timeout_s: seconds after which the server ends a statement.
            lock_timeout_ms: how long a statement waits for a lock; `LOCK_TIMEOUT_MS` by default.

        Raises:
            Unavailable: the server cannot be reached. This is not retried, since the timeout has been waited for once.
        """
        statement_timeout_ms = STATEMENT_TIMEOUT_MS if statement_timeout_s is None else int(statement_timeout_s * 1000)
        settings = SessionSettings(statement_timeout_ms, lock_timeout_ms or LOCK_TIMEOUT_MS, self.schema)
        try:
            return PostgresConnection(self, settings, RESPONSE_TIMEOUT_S)
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
        away = state in _BUSY or state in _RETRYABLE or state in _NOT_PREPARED or state[:2] in ("08", "57")
        return Unavailable() if away or _is_lost(error) else None

    def is_timeout(self, error: Exception) -> bool:
        """Return True if the error ended a statement that ran longer than it may."""
        return isinstance(error, psycopg.Error) and error.sqlstate == _TIMEOUT

    def is_retryable(self, error: Exception) -> bool:
        """Return whether another run of the transaction may succeed.

        A lost connection leaves the outcome unknown. Most writes find their former changes (by an idempotency key, a
        unique e-mail), so another run settles it; for the others see `Database.write_once`.
        """
        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate or ""
        is_of_connection = state in _OF_CONNECTION or (state[:2] == "57" and state != _TIMEOUT)
        return state in _RETRYABLE or _is_lost(error) or is_of_connection


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection was lost or never made: the error did not come from the server."""
    return isinstance(error, psycopg.DatabaseError) and not error.sqlstate
