"""Query plans and costs of the service's statements, without a clock.

On PostgreSQL a statement is explained as a long-lived connection runs it: prepared, and executed often enough for the
planner to keep one plan. Its cost is the number of pages read. On SQLite the cost is the number of steps of the virtual
machine.
"""

import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.string import TextLoader
from sqlalchemy.engine import Dialect, make_url

from booking_core.db.engine import Database, Tx
from booking_core.db.postgres import SessionSettings
from booking_core.db.statements import Compiled, Statement

_COUNTS_PREPARING = sqlite3.sqlite_version_info >= (3, 41)
"""From this version on SQLite also calls the progress handler while it prepares a statement."""
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b")
_SETTLED = 6
"""PostgreSQL plans each of the first five executions, and only then considers keeping a plan."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of an executed statement."""

    text: str
    scanned: frozenset[str]
    """Tables that are scanned completely, also to build a temporary index."""
    indexes: frozenset[str]
    cost: int
    rows: int

    def __str__(self) -> str:
        return f"{self.cost} steps, {self.rows} rows, scans {set(self.scanned)}, uses {set(self.indexes)}: {self.text}"


class _Connection:
    """The base class of both databases."""

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Any], int]:
        raise NotImplementedError

    def execute_pipeline(self, steps: Sequence[tuple[Compiled, dict[str, Any]]]) -> list[tuple[list[Any], int]]:
        return [self.execute(*step) for step in steps]


class _Sqlite(_Connection):
    def __init__(self, url: str) -> None:
        self._raw = sqlite3.connect(str(make_url(url).database), isolation_level=None)
        self.plans: list[Plan] = []

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Any], int]:
        if _COUNTS_PREPARING and not _WRITES.search(compiled.text):
            self._raw.execute(compiled.text, parameters).close()  # it stays prepared
        steps = itertools.count()
        self._raw.set_progress_handler(lambda: next(steps) < 0, 1)
        cursor = self._raw.execute(compiled.text, parameters)
        rows = cursor.fetchall()
        self._raw.set_progress_handler(None, 1)
        self._explain(compiled.text, parameters, next(steps), len(rows))
        return rows, cursor.rowcount

    def execute_many(self, compiled: Compiled, items: list[dict[str, Any]]) -> None:
        self._raw.executemany(compiled.text, items)
        self._explain(compiled.text, items[0], 0, 0)

    def _explain(self, text: str, parameters: dict[str, Any], cost: int, count: int) -> None:
        details = [row[3].split() for row in self._raw.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
        names = [words[words.index("INDEX") + 1] for words in details if "INDEX" in words]
        keys = [f"{words[1]} primary key" for words in details if "PRIMARY" in words]
        scanned = {words[1] for words in details if words[0] == "SCAN" or "AUTOMATIC" in words}
        self.plans.append(Plan(text, frozenset(scanned), frozenset([*names, *keys]), cost, count))

    def command(self, text: str) -> None:
        self._raw.execute(text)

    def close(self) -> None:
        self._raw.close()


class _Postgres(_Connection):
    def __init__(self, url: str) -> None:
        self._raw = psycopg.connect(
            make_url(url).set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
        )
        self._raw.prepare_threshold = None  # otherwise a ROLLBACK would drop the statements prepared here
        self._raw.adapters.register_loader("uuid", TextLoader)
        self._raw.execute(SessionSettings(0, 0).of_session().encode())
        self._prepared: dict[str, str] = {}
        self.plans: list[Plan] = []

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Any], int]:
        name = self._prepared.get(compiled.text)
        if name is None:
            name = self._prepared[compiled.text] = f"s{len(self._prepared)}"
            self.command(f"PREPARE {name} AS {compiled.text}")
        values = ", ".join(_literal(parameters[key]) for key in compiled.positions)
        call = f"EXECUTE {name}({values})" if values else f"EXECUTE {name}"
        once = "INSERT INTO" in compiled.text
        for _ in range(1 if once else _SETTLED):
            rows = self._raw.execute(call.encode()).fetchall()
        explain = "EXPLAIN (FORMAT JSON)" if once else "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
        ((explained,),) = self._raw.execute(f"{explain} {call}".encode()).fetchall()
        self._read(compiled.text, explained[0]["Plan"], len(rows))
        return rows, len(rows)

    def _read(self, text: str, root: dict[str, Any], count: int) -> None:
        nodes = list(_nodes(root))
        # Parts of the plan that were never executed do not count.
        scanned = {n["Relation Name"] for n in nodes if n["Node Type"] == "Seq Scan" and n.get("Actual Loops", 1)}
        indexes = {node["Index Name"] for node in nodes if "Index Name" in node}
        cost = root.get("Shared Hit Blocks", 0) + root.get("Shared Read Blocks", 0)
        self.plans.append(Plan(text, frozenset(scanned), frozenset(indexes), cost, count))

    def command(self, text: str) -> None:
        self._raw.execute(text.encode())

    def close(self) -> None:
        self._raw.close()


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]"
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


@contextmanager
def explaining(url: str, *, at: int | None = None) -> Iterator[Callable[[Callable[[Tx], Any]], list[Plan]]]:
    """Yield a function that returns the plans of the statements of a transaction, and rolls the transaction back.

    Args:
        at: the instant of the transaction, by default the present one.
    """
    database = Database(url)
    connection = _Sqlite(url) if database.is_sqlite else _Postgres(url)

    def explained(act: Callable[[Tx], Any]) -> list[Plan]:
        connection.plans.clear()
        connection.command("BEGIN")
        try:
            if not database.is_sqlite:  # plans are read between two statements, which can take long on a busy machine
                connection.command("SET LOCAL idle_in_transaction_session_timeout = 0")
            tx = Tx(database, connection)
            tx.instant = at
            act(tx)
            tx.flush()
        finally:
            connection.command("ROLLBACK")
        assert connection.plans, "no statement was explained"
        return list(connection.plans)

    yield explained
    connection.close()
    database.close()


class _PlanOf(Statement):
    """Explains a statement instead of running it."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement

    def compiled(self, dialect: Dialect) -> Compiled:
        compiled = self._statement.compiled(dialect)
        explain = "EXPLAIN QUERY PLAN" if dialect.name == "sqlite" else "EXPLAIN"
        return compiled._replace(text=f"{explain} {compiled.text}")


def plan_of(tx: Tx, statement: Statement, **parameters: Any) -> str:
    """Return the plan of a statement without running it, a line for each step."""
    return "\n".join(str(row[-1]) for row in tx.all(_PlanOf(statement), **parameters))
