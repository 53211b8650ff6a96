"""PostgreSQL through psycopg's binding of libpq: READ COMMITTED, prepared statements, timeouts everywhere.

The service has few statements and runs them millions of times, so each is prepared once on a connection and then
executed by name. psycopg's cursor would parse the statement, plan its adaptation and step a generator each time, which
costs more than twice as much (`decisions/0001`). BEGIN travels with a transaction's first statement and COMMIT with
its last one, so that neither costs a round trip of its own.
"""

import selectors
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.types.string import TextLoader
from sqlalchemy.engine import URL, Dialect

from booking_core.base import database_urls
from booking_core.base.errors import Unavailable
from booking_core.db.driver import Step
from booking_core.db.encoding import require_utf8
from booking_core.db.faults import fault_of
from booking_core.db.postgres_hosts import CONNECT_TIMEOUT_S, SILENCE_S, Connector, address_of
from booking_core.db.postgres_session import (
    LOCK_TIMEOUT_MS,
    STATEMENT_TIMEOUT_MS,
    VERIFY,
    SessionSettings,
    is_refusal_of_options,
    new_token,
    options_before,
    statement_name,
)
from booking_core.db.statements import POSTGRESQL, Compiled, Row

_FIRST_PLANS = 16
"""Statements after which a new connection discards its plans for the first time."""
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

PAUSE_MS = 15_000
"""Milliseconds between two statements of an import, which decides about many rows between them."""
_NOT_PREPARED = frozenset({"26000", "42P05"})
"""A pooler gave the statement to a session that did not prepare it, or that has prepared it for another client."""
_OF_CONNECTION = _NOT_PREPARED | {_READ_ONLY, _IDLE_IN_TRANSACTION}
"""Another connection may do it."""
_BEGIN_BEHIND_POOLER = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)

Bound = tuple[bool, bytes, list[Any], list[int]]
"""If the statement is prepared; its name or text, its values and their formats."""

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


class PostgresConnection:
    """A connection in autocommit mode, with an explicit BEGIN and COMMIT."""

    def __init__(self, server: "Server", settings: SessionSettings, response_timeout_s: float) -> None:
        self._server = server
        self._settings = settings
        self._response_timeout_s: float | None = response_timeout_s
        token = new_token()
        self._raw = server.connect(settings, token)
        self._address = address_of(self._raw)
        self._losses = server.signs.losses(self._address)
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
        self.is_own_session = False
        """Its settings are those of the session, which has no other client; else each transaction sets them."""
        try:
            ((process_id, *shown),) = self._loaded(self._run(VERIFY, [token.encode()]))[0]
            # A pooler tells its clients process ids of its own, with which they cancel statements.
            self.is_own_session = process_id == self._libpq.backend_pid and settings.are_shown(*shown)
        except BaseException:
            self.close()
            raise

    def _checked(self, result: Any) -> Any:
        if result.status not in _SUCCESS:
            error = error_from_result(result, encoding="utf-8")
            self._is_unusable |= error.sqlstate == _READ_ONLY
            if error.sqlstate in _NOT_PREPARED:
                self._is_unusable = True
                self._server.note_not_prepared(self.is_own_session)
            raise error
        return result

    def _discard_plans_if_due(self) -> None:
        if self._are_plans_due():
            self.command("DISCARD PLANS")

    def _are_plans_due(self) -> bool:
        """Return whether the plans of prepared statements are to be discarded, before the next statement: now and then,
        each time after four times as many statements.

        PostgreSQL keeps a plan after five executions. On a new installation all tables are empty then, so that it plans
        to read them whole, and it would plan again only after autovacuum has analyzed them.
        """
        self._executed += 1
        is_due = self._executed >= self._plans_until and (self._begin_is_due or not self.in_transaction)
        if is_due:
            self._plans_until *= 4
        return is_due

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Run a statement and return its rows and the number of affected rows."""
        self._discard_plans_if_due()
        if first := self._first():
            return self._loaded(self._pipeline_behind(first, (compiled, parameters))[-1])
        self._send(self._bound(compiled, parameters))
        return self._loaded(self._answer())

    def execute_pipeline(self, steps: Sequence[Step]) -> list[list[Row]]:
        """Run the statements in one round trip and return the rows of each."""
        self._discard_plans_if_due()
        first = self._first()
        return [self._loaded(result)[0] for result in self._pipeline_behind(first, *steps)[len(first) :]]

    def _first(self) -> list[bytes]:
        """Return what is sent with the next statement and before it: the BEGIN, and the settings behind a pooler.

        Without a BEGIN the statements of a pipeline are a transaction too, which ends with the pipeline.
        """
        if self._begin_is_due:
            self._begin_is_due = False
            return [b"BEGIN"] if self.is_own_session else [_BEGIN_BEHIND_POOLER, self._settings.statement()]
        return [] if self.is_own_session or self.in_transaction else [self._settings.statement()]

    def commit(self, last: Step | None = None) -> None:
        """End the transaction, after a last statement whose rows are not read: in one round trip."""
        if self._begin_is_due and not last:  # no statement has run
            self._begin_is_due = False
        elif last:
            first = self._first() if self._begin_is_due else []
            self._pipeline(*first, last, b"COMMIT")
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

    def _bound(self, compiled: Compiled, parameters: dict[str, Any], *, is_prepared: bool = False) -> Bound:
        """Return the statement's name, or its text where none can be prepared, its values and their formats.

        Args:
            is_prepared: no round trip is needed to prepare it.
        """
        text, values = compiled.text, [parameters[key] for key in compiled.positions]
        prepare = statement_name if is_prepared else self._prepare
        name = prepare(text) if self._server.keeps_prepared else None
        return (
            name is not None,
            name or text.encode(),
            [_encoded(value) for value in values],
            [isinstance(value, list) for value in values],
        )

    def _send(self, bound: Bound) -> None:
        is_prepared, statement, values, formats = bound
        if is_prepared:
            self._libpq.send_query_prepared(statement, values, formats)
        else:
            self._libpq.send_query_params(statement, values, None, formats)

    def _run(self, text: bytes, values: list[Any]) -> Any:
        """Run a statement that is not prepared and return its result."""
        self._libpq.send_query_params(text, values)
        return self._answer()

    def _pipeline_behind(self, first: Sequence[bytes], *steps: Step) -> list[Any]:
        """Return the results of `first` and of the statements.

        Statements outside a transaction are run once more, with their texts, when a pooler has lost a prepared one: it
        has no statement of this connection's, or another client's of the same name.
        """
        try:
            return self._pipeline(*first, *steps)
        except psycopg.Error as error:
            is_lost = error.sqlstate in _NOT_PREPARED and not self.is_own_session
            if not is_lost or self._libpq.transaction_status != pq.TransactionStatus.IDLE or not first:
                raise
            if _BEGIN_BEHIND_POOLER in first:  # the transaction is run again as a whole
                raise
        return self._pipeline(*first, *steps)

    def _pipeline(self, *steps: Step | bytes) -> list[Any]:
        """Return the results of statements and commands that are sent at once; after a failed one none is run."""
        bound = [step if isinstance(step, bytes) else self._bound(*step) for step in steps]
        libpq = self._libpq
        libpq.enter_pipeline_mode()
        for step in bound:
            if isinstance(step, bytes):
                libpq.send_query_params(step, None)
            else:
                self._send(step)
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
            Unavailable: there was no response in time, or the server is frozen. The connection is closed, the
                transaction's outcome unknown.
        """
        left_s = self._response_timeout_s
        while not self._socket.select(SILENCE_S if left_s is None else min(left_s, SILENCE_S)):
            begun_s = time.monotonic()
            left_s = None if left_s is None else left_s - SILENCE_S
            if (left_s is not None and left_s <= 0) or self._server.signs.is_lost(self._address, self._losses):
                self._raw.close()
                raise Unavailable(for_all=True)
            left_s = None if left_s is None else max(0.0, left_s - (time.monotonic() - begun_s))

    def _prepare(self, text: str) -> bytes | None:
        """Prepare a statement and return its name; None if a pooler has one of another client in its place."""
        name = statement_name(text)
        if name not in self._prepared:
            if self.is_own_session or self._libpq.transaction_status != pq.TransactionStatus.IDLE:
                self._libpq.send_prepare(name, text.encode())
                self._answer()
            elif not self._is_prepared_with_settings(name, text.encode()):
                return None
            self._prepared.add(name)
        return name

    def _is_prepared_with_settings(self, name: bytes, text: bytes) -> bool:
        """Prepare a statement between transactions behind a pooler, and return False if its name is taken.

        The settings go with it: the search path says in which schema its tables are, and the session may have that of
        another cell, or none.
        """
        libpq = self._libpq
        libpq.enter_pipeline_mode()
        libpq.send_query_params(self._settings.statement(), None)
        libpq.send_prepare(name, text)
        libpq.pipeline_sync()
        results = self._results()
        libpq.exit_pipeline_mode()
        try:
            for result in results:
                self._checked(result)
        except psycopg.errors.DuplicatePreparedStatement:
            return False
        return True

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
        is_lost = self._server.signs.losses(self._address) != self._losses
        return bool(self._raw.closed) or not is_ready or is_busy or is_lost or self._is_unusable

    @property
    def was_closed_by_server(self) -> bool:
        """Return True if the server has closed the connection since its last use: an idle one gets no other message."""
        return bool(self._socket.select(0))

    @contextmanager
    def without_statement_timeout(self) -> Iterator[None]:
        """Lift the statement timeout inside the block."""
        before, timeout_s = self._settings, self._response_timeout_s
        self._settings, self._response_timeout_s = before.without_statement_timeout(), None
        self._apply_statement_timeout()
        try:
            yield
        finally:
            self._settings, self._response_timeout_s = before, timeout_s
            if not self.broken and self._libpq.transaction_status != pq.TransactionStatus.INERROR:
                self._apply_statement_timeout()

    def _apply_statement_timeout(self) -> None:
        """Change the timeout of a session of its own, or of the running transaction; the next one sets it anyway."""
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


class Server:
    """The server of a URL, or the pooler before it, and what was found out about it."""

    def __init__(self, url: URL, connect_timeout_s: int) -> None:
        self._connector = Connector(url, connect_timeout_s)
        self.signs = self._connector.signs
        self.keeps_prepared = True
        """It keeps the prepared statements of a connection: PgBouncer does from 1.21 on, if it is configured to."""
        self._takes_options = True

    def connect(self, settings: SessionSettings, token: str) -> psycopg.Connection:
        """Open a connection that asks for these settings, unless a pooler has refused that."""
        if self._takes_options:
            before = options_before(self._connector.parameters)
            try:
                return require_utf8(self._connector.connect(options=settings.options(token, before)))
            except psycopg.OperationalError as error:
                if not is_refusal_of_options(error):
                    raise
                self._takes_options = False
        return require_utf8(self._connector.connect())

    def note_not_prepared(self, is_own_session: bool) -> None:
        """Send every statement with its text from now on, if it is a pooler that has lost one."""
        self.keeps_prepared = self.keeps_prepared and is_own_session


class PostgresDriver:
    """Opens connections to one server and classifies its errors."""

    dialect: Dialect = POSTGRESQL
    readers = 2
    """Statements that a process reads with at once: more only compete for the interpreter."""
    writers = 8

    def __init__(self, url: URL, *, connect_timeout_s: int = CONNECT_TIMEOUT_S) -> None:
        self.server = Server(url, connect_timeout_s)
        self.schema = database_urls.schema_of(url)

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
            return PostgresConnection(self.server, settings, RESPONSE_TIMEOUT_S)
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

        A lost connection leaves the outcome unknown. Most writes find what they did (an idempotency key, a unique
        e-mail), so another run settles it; for the others see `Database.write_once`.
        """
        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate or ""
        is_of_connection = state in _OF_CONNECTION or (state[:2] == "57" and state != _TIMEOUT)
        return state in _RETRYABLE or _is_lost(error) or is_of_connection


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection was lost or never made: the error did not come from the server."""
    return isinstance(error, psycopg.DatabaseError) and not error.sqlstate
