"""Copies the rows of an organization from one cell to another.

Rows travel as the JSON that PostgreSQL makes of them and takes again, so that no value is interpreted on the way. A row
that would make a worker of the other cell act, such as a mail that is due, is not copied before the organization lives
there, or without what makes it due (decision 0051). The statements are built from the tables of this release alone.
"""

# ruff: noqa: S608

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Table, text

from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import POSTGRESQL, Statement

BATCH = 1_000
"""Rows in a transaction."""
_OF_MOVES = ("cell_moves", "cell_changes", "cell_arrivals", "cell_forwards")
AT_ONCE = (
    *("api_keys", "counters", "parked_work", "webhook_endpoints", "webhook_secrets", "webhook_subscriptions"),
    *("webhook_cursors", "webhook_leases", "webhook_ranges", "webhook_recoveries"),
    *("departure_followers", "departure_touches", "stripe_accounts"),
)
"""Tables that are copied when the organization leaves: they let clients in, and lead workers to its rows."""
_DUE = {
    "deliveries": "completed_at IS NULL",
    "effects": "status = 'queued'",
    "erasures": "finished_at IS NULL",
    "mails": "status = 'queued'",
    "refunds": "status IN ('requested', 'sending')",
}
"""Rows that workers act on. They are copied when the organization leaves, too."""
_HELD_BACK = {
    "bookings": {"expires_at": "CASE WHEN status = 'pending' THEN NULL ELSE expires_at END"},
    "departures": {"cancelling": "NULL", "minimum_checked_at": "coalesce(minimum_checked_at, 0)"},
    "payment_intents": {"check_at": "NULL"},
}
"""Columns that workers act on, of rows that others refer to: copied with these values first."""
_UNFINISHED = {
    "bookings": "status = 'pending'",
    "departures": "cancelling IS NOT NULL OR minimum_checked_at IS NULL",
    "payment_intents": "check_at IS NOT NULL",
}
"""The rows that differ by that."""


class Row(NamedTuple):
    """A row as JSON, and its primary key without the organization."""

    key: str
    row: str


class Hashed(NamedTuple):
    """The checksum of a row, and its primary key without the organization."""

    key: str
    checksum: str


def moved_tables() -> list[Table]:
    """Return the tables of an organization, each one behind those that it refers to."""
    return [each for each in tables.metadata.sorted_tables if owner_of(each) and each.name not in _OF_MOVES]


def owner_of(table: Table) -> str | None:
    """Return the column with the organization, if the table has one."""
    if table is tables.organizations:
        return "id"
    return "organization_id" if "organization_id" in table.c else None


def _names(table: Table) -> list[str]:
    return [column.name for column in table.c]


def key_of(table: Table) -> list[str]:
    """Return the columns of the primary key, without the organization."""
    return [column.name for column in table.primary_key if column.name != owner_of(table)]


# Reading -------------------------------------------------------------------------------------------------------------


def read_page(tx: Tx, table: Table, organization_id: str, after: str | None, limit: int = BATCH) -> list[Row]:
    """Return the next rows in the order of their keys, in the form in which they are held back."""
    return _rows(tx, _page(table, _output(table), after is not None), o=organization_id, after=after, n=limit)


def read_keys(tx: Tx, table: Table, organization_id: str, keys: Iterable[str]) -> list[Row]:
    """Return the rows of these keys that exist and are not left for the end."""
    return _rows(tx, _by_keys(table, _output(table), held_back=True), o=organization_id, keys=_array(keys))


def read_at_once(tx: Tx, table: Table, organization_id: str) -> list[Row]:
    """Return the rows of a table that are copied when the organization leaves, as they are."""
    condition = _at_once(table)
    return _rows(tx, _where(table, condition), o=organization_id) if condition else []


def _at_once(table: Table) -> str:
    """Return the condition of the rows that are copied when the organization leaves; an empty text: none."""
    return "true" if table.name in AT_ONCE else (_DUE | _UNFINISHED).get(table.name, "")


def _rows(tx: Tx, statement: Statement, **parameters: Any) -> list[Row]:
    return [Row(key, row) for key, row in tx.all(statement, **parameters)]


def _selected(table: Table, *, held_back: bool) -> str:
    """Return a subquery of the table with its columns, some of them held back."""
    instead = _HELD_BACK.get(table.name, {}) if held_back else {}
    columns = ", ".join(f'{instead.get(name, quoted(name))} AS "{name}"' for name in _names(table))
    due = f" AND NOT ({_DUE[table.name]})" if held_back and table.name in _DUE else ""
    return f'(SELECT {columns} FROM "{table.name}" WHERE "{owner_of(table)}" = CAST(:o AS uuid){due}) r'


def _output(table: Table) -> str:
    return f"{_key(table)}, CAST(row_to_json(r) AS text)"


def _key(table: Table) -> str:
    pairs = ", ".join(f"'{name}', r.\"{name}\"" for name in key_of(table))
    return f"CAST(json_build_object({pairs}) AS text)"


@cache
def _page(table: Table, output: str, is_behind: bool) -> Statement:
    keys = key_of(table)
    names, order = [f'r."{name}"' for name in keys], ", ".join(f'r."{name}"' for name in keys) or "1"
    condition = ""
    if is_behind and keys:
        values = [_value(table, name) for name in keys]
        condition = f"WHERE ({', '.join(names)}) > ({', '.join(values)})"
    elif is_behind:
        condition = "WHERE false"  # the organization's only row
    source = _selected(table, held_back=True)
    return Statement(text(f"SELECT {output} FROM {source} {condition} ORDER BY {order} LIMIT CAST(:n AS integer)"))


def _value(table: Table, name: str) -> str:
    kind = table.c[name].type.compile(dialect=POSTGRESQL)
    return f"CAST(CAST(:after AS json) ->> '{name}' AS {kind})"


@cache
def _by_keys(table: Table, output: str, *, held_back: bool) -> Statement:
    source = _selected(table, held_back=held_back)
    return Statement(text(f"SELECT {output} FROM {source} JOIN {_keys(table)} ON {_match(table, 'r')}"))


@cache
def _where(table: Table, condition: str) -> Statement:
    return Statement(text(f"SELECT {_output(table)} FROM {_selected(table, held_back=False)} WHERE {condition}"))


def _keys(table: Table) -> str:
    return f'json_populate_recordset(CAST(NULL AS "{table.name}"), CAST(:keys AS json)) k'


def _match(table: Table, alias: str) -> str:
    return " AND ".join(f'{alias}."{name}" = k."{name}"' for name in key_of(table)) or "true"


# Writing -------------------------------------------------------------------------------------------------------------


def write(tx: Tx, table: Table, rows: str) -> None:
    """Insert rows, and replace those that are there.

    Args:
        rows: a JSON array of rows.
    """
    tx.run(_upsert(table), rows=rows)


def delete_keys(tx: Tx, table: Table, organization_id: str, keys: Iterable[str]) -> None:
    """Delete the rows of these keys."""
    tx.run(_delete_keys(table), o=organization_id, keys=_array(keys))


def delete_some(tx: Tx, table: Table, organization_id: str, limit: int = BATCH) -> int:
    """Delete some rows of the organization, and return how many."""
    return tx.run(_delete_some(table), o=organization_id, n=limit)


def delete_live(tx: Tx, table: Table, organization_id: str) -> None:
    """Delete, or neutralize, what lets clients in and leads workers to the rows of an organization that has left."""
    statement = _delete_live(table)
    if statement:
        tx.run(statement, o=organization_id)


def as_array(rows: Sequence[Row]) -> str:
    """Return the rows as a JSON array."""
    return _array(each.row for each in rows)


def _array(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"


@cache
def _upsert(table: Table) -> Statement:
    columns = [quoted(name) for name in _names(table)]
    keys = [quoted(column.name) for column in table.primary_key]
    others = [name for name in columns if name not in keys]
    action = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
    listed = ", ".join(columns)
    return Statement(
        text(
            f'INSERT INTO "{table.name}" ({listed}) SELECT {listed}'
            f' FROM json_populate_recordset(CAST(NULL AS "{table.name}"), CAST(:rows AS json))'
            f" ON CONFLICT ({', '.join(keys)}) DO {action}"
        )
    )


@cache
def _delete_keys(table: Table) -> Statement:
    owner = owner_of(table)
    return Statement(
        text(
            f'DELETE FROM "{table.name}" t USING {_keys(table)}'
            f' WHERE t."{owner}" = CAST(:o AS uuid) AND {_match(table, "t")}'
        )
    )


@cache
def _delete_some(table: Table) -> Statement:
    owned = f'SELECT ctid FROM "{table.name}" WHERE "{owner_of(table)}" = CAST(:o AS uuid) LIMIT CAST(:n AS integer)'
    return Statement(text(f'DELETE FROM "{table.name}" WHERE ctid = ANY (ARRAY({owned}))'))


@cache
def _delete_live(table: Table) -> Statement | None:
    owned = f'WHERE "{owner_of(table)}" = CAST(:o AS uuid)'
    if table.name in AT_ONCE:
        return Statement(text(f'DELETE FROM "{table.name}" {owned}'))
    if table.name in _DUE:
        return Statement(text(f'DELETE FROM "{table.name}" {owned} AND {_DUE[table.name]}'))
    if table.name in _HELD_BACK:
        changes = ", ".join(f"{quoted(name)} = {value}" for name, value in _HELD_BACK[table.name].items())
        return Statement(text(f'UPDATE "{table.name}" SET {changes} {owned} AND ({_UNFINISHED[table.name]})'))
    return None


# Comparing -----------------------------------------------------------------------------------------------------------


def read_hashes(tx: Tx, table: Table, organization_id: str, after: str | None, limit: int) -> list[Hashed]:
    """Return checksums of the next rows in the order of their keys, in the form in which they are held back."""
    statement = _page(table, _hashed(table), after is not None)
    return [Hashed(*row) for row in tx.all(statement, o=organization_id, after=after, n=limit)]


def hashes_of(
    tx: Tx, table: Table, organization_id: str, keys: Iterable[str], *, held_back: bool = True
) -> list[Hashed]:
    """Return checksums of the rows of these keys that exist.

    Args:
        held_back: in the form in which they are held back, as the other cell has them before the organization leaves.
    """
    wanted = list(keys)
    if not wanted:
        return []
    statement = _by_keys(table, _hashed(table), held_back=held_back)
    return [Hashed(*row) for row in tx.all(statement, o=organization_id, keys=_array(wanted))]


def count(tx: Tx, table: Table, organization_id: str) -> int:
    """Return the number of rows of the organization."""
    return int(tx.all(_count(table), o=organization_id)[0][0])


def count_at_once(tx: Tx, table: Table, organization_id: str) -> int:
    """Return the number of rows that are copied when the organization leaves."""
    condition = _at_once(table)
    return int(tx.all(_count(table, condition), o=organization_id)[0][0]) if condition else 0


def canonical(key: str) -> str:
    """Return a key as one text, however PostgreSQL has written its JSON."""
    return json.dumps(json.loads(key), sort_keys=True)


def _hashed(table: Table) -> str:
    columns = ", ".join(f"r.{quoted(name)}" for name in _names(table))
    return f"{_key(table)}, md5(CAST(ROW({columns}) AS text))"


@cache
def _count(table: Table, condition: str = "true") -> Statement:
    return Statement(
        text(f'SELECT count(*) FROM "{table.name}" WHERE "{owner_of(table)}" = CAST(:o AS uuid) AND ({condition})')
    )


def digest(tx: Tx, table: Table, organization_id: str) -> tuple[int, str]:
    """Return the number of rows of the organization and a checksum of them."""
    ((count, checksum),) = tx.all(_digest(table), o=organization_id)
    return int(count), str(checksum)


@cache
def _digest(table: Table) -> Statement:
    columns = ", ".join(quoted(name) for name in _names(table))
    hashed = f"CAST(CAST('x' || substr(md5(CAST(ROW({columns}) AS text)), 1, 15) AS bit(60)) AS bigint)"
    source = f'"{table.name}" WHERE "{owner_of(table)}" = CAST(:o AS uuid)'
    return Statement(text(f"SELECT count(*), coalesce(sum({hashed}), 0) FROM {source}"))


def quoted(name: str) -> str:
    """Return a column's name in quotation marks, since some of them are words of SQL."""
    return f'"{name}"'
