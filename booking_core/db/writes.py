"""What a transaction is about to write, collected first and written at once.

On PostgreSQL all of it is one statement, whatever the number of rows: each table's rows travel as one JSON parameter
into a data-modifying CTE, and its long texts beside it, since to quote and to parse them costs more than to store them.
On SQLite each table is one `executemany`. A batch of bookings is bound by its round trips,
and the counter lock is held until the last of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import ARRAY, Integer, Table, Text, bindparam, cast, insert, literal_column, select, update
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.dml import Insert, Update
from sqlalchemy.sql.elements import Grouping

from booking_core.db.statements import POSTGRESQL, Statement, given, given_all

Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """An update of rows found by their key: columns to set, and columns to add to (`seats_taken += n`)."""

    name: str
    table: Table
    sets: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    keys: tuple[str, ...] = ("organization_id", "id")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.sets, *self.adds)

    def on(self, dialect: Dialect) -> Update:
        """The update: joined with the given rows on PostgreSQL, one row at a time on SQLite."""
        table = self.table
        if dialect.name == "postgresql":
            source: Any = given(dialect, self.name, {key: table.c[key].type for key in self.columns}).c
        else:
            source = {key: bindparam(f"_{key}", type_=table.c[key].type) for key in self.columns}
        changed = {key: source[key] for key in self.sets} | {key: table.c[key] + source[key] for key in self.adds}
        return update(table).where(*(table.c[key] == source[key] for key in self.keys)).values(changed)


@dataclass(frozen=True)
class Derived:
    """What the database derives from given rows: others to insert, such as the deliveries of an event, or to update."""

    name: str
    build: Callable[[Dialect, str], Insert | Update]
    """Makes the statement, from the dialect and the name of its JSON parameter."""


Target = Table | Change | Derived


class Writes:
    """Rows by target, in the order the targets were first named."""

    def __init__(self) -> None:
        self.rows: dict[Target, list[Row]] = {}

    def insert(self, table: Table, **row: object) -> None:
        """One row of the table. All rows of one table name the same columns."""
        self.rows.setdefault(table, []).append(row)

    def change(self, change: Change, **row: object) -> None:
        """One row to update. A key occurs once."""
        self.rows.setdefault(change, []).append(row)

    def derive(self, derived: Derived, **row: object) -> None:
        """One row to derive others from."""
        self.rows.setdefault(derived, []).append(row)


_AT = "at_"
"""Where a row's long texts stand in their arrays, counted from 1 as PostgreSQL does."""


@lru_cache
def _long_columns(target: "Target") -> tuple[str, ...]:
    return tuple(column.name for column in target.c if column.info.get("long")) if isinstance(target, Table) else ()


def _insert_given(dialect: Dialect, table: Table, columns: tuple[str, ...]) -> Insert:
    long = _long_columns(table)
    kinds: dict[str, Any] = {key: table.c[key].type for key in columns if key not in long}
    source = given_all(dialect, table.name, kinds | {_AT: Integer} if long else kinds).c
    arrays: dict[str, Any] = {key: Grouping(cast(bindparam(f"{table.name}_{key}"), ARRAY(Text))) for key in long}
    values = (arrays[key][source[_AT]] if key in arrays else source[key] for key in columns)
    return insert(table).from_select(list(columns), select(*values))


def as_parameters(writes: Writes) -> dict[str, str | list[str]]:
    """What `as_one_statement` takes: each target's rows as JSON, and arrays of its long texts."""
    parameters: dict[str, str | list[str]] = {}
    for target, items in writes.rows.items():
        long = _long_columns(target)
        for key in long:
            parameters[f"{target.name}_{key}"] = [item[key] for item in items]
        if long:
            apart: Row = dict.fromkeys(long)
            items = [item | apart | {_AT: at} for at, item in enumerate(items, start=1)]
        parameters[target.name] = as_json(items)
    return parameters


Shape = tuple[tuple[Target, tuple[str, ...]], ...]


def shape(writes: Writes) -> Shape:
    """The targets and their columns: what one compiled statement serves."""
    return tuple((target, tuple(items[0])) for target, items in writes.rows.items())


@lru_cache(maxsize=512)
def as_one_statement(wanted: Shape) -> Statement:
    """All targets in one PostgreSQL statement."""
    parts: list[Any] = []
    for target, columns in wanted:
        if isinstance(target, Table):
            parts.append(_insert_given(POSTGRESQL, target, columns))
        elif isinstance(target, Change):
            parts.append(target.on(POSTGRESQL))
        else:
            parts.append(target.build(POSTGRESQL, target.name))
    return Statement(select(literal_column("1")).add_cte(*(part.cte(f"w{i}") for i, part in enumerate(parts))))


@lru_cache(maxsize=512)
def as_row_statement(target: Table | Change, columns: tuple[str, ...]) -> Statement:
    """One target's statement for `executemany`."""
    if isinstance(target, Change):
        return Statement(target.on)
    return Statement(insert(target).values({key: bindparam(key, type_=target.c[key].type) for key in columns}))


@lru_cache(maxsize=512)
def as_given_statement(target: Derived) -> Statement:
    """One derived insert, by itself."""
    return Statement(lambda dialect: target.build(dialect, target.name))


def target_name(target: Target) -> str:
    """The name of the target's JSON parameter."""
    return target.name


def as_json(items: list[Row]) -> str:
    return orjson.dumps(items).decode()
