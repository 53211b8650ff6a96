"""PostgreSQL through psycopg's own binding of libpq: READ COMMITTED, prepared statements, bounded waiting.

The statements of the service are few and run millions of times, so each is prepared once on a connection and then
executed by name. psycopg's cursor would parse, plan its adaptation and step a generator each time, which costs more
than twice as much (`decisions/0001`). BEGIN travels with a transaction's first statement and COMMIT with its last
write, so that neither costs a round trip of its own.
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

from booking_core.db.faults import fault_of
from booking_core.db.statements import POSTGRESQL, Compiled, Row
from booking_core.errors import Unavailable

LOCK_TIMEOUT_MS = 3_000
STATEMENT_TIMEOUT_MS = 9_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000
CLIENT_CHECK_MS = 500
"""How often the server looks whether we still live: a transaction that waits for a lock must not outlive its process,
and with it the idempotency key that it holds (decision I5)."""
CONNECT_TIMEOUT_S = 5
_FIRST_PLANS = 16
"""Statements after which a new connection's plans are made anew for the first time."""
SERVER_GONE_MS = 15_000
"""A server that answers nothing for so long, not even to keep-alives, is gone."""
SILENT_S = 9.5
"""A server that says nothing for so long will not say anything: by then it would have ended the statement itself. Its
machine may be frozen, with a kernel that still answers keep-alives, or a proxy may keep the connection open."""

# SQLSTATE codes and classes, by what we do about them.
_TRY_AGAIN = frozenset({"40001", "40P01", "23505"})
"""Serialization, deadlock, and a unique row that another transaction wrote first: a second look sees it."""
_BUSY = frozenset({"55P03", "57014", "25P03"})
"""Lock timeout, statement timeout, idle in transaction."""
_READ_ONLY = "25006"
"""The server takes no writes: it is a standby, or was told so. After a failover that is where a connection may lead,
and it would lead there for ever."""

_SESSION = (
    f"SET lock_timeout = {LOCK_TIMEOUT_MS}; SET statement_timeout = {STATEMENT_TIMEOUT_MS};"
    f" SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_TIMEOUT_MS};"
    f" SET client_connection_check_interval = {CLIENT_CHECK_MS};"
    " SET jit = off; SET random_page_cost = 1.1; SET TIME ZONE 'UTC'; SET client_encoding = 'UTF8'"
)
_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)

Step = tuple[Compiled, dict[str, Any]]
"""A statement and its parameters."""


_TEXT_OID = 25
_ARRAY_HEAD = struct.Struct(">iiIii")
"""Of one dimension: dimensions, whether there are nulls, the elements' type, how many, the first one's index."""
_LENGTH = struct.Struct(">i")


def _array(texts: Sequence[str]) -> bytes:
    """Texts as an array in PostgreSQL's binary format, where nothing is quoted."""
    parts = [_ARRAY_HEAD.pack(1, 0, _TEXT_OID, len(texts), 1)]
    for each in texts:
        encoded = each.encode()
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def _encoded(value: Any) -> Any:
    """A value in PostgreSQL's text format, which the statement casts to its type; a list in the binary one."""
    if value is None:
        return None
    if value is True or value is False:
        return b"t" if value else b"f"
    if isinstance(value, list):
        return _array(value)
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
        self._socket = selectors.DefaultSelector()
        self._socket.register(self._libpq.socket, selectors.EVENT_READ)
        self._rows = Transformer(self._raw)
        self._prepared: dict[str, bytes] = {}
        self._begins = False
        self._executed = 0
        self._leads_astray = False
        self._silent_s: float | None = SILENT_S
        self._plans_until = _FIRST_PLANS
        try:
            self.command(_SESSION)
        except BaseException:
            self.close()
            raise

    def _checked(self, result: Any) -> Any:
        if result.status not in _SUCCESS:
            error = error_from_result(result, encoding="utf-8")
            self._leads_astray |= error.sqlstate == _READ_ONLY
            raise error
        return result

    def _plan_anew(self) -> None:
        """Forgets the plans of prepared statements now and then, each time after four times as many statements.

        PostgreSQL settles on a plan after five executions, and on a new installation all tables are empty then: to read
        them whole is best. It plans anew when autovacuum has counted the rows, a minute later or an hour.
        """
        self._executed += 1
        if self._executed >= self._plans_until and (self._begins or not self.in_transaction):
            self._plans_until *= 4
            self.command("DISCARD PLANS")

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """The rows, and how many were touched."""
        self._plan_anew()
        if self._begins:
            self._begins = False
            return self._loaded(self._together(b"BEGIN", (compiled, parameters))[-1])
        self._libpq.send_query_prepared(*self._bound(compiled, parameters))
        return self._loaded(self._answer())

    def execute_together(self, steps: Sequence[Step]) -> list[list[Row]]:
        """The rows of each, in one round trip."""
        self._plan_anew()
        begin = [b"BEGIN"] if self._begins else []
        self._begins = False
        return [self._loaded(result)[0] for result in self._together(*begin, *steps)[len(begin) :]]

    def commit(self, last: Step | None = None) -> None:
        """Ends the transaction, after a last write that nobody waits for the rows of."""
        if self._begins:  # nothing was done in it yet
            self._begins = False
            if last:
                self._together(b"BEGIN", last, b"COMMIT")
        elif last:
            self._together(last, b"COMMIT")
        else:
            self.command("COMMIT")

    def rollback(self) -> None:
        if not self._begins:
            self.command("ROLLBACK")
        self._begins = False

    def _loaded(self, result: Any) -> tuple[list[Row], int]:
        if result.status == pq.ExecStatus.TUPLES_OK:
            self._rows.set_pgresult(result)
            return self._rows.load_rows(0, result.ntuples, tuple), result.ntuples
        return [], result.command_tuples or 0

    def _bound(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[bytes, list[Any], list[int]]:
        """Name, values and formats, as libpq takes them."""
        name = self._prepared.get(compiled.text) or self._prepare(compiled.text)
        values = [parameters[key] for key in compiled.positions]
        return name, [_encoded(value) for value in values], [isinstance(value, list) for value in values]

    def _together(self, *steps: Step | bytes) -> list[Any]:
        """The results of statements and commands that are sent at once; after one that fails none is carried out."""
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
        """The last result of what was sent alone: the others, if there are any, went well."""
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
            libpq.consume_input()  # else both sides could wait for the other to read

    def _wait(self) -> None:
        """Until the server has something to say, or to take.

        Raises:
            Unavailable: it is silent. The connection is given up, and what became of its transaction is not known.
        """
        if not self._socket.select(self._silent_s):
            self._raw.close()
            raise Unavailable(for_all=True)

    def _prepare(self, text: str) -> bytes:
        name = b"s%d" % len(self._prepared)
        self._libpq.send_prepare(name, text.encode())
        self._answer()
        self._prepared[text] = name
        return name

    def command(self, text: str) -> None:
        """A statement without parameters and rows, such as COMMIT."""
        self._libpq.send_query(text.encode())
        self._answer()

    def begin(self) -> None:
        """A transaction begins with its first statement."""
        self._begins = True

    @property
    def in_transaction(self) -> bool:
        return self._begins or self._libpq.transaction_status != pq.TransactionStatus.IDLE

    @property
    def broken(self) -> bool:
        """Lost, or left in the middle of something, or led to a server that is the wrong one."""
        libpq = self._libpq
        is_ready = libpq.status == pq.ConnStatus.OK and libpq.pipeline_status == pq.PipelineStatus.OFF
        is_busy = libpq.transaction_status == pq.TransactionStatus.ACTIVE
        return bool(self._raw.closed) or not is_ready or is_busy or self._leads_astray

    @property
    def was_left(self) -> bool:
        """Whether the server has ended it since it was used last: to one that is idle, there is nothing else to say."""
        return bool(self._socket.select(0))

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Inside, a statement may take as long as it does."""
        self.command("SET statement_timeout = 0")
        self._silent_s = None
        try:
            yield
        finally:
            self._silent_s = SILENT_S
            if not self.broken:
                self.command(f"SET statement_timeout = {STATEMENT_TIMEOUT_MS}")

    def close(self) -> None:
        self._socket.close()
        self._raw.close()


class PostgresDriver:
    """How connections to one server are made, and what its errors mean."""

    dialect: Dialect = POSTGRESQL
    readers = 2
    writers = 8

    def __init__(self, url: URL) -> None:
        self._conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)

    def connect(self, writable: bool) -> PostgresConnection:
        """A new connection.

        Raises:
            Unavailable: none is to be had. That is not tried again at once: of a server that is silent, it took long
                enough to learn.
        """
        try:
            return PostgresConnection(self._conninfo)
        except psycopg.Error as error:
            if _is_lost(error):
                raise Unavailable(for_all=True) from error
            raise

    def translate(self, error: Exception) -> Exception | None:
        """What a client is told; none for an error that is ours to mend."""
        if not isinstance(error, psycopg.Error):
            return None
        fault = fault_of(error)
        if fault:
            return Unavailable(for_all=True, fault=fault)
        state = error.sqlstate or ""
        away = state in _BUSY or state in _TRY_AGAIN or state[:2] in ("08", "57")
        return Unavailable() if away or _is_lost(error) else None

    def worth_another_try(self, error: Exception) -> bool:
        """Whether a second run can settle it.

        A connection that died leaves the outcome open. Most writes find what they did (an idempotency key, a unique
        e-mail), so running them again is how it is learnt; for the others see `Database.write_once`.
        """
        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate or ""
        is_of_connection = state == _READ_ONLY or (state[:2] == "57" and state != "57014")
        return state in _TRY_AGAIN or _is_lost(error) or is_of_connection


def _is_lost(error: psycopg.Error) -> bool:
    """An error that the server did not send: the connection is gone, or was never made."""
    return isinstance(error, psycopg.DatabaseError) and not error.sqlstate
