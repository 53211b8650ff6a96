"""Statements: SQL written once with SQLAlchemy, compiled once for each database, and run by the driver itself.

SQLAlchemy builds the text. Its execution layer is not used, since it costs more than most statements of this service.
So a column has only types that both drivers take and return unchanged: text, integers, floats, booleans and null.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnCollection,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Table,
    TableClause,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    column,
    delete,
    func,
    literal_column,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
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
NamedColumns = ColumnCollection[str, Any]
Types = Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]


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


class _DialectRows(TableClause):
    """A FROM clause that the dialects write differently, with the same name and columns."""

    def __init__(self, name: str, columns: Types, build: Callable[[Dialect], FromClause]) -> None:
        super().__init__(name, *(column(key, kind) for key, kind in columns.items()))
        self.build = build


class _DialectExpression(ColumnElement[Any]):
    """An expression that the dialects write differently."""

    def __init__(self, kind: TypeEngine[Any], build: Callable[[Dialect], ColumnElement[Any]]) -> None:
        self.type, self.build = kind, build

    def self_group(self, against: Any = None) -> "_DialectExpression":
        """Return the expression itself: SQLAlchemy would compare a condition with 1 on SQLite, which uses no index."""
        return self


@compiles(_DialectRows)
@compiles(_DialectExpression)
def _compile(element: _DialectRows | _DialectExpression, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.build(compiler.dialect), **options)


def rows_parameter(name: str, columns: Types) -> FromClause:
    """Return the rows parameter of that name as a FROM clause, to join tables with: one JSON text (see `as_json`).

    PostgreSQL estimates a hundred rows for a function, and would rather read a whole table than look up so many rows.
    Under a limit with an unknown value it estimates a tenth of them; the limit given here is never reached. A random
    part makes it unknown: for a scalar subquery, which would too, Citus can distribute no statement that writes.
    """

    def build(dialect: Dialect) -> FromClause:
        source = _rows_from_json(dialect, name, columns)
        if dialect.name != "postgresql":
            return source
        many = cast(func.length(cast(bindparam(name, type_=Text), Text)) + func.random(), BigInteger)
        return select(*source.c).limit(many).subquery(name)

    return _DialectRows(name, columns, build)


def rows_from_json(name: str, columns: Types) -> FromClause:
    """Return the rows parameter of that name as a FROM clause, for statements that look no rows up by it."""
    return _DialectRows(name, columns, lambda dialect: _rows_from_json(dialect, name, columns))


def _rows_from_json(dialect: Dialect, name: str, columns: Types) -> FromClause:
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


def in_rows(target: ColumnElement[Any], name: str, key: str) -> ColumnElement[bool]:
    """Return the condition that the column has one of the values of a rows parameter, looked up in its index."""
    values = select(rows_from_json(name, {key: target.type}).c[key])

    def build(dialect: Dialect) -> ColumnElement[bool]:
        if dialect.name != "postgresql":
            return target.in_(values)
        array: ColumnElement[bool] = target == any_(func.array(values.scalar_subquery()))
        return array

    return _DialectExpression(Boolean(), build)


def on_postgresql(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition on PostgreSQL, and true on SQLite: a lock, which its one writer does not need."""
    return _DialectExpression(Boolean(), lambda dialect: condition if dialect.name == "postgresql" else true())


def columns_of(names: Iterable[str], *tables: FromClause, **others: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return the columns of a row by the names of its fields: one of the others, or of the first table that has it."""
    return [
        others[name] if name in others else next(table.c[name] for table in tables if name in table.c) for name in names
    ]


def has_key(table: Table, rows: FromClause, **names: str) -> ColumnElement[bool]:
    """Return the condition that a row of the table has the primary key of one of the rows, for a join.

    Args:
        names: the columns of the rows that are named otherwise than those of the key.
    """
    return and_(*(column == rows.c[names.get(column.name, column.name)] for column in table.primary_key))


def is_of(row: NamedColumns, other: NamedColumns, **names: str) -> ColumnElement[bool]:
    """Return the condition that a row is of the organization of another one, and that the columns have its values of
    these names."""
    same = (row[column] == other[name] for column, name in names.items())
    return and_(row.organization_id == other.organization_id, *same)


def in_selected(key: ColumnElement[Any], selected: Select[Any]) -> ColumnElement[bool]:
    """Return the condition that the key is one of the selected ones, which are evaluated once.

    A subquery with LIMIT and SKIP LOCKED returns other rows each time it is evaluated, and PostgreSQL may evaluate it
    again for each row that is compared with it; a CTE is evaluated once. SQLite evaluates both once, and with a CTE
    would no longer count the deleted rows.
    """

    def build(dialect: Dialect) -> ColumnElement[bool]:
        return key.in_(selected if dialect.name == "sqlite" else select(selected.cte("selected")))

    return _DialectExpression(Boolean(), build)


def rows_before(table: Table, at: ColumnElement[int], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Select and lock the keys of rows from before the parameter `before`, the oldest first, at most `limit`.

    Rows that another transaction has locked are left for the next time.
    """
    return (
        select(*table.primary_key)
        .where(at < bindparam("before"), *conditions)
        .order_by(at)
        .limit(LIMIT)
        .with_for_update(skip_locked=True)
    )


def purge_before(table: Table, at: ColumnElement[int], *conditions: ColumnElement[bool]) -> Statement:
    """Return the statement that deletes the rows of `rows_before`."""
    return Statement(delete(table).where(in_selected(tuple_(*table.primary_key), rows_before(table, at, *conditions))))


def as_json(rows: Iterable[Mapping[str, object]]) -> str:
    """Return the value of a rows parameter."""
    return orjson.dumps(list(rows)).decode()


def as_rows(names: Collection[str], rows: Iterable[Iterable[object]]) -> str:
    """Return the value of a rows parameter with columns of these names."""
    return as_json(dict(zip(names, row, strict=True)) for row in rows)


def as_ids(ids: Iterable[str]) -> str:
    """Return the value of a rows parameter of ids, as `in_rows` compares them."""
    return as_json({"id": row_id} for row_id in ids)


def _now(dialect: Dialect) -> ColumnElement[int]:
    parameter = cast(bindparam("now", type_=BigInteger), BigInteger)
    if dialect.name != "postgresql":
        return parameter
    clock = cast(func.extract("epoch", func.clock_timestamp()) * literal_column("1000000"), BigInteger)
    return func.coalesce(parameter, clock, type_=BigInteger)


NOW: ColumnElement[int] = _DialectExpression(BigInteger(), _now)
"""The present instant in microseconds: the parameter `now`, or on PostgreSQL, when that is null, the database's clock,
which all processes share."""
