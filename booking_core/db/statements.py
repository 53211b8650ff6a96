"""SQL written once with SQLAlchemy, compiled once for each database, run by the bare driver.

SQLAlchemy builds the text; its execution layer is left out, since it costs more than most of our statements do. So a
column holds only what both drivers take and give as it is: text, integers, floats, booleans and null.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.type_api import TypeEngine


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

Row = tuple[Any, ...]
Build = Callable[[Dialect], ClauseElement]


class Statement:
    """A statement with named parameters, compiled for a dialect at its first use.

    Takes an expression, or a function of the dialect for the few that differ. A parameter named `now` is filled in
    with the instant by whoever runs it.
    """

    def __init__(self, source: ClauseElement | Build) -> None:
        self._source = source
        self._compiled: dict[str, Compiled] = {}

    def compiled(self, dialect: Dialect) -> "Compiled":
        """The text for the driver, and what goes with it."""
        known = self._compiled.get(dialect.name)
        if known is None:
            source = self._source if isinstance(self._source, ClauseElement) else self._source(dialect)
            compiled = source.compile(dialect=dialect)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            known = self._compiled[dialect.name] = Compiled(
                str(compiled), tuple(getattr(compiled, "positiontup", None) or ()), constants, "now" in compiled.params
            )
        return known


class Compiled(NamedTuple):
    """A statement as a driver takes it."""

    text: str
    positions: tuple[str, ...]
    """The parameters' names by position, where the driver counts them."""
    constants: dict[str, Any]
    """Literal values that SQLAlchemy turned into parameters."""
    wants_now: bool


def given(dialect: Dialect, name: str, columns: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]) -> FromClause:
    """Rows that the caller gives, to join with: one JSON parameter of that name (see `rows`).

    PostgreSQL expects a hundred rows of a function, and would rather read a whole table than look so many up in it.
    Under a limit that it does not know it expects a tenth of them; this one is never reached.
    """
    source = given_all(dialect, name, columns)
    if dialect.name != "postgresql":
        return source
    many = select(func.length(cast(bindparam(name, type_=Text), Text))).scalar_subquery()
    return select(*source.c).limit(many).subquery(name)


def given_all(
    dialect: Dialect, name: str, columns: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]
) -> FromClause:
    """The same rows, to be taken as they are."""
    if dialect.name == "postgresql":
        source = func.json_to_recordset(cast(bindparam(name, type_=Text), JSON))
        typed = [column(key, kind) for key, kind in columns.items()]
        return source.table_valued(*typed, name=name).render_derived(name=name, with_types=True)
    each = func.json_each(bindparam(name, type_=Text)).table_valued("value", name=f"{name}_json")
    picked = [
        func.json_extract(each.c.value, literal_column(f"'$.{key}'"), type_=kind).label(key)
        for key, kind in columns.items()
    ]
    return select(*picked).subquery(name)


def among(dialect: Dialect, target: ColumnElement[Any], name: str, key: str) -> ColumnElement[bool]:
    """Whether the column is one of the given rows' values, which are looked up in its index."""
    values = select(given_all(dialect, name, {key: target.type}).c[key])
    if dialect.name == "postgresql":
        array: ColumnElement[bool] = target == any_(func.array(values.scalar_subquery()))
        return array
    return target.in_(values)


def chosen_once(dialect: Dialect, chosen: Select[Any]) -> Select[Any]:
    """The rows that were chosen, for `in_`, chosen once.

    A subquery with a limit that locks what it finds and passes over what is locked gives other rows each time it is
    carried out, and PostgreSQL may carry it out again for each row that it is compared with. A CTE it does not; SQLite,
    which does neither, would no longer count what was deleted.
    """
    return chosen if dialect.name == "sqlite" else select(chosen.cte("chosen"))


def rows(items: Iterable[Mapping[str, object]]) -> str:
    """The parameter for `given`."""
    return orjson.dumps(list(items)).decode()


def now_us(dialect: Dialect) -> ColumnElement[int]:
    """The instant it is: what `now` says, or on PostgreSQL, when it says nothing, the database's own clock, which is
    the one clock that all processes share."""
    given_now = cast(bindparam("now", type_=BigInteger), BigInteger)
    if dialect.name != "postgresql":
        return given_now
    clock = cast(func.extract("epoch", func.clock_timestamp()) * literal_column("1000000"), BigInteger)
    return func.coalesce(given_now, clock, type_=BigInteger)
