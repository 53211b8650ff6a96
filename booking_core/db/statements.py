"""Statements: SQL written once with SQLAlchemy, compiled once for each database, and run by the driver itself.

SQLAlchemy builds the text. Its execution layer is not used, since it costs more than most statements of this service.
So a column has only types that both drivers take and return unchanged: text, integers, floats, booleans and null.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    column,
    delete,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.type_api import TypeEngine

from booking_core.db.tables import Id


class _SqliteCompiler(SQLiteCompiler):
    """SQLAlchemy's compiler, which leaves out the hints of `Select.with_hint`."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        """Return the hint as it was written, such as `INDEXED BY name`."""
        return text


class _SqliteDialect(SQLiteDialect_pysqlite):
    statement_compiler = _SqliteCompiler
    supports_statement_cache = True


SQLITE: Dialect = _SqliteDialect(paramstyle="named")
POSTGRESQL: Dialect = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]

_WRITE = re.compile(r"\b(?:INSERT INTO|DELETE FROM|(?<!FOR )(?<!KEY )UPDATE(?! OF\b| SKIP\b| NOWAIT\b)) *\w")
"""The beginning of a statement, or of a part of it, that changes rows. A lock (FOR UPDATE) changes none."""

OWNER, ROW_ID = bindparam("organization_id", type_=Id), bindparam("id", type_=Id)
LIMIT = bindparam("limit", type_=Integer)
"""The parameters that most statements share: an organization, the id of one of its rows, and a number of rows."""

Row = tuple[Any, ...]
Build = Callable[[Dialect], ClauseElement]


class Statement:
    """A statement with named parameters, compiled for a dialect at its first use.

    Made from an expression, or from a function of the dialect where the dialects differ. `Tx` fills in a parameter
    named `now` with the present instant.
    """

    def __init__(self, source: ClauseElement | Build) -> None:
        self._source = source
        self._compiled: dict[str, Compiled] = {}

    def compiled(self, dialect: Dialect) -> "Compiled":
        """Return the statement as the dialect's driver takes it."""
        entry = self._compiled.get(dialect.name)
        if entry is None:
            source = self._source if isinstance(self._source, ClauseElement) else self._source(dialect)
            compiled = source.compile(dialect=dialect)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            positions = tuple(getattr(compiled, "positiontup", None) or ())
            text, wants_now = str(compiled), "now" in compiled.params
            changes_rows = bool(_WRITE.search(text))
            entry = self._compiled[dialect.name] = Compiled(text, positions, constants, wants_now, changes_rows)
        return entry


class Compiled(NamedTuple):
    """A statement as a driver takes it."""

    text: str
    positions: tuple[str, ...]
    """The parameters' names by position, where the driver counts them."""
    constants: dict[str, Any]
    """Literal values that SQLAlchemy turned into parameters."""
    wants_now: bool
    changes_rows: bool = False
    """It inserts, updates or deletes rows."""


def rows_parameter(
    dialect: Dialect, name: str, columns: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]
) -> FromClause:
    """Return the rows parameter of that name as a FROM clause, to join tables with: one JSON text (see `as_json`).

    PostgreSQL estimates a hundred rows for a function, and would rather read a whole table than look up so many rows.
    Under a limit with an unknown value it estimates a tenth of them; the limit given here is never reached. A random
    part makes it unknown: for a scalar subquery, which would too, Citus can distribute no statement that writes.
    """
    source = rows_from_json(dialect, name, columns)
    if dialect.name != "postgresql":
        return source
    many = cast(func.length(cast(bindparam(name, type_=Text), Text)) + func.random(), BigInteger)
    return select(*source.c).limit(many).subquery(name)


def rows_from_json(
    dialect: Dialect, name: str, columns: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]
) -> FromClause:
    """Return the rows parameter of that name as a FROM clause, for statements that look no rows up by it."""
    if dialect.name == "postgresql":
        source = func.json_to_recordset(cast(bindparam(name, type_=Text), JSON))
        typed = [column(key, kind) for key, kind in columns.items()]
        return source.table_valued(*typed, name=name).render_derived(name=name, with_types=True)
    elements = func.json_each(bindparam(name, type_=Text)).table_valued("value", name=f"{name}_json")
    picked = [
        func.json_extract(elements.c.value, literal_column(f"'$.{key}'"), type_=kind).label(key)
        for key, kind in columns.items()
    ]
    return select(*picked).subquery(name)


def in_rows(dialect: Dialect, target: ColumnElement[Any], name: str, key: str) -> ColumnElement[bool]:
    """Return the condition that the column has one of the values of a rows parameter, looked up in its index."""
    values = select(rows_from_json(dialect, name, {key: target.type}).c[key])
    if dialect.name == "postgresql":
        array: ColumnElement[bool] = target == any_(func.array(values.scalar_subquery()))
        return array
    return target.in_(values)


def materialized(dialect: Dialect, selected: Select[Any]) -> Select[Any]:
    """Return the selected keys for `in_`, evaluated once.

    A subquery with LIMIT and SKIP LOCKED returns other rows each time it is evaluated, and PostgreSQL may evaluate it
    again for each row that is compared with it; a CTE is evaluated once. SQLite evaluates both once, and with a CTE
    would no longer count the deleted rows.
    """
    return selected if dialect.name == "sqlite" else select(selected.cte("selected"))


def rows_before(table: Table, at: ColumnElement[int], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Select and lock the keys of rows from before the parameter `before`, the oldest first, at most `limit`.

    Rows that another transaction has locked are left for the next time.
    """
    return (
        select(*table.primary_key)
        .where(at < bindparam("before", type_=BigInteger), *conditions)
        .order_by(at)
        .limit(LIMIT)
        .with_for_update(skip_locked=True)
    )


def purge_before(table: Table, at: ColumnElement[int], *conditions: ColumnElement[bool]) -> Statement:
    """Return the statement that deletes the rows of `rows_before`."""
    old, key = rows_before(table, at, *conditions), tuple_(*table.primary_key)
    return Statement(lambda dialect: delete(table).where(key.in_(materialized(dialect, old))))


def as_json(rows: Iterable[Mapping[str, object]]) -> str:
    """Return the value of a rows parameter."""
    return orjson.dumps(list(rows)).decode()


def as_ids(ids: Iterable[str]) -> str:
    """Return the value of a rows parameter of ids, as `in_rows` compares them."""
    return as_json({"id": row_id} for row_id in ids)


def now_us(dialect: Dialect) -> ColumnElement[int]:
    """Return the present instant in microseconds: the parameter `now`, or on PostgreSQL, when that is null, the
    database's clock, which all processes share."""
    parameter = cast(bindparam("now", type_=BigInteger), BigInteger)
    if dialect.name != "postgresql":
        return parameter
    clock = cast(func.extract("epoch", func.clock_timestamp()) * literal_column("1000000"), BigInteger)
    return func.coalesce(parameter, clock, type_=BigInteger)
