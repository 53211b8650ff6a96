"""The unit of work: rows that a transaction collects and sends together.

On PostgreSQL all of them are one statement, for any number of rows: each table's rows travel as one JSON parameter into
a data-modifying CTE, and long texts beside it as arrays, since quoting and parsing them costs more than storing them.
On SQLite each table is one `executemany`. A batch of bookings is bound by its round trips, and the lock of the
sequences is held until the last of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Table,
    Text,
    bindparam,
    cast,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml
from sqlalchemy.sql.elements import Grouping

from booking_core.db.statements import POSTGRESQL, Statement, as_json, rows_from_json, rows_parameter

ColumnValues = dict[str, Any]
Merge = tuple[str, Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[Any]]]
"""A column, and the function that returns its new value from the stored one and the given one."""


@dataclass(frozen=True)
class Update:
    """An update of rows found by their primary key: columns to set, to add to (`seats_taken += n`), and to merge."""

    name: str
    table: Table
    sets: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    merges: tuple[Merge, ...] = ()
    conditions: tuple[str, ...] = ()
    """Columns that must have the value of the row, such as a lease token: else the row stays as it is."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.sets, *self.adds, *(name for name, _ in self.merges))

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.primary_key, *self.conditions)

    @cached_property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(str(column.name) for column in self.table.primary_key)

    def identity(self, row: ColumnValues) -> tuple[object, ...]:
        """Return the table and the primary key of a row, equal for two updates of one row."""
        return (self.table, *(row[key] for key in self.primary_key))

    def on(self, dialect: Dialect) -> dml.Update:
        """Return the statement: joined with the rows parameter on PostgreSQL, one row at a time on SQLite."""
        table = self.table
        if dialect.name == "postgresql":
            source: Any = rows_parameter(self.name, {key: table.c[key].type for key in self.columns}).c
        else:
            source = {key: bindparam(f"_{key}", type_=table.c[key].type) for key in self.columns}
        changed = {key: source[key] for key in self.sets} | {key: table.c[key] + source[key] for key in self.adds}
        changed |= {key: merge(table.c[key], source[key]) for key, merge in self.merges}
        return update(table).where(*(table.c[key] == source[key] for key in self.keys)).values(changed)


@lru_cache(maxsize=512)
def update_of(table: Table, columns: tuple[str, ...]) -> Update:
    """Return the update that sets these columns of a row, all but its primary key."""
    sets = tuple(sorted(set(columns) - {column.name for column in table.primary_key}))
    digest = blake2b(",".join(sets).encode(), digest_size=8)  # all the columns would be too long for a name
    return Update(f"{table.name}_{digest.hexdigest()}", table, sets=sets)


@dataclass(frozen=True)
class InsertFromSelect:
    """Rows that the database derives from collected rows, such as the deliveries of an event; also to update, and to
    delete."""

    name: str
    build: Callable[[str], dml.Insert | dml.Update | dml.Delete]
    """Makes the statement from the name of its rows parameter."""


WriteTarget = Table | Update | InsertFromSelect


class UnitOfWork:
    """Collected rows by target, in the order of the targets' first use."""

    def __init__(self) -> None:
        self.rows: dict[WriteTarget, list[ColumnValues]] = {}
        self._updated: set[tuple[object, ...]] = set()

    def accepts_insert(self, table: Table, row: ColumnValues) -> bool:
        """Return False for a row with other columns than the collected rows of the table: those have to be sent
        first."""
        rows = self.rows.get(table)
        return not rows or rows[0].keys() == row.keys()

    def insert(self, table: Table, row: ColumnValues) -> None:
        """Collect a row that `accepts_insert` accepts."""
        self.rows.setdefault(table, []).append(row)

    def accepts_update(self, target: Update, row: ColumnValues) -> bool:
        """Return False when an update of the row is collected already: one PostgreSQL statement changes a row once. The
        collected update has to be sent first."""
        return target.identity(row) not in self._updated

    def update(self, target: Update, row: ColumnValues) -> None:
        """Collect an update that `accepts_update` accepts."""
        self._updated.add(target.identity(row))
        self.rows.setdefault(target, []).append(row)

    def insert_from_select(self, target: InsertFromSelect, rows: Sequence[ColumnValues]) -> None:
        """Collect rows to derive others from."""
        self.rows.setdefault(target, []).extend(rows)

    def in_order(self) -> list[tuple[WriteTarget, list[ColumnValues]]]:
        """Return the rows by target, referenced tables before those that refer to them, then the updates."""
        return sorted(self.rows.items(), key=lambda item: _position(item[0]))

    def mark(self) -> "Mark":
        """Return the present extent, for `discard`."""
        return {target: len(rows) for target, rows in self.rows.items()}

    def has_grown(self, mark: "Mark") -> bool:
        """Return whether a row was collected since the mark."""
        return any(len(rows) > mark.get(target, 0) for target, rows in self.rows.items())

    def discard(self, mark: "Mark") -> None:
        """Drop every row that was collected since the mark."""
        for target, rows in self.rows.items():
            dropped = rows[mark.get(target, 0) :]
            del rows[mark.get(target, 0) :]
            if isinstance(target, Update):
                self._updated.difference_update(map(target.identity, dropped))
        self.rows = {target: rows for target, rows in self.rows.items() if rows}


Mark = dict[WriteTarget, int]
"""The number of rows by target."""

_LAST = 1_000


@lru_cache
def _position(target: WriteTarget) -> int:
    return target.metadata.sorted_tables.index(target) if isinstance(target, Table) else _LAST


_AT = "at_"
"""The column with the position of a row's long texts in their arrays, counted from 1 as PostgreSQL does."""


@lru_cache
def _long_columns(target: WriteTarget) -> tuple[str, ...]:
    return tuple(column.name for column in target.c if column.info.get("long")) if isinstance(target, Table) else ()


def _insert_rows(table: Table, columns: tuple[str, ...]) -> dml.Insert:
    long = _long_columns(table)
    kinds: dict[str, Any] = {key: table.c[key].type for key in columns if key not in long}
    source = rows_from_json(table.name, kinds | {_AT: Integer} if long else kinds).c
    arrays: dict[str, Any] = {key: Grouping(cast(bindparam(f"{table.name}_{key}"), ARRAY(Text))) for key in long}
    values = (arrays[key][source[_AT]] if key in arrays else source[key] for key in columns)
    return insert(table).from_select(list(columns), select(*values))


def as_parameters(work: UnitOfWork) -> dict[str, str | list[str]]:
    """Return the parameters of `as_one_statement`: each target's rows as JSON, and arrays of its long texts."""
    parameters: dict[str, str | list[str]] = {}
    for target, rows in work.rows.items():
        long = _long_columns(target)
        for key in long:
            parameters[f"{target.name}_{key}"] = [row[key] for row in rows]
        if long:
            apart: ColumnValues = dict.fromkeys(long)
            rows = [row | apart | {_AT: at} for at, row in enumerate(rows, start=1)]
        parameters[target.name] = as_json(rows)
    return parameters


Shape = tuple[tuple[WriteTarget, tuple[str, ...]], ...]


def shape(work: UnitOfWork) -> Shape:
    """Return the targets and their columns: one compiled statement serves every unit of work of one shape."""
    return tuple((target, tuple(rows[0])) for target, rows in work.rows.items())


def _referenced_first(shape: Shape) -> Shape:
    """Return the targets in their order, but each table after the tables that it refers to.

    PostgreSQL checks foreign keys when the statement ends, and Citus when each part of it does.
    """
    ordered: Shape = ()
    for part in shape:
        ordered = _with(part, ordered, shape)
    return ordered


def _with(part: tuple[WriteTarget, tuple[str, ...]], ordered: Shape, shape: Shape) -> Shape:
    if part in ordered:
        return ordered
    target = part[0]
    referenced = {key.column.table for key in target.foreign_keys} - {target} if isinstance(target, Table) else set()
    for other in shape:
        if other[0] in referenced:
            ordered = _with(other, ordered, shape)
    return (*ordered, part)


@lru_cache(maxsize=512)
def as_one_statement(shape: Shape) -> Statement:
    """Return one PostgreSQL statement that writes all targets."""
    parts: list[Any] = []
    for target, columns in _referenced_first(shape):
        if isinstance(target, Table):
            parts.append(_insert_rows(target, columns))
        elif isinstance(target, Update):
            parts.append(target.on(POSTGRESQL))
        else:
            parts.append(target.build(target.name))
    return Statement(select(literal_column("1")).add_cte(*(part.cte(f"w{i}") for i, part in enumerate(parts))))


@lru_cache(maxsize=512)
def as_row_statement(target: Table | Update, columns: tuple[str, ...]) -> Statement:
    """Return the statement that writes one row of a target, for `executemany`."""
    if isinstance(target, Update):
        return Statement(target.on)
    return Statement(insert(target).values({key: bindparam(key, type_=target.c[key].type) for key in columns}))


@lru_cache(maxsize=512)
def as_rows_statement(target: InsertFromSelect) -> Statement:
    """Return the statement that derives the rows of one target alone."""
    return Statement(target.build(target.name))
