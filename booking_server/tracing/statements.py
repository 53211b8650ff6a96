"""Spans of transactions and statements, by the names of their tables. A value never stands in one."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from booking_core.db import tables
from booking_core.db.driver import Connection, Step
from booking_core.db.statements import Compiled, Row

SUMMARY_MAX = 255
"""Characters of a summary, by OpenTelemetry's conventions."""
_TABLE = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|FROM|JOIN)\s+\"?([a-z_]+)", re.IGNORECASE)
_WRITES = {"INSERT INTO": "INSERT", "UPDATE": "UPDATE", "DELETE FROM": "DELETE"}
_READ = "SELECT"


class TracedConnection:
    """A connection with a span for each transaction, and one for each round trip in it or outside of one."""

    def __init__(self, connection: Connection, pool: str, tracer: Tracer) -> None:
        self._connection = connection
        self._pool = pool
        self._tracer = tracer
        self._span: Span | None = None
        """The transaction."""
        self._context: Context | None = None
        """The context of its statements; None outside of one, where it is the current one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def begin(self) -> None:
        self._span = self._tracer.start_span(f"transaction {self._pool}")
        self._context = set_span_in_context(self._span)
        try:
            self._connection.begin()
        except BaseException:
            self._end("not_begun")
            raise

    def commit(self, last: Step | None = None) -> None:
        with self._statements([last[0]] if last else [], "COMMIT"):
            self._connection.commit(last)
        self._end("committed")

    def rollback(self) -> None:
        try:
            self._connection.rollback()
        finally:
            self._end("rolled_back")

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        with self._statements([compiled]):
            return self._connection.execute(compiled, parameters)

    def execute_pipeline(self, steps: Sequence[Step]) -> list[list[Row]]:
        with self._statements([compiled for compiled, _ in steps]):
            return self._connection.execute_pipeline(steps)

    def execute_many(self, compiled: Compiled, rows: Sequence[dict[str, Any]]) -> None:
        with self._statements([compiled]):
            self._connection.execute_many(compiled, rows)  # type: ignore[attr-defined]

    def _end(self, outcome: str) -> None:
        if self._span is not None:
            self._span.set_attribute("booking.transaction.outcome", outcome)
            self._span.end()
            self._span = self._context = None

    @contextlib.contextmanager
    def _statements(self, statements: Sequence[Compiled], *others: str) -> Iterator[None]:
        """Make the span of the statements of a round trip."""
        summary = "; ".join([*(summary_of(each.text) for each in statements), *others])[:SUMMARY_MAX]
        span = self._tracer.start_span(summary, self._context, SpanKind.CLIENT, {"db.query.summary": summary})
        try:
            yield
        except BaseException as error:
            fail(span, error)
            raise
        finally:
            span.end()


def fail(span: Span, error: BaseException) -> None:
    """Give a span the class of an error, and its SQLSTATE if it has one; never its text."""
    span.set_attribute("error.type", type(error).__name__)
    if state := getattr(error, "sqlstate", None):
        span.set_attribute("db.response.status_code", state)
    span.set_status(StatusCode.ERROR)


@lru_cache(maxsize=1024)
def summary_of(text: str) -> str:
    """Return what a statement does with which tables, in the order in which it names them."""
    found: dict[str, None] = {}
    for keyword, name in _TABLE.findall(text):
        if name in tables.metadata.tables:
            found[f"{_WRITES.get(keyword.upper(), _READ)} {name}"] = None
    return ", ".join(found) or _READ
