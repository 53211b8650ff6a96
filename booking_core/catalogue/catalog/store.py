"""SQL statements of imports and exports.

Rows are dicts by column with parsed JSON. An import reads with a fixed number of statements, for any number of entries.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    select,
)
from sqlalchemy.engine import Dialect

from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, rows_parameter
from booking_core.db.tables import Id, customers, departures, experiences, gift_card_entries, gift_cards
from booking_core.db.unit_of_work import Update

Row = dict[str, Any]

_JSON = frozenset({"languages", "tags", "price_tiers", "add_ons", "prices", "what_to_bring", "translations"})
_ORGANIZATION = bindparam("organization_id", type_=Id)


_SET_ON_WRITE = {"organization_id", "created_at", "updated_at"}


def _columns(table: Table, *left_out: str) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.name not in _SET_ON_WRITE.union(left_out))


class _TableReader:
    """A reader that returns the rows of one table as dicts."""

    def __init__(self, table: Table, *left_out: str) -> None:
        self.table = table
        self.columns = _columns(table, *left_out)
        self._select = select(*(table.c[name] for name in self.columns))
        self._flags = tuple(name for name in self.columns if isinstance(table.c[name].type, Boolean))
        self._json = tuple(name for name in self.columns if name in _JSON)

    def all(self, tx: Tx, statement: Statement, **parameters: object) -> list[Row]:
        return [self._row(values) for values in tx.all(statement, **parameters)]

    def _row(self, values: tuple[Any, ...]) -> Row:
        row = dict(zip(self.columns, values, strict=True))
        for name in self._flags:
            row[name] = bool(row[name])
        for name in self._json:
            row[name] = None if row[name] is None else orjson.loads(row[name])
        return row

    def where(self, *conditions: ColumnElement[bool]) -> Select[Any]:
        """Select the organization's rows that meet the conditions."""
        return self._select.where(self.table.c.organization_id == _ORGANIZATION, *conditions)

    def every(self, *order: str) -> Statement:
        """Return the statement for all rows of the organization, sorted by these columns and the id."""
        return Statement(self.where().order_by(*(self.table.c[name] for name in (*order, "id"))))

    def wanted(self, kinds: Mapping[str, Any]) -> Statement:
        """Return the statement for rows whose columns equal a row of the parameter `wanted`.

        The organization is part of each wanted row, so that SQLite looks each of them up. With a separate parameter it
        would scan all rows of the organization, and all wanted rows for each of them.
        """
        kinds = {"organization_id": Id, **kinds}

        def build(dialect: Dialect) -> Select[Any]:
            wanted = rows_parameter(dialect, "wanted", kinds)
            return self._select.join(wanted, and_(*(self.table.c[name] == wanted.c[name] for name in kinds)))

        return Statement(build)


# Reading ---------------------------------------------------------------------------------------------------------

_EXPERIENCES = _TableReader(experiences)
_DEPARTURES = _TableReader(departures, "seats_ceiling")
_CUSTOMERS = _TableReader(customers)
_GIFT_CARDS = _TableReader(gift_cards)

_EVERY_EXPERIENCE = _EXPERIENCES.every("created_at")
_EVERY_DEPARTURE = _DEPARTURES.every("starts_at")
_EVERY_CUSTOMER = _CUSTOMERS.every("created_at")
_EVERY_GIFT_CARD = _GIFT_CARDS.every("created_at")

_ID = {"id": Id}
_DEPARTURES_BY_ID = _DEPARTURES.wanted(_ID)
_DEPARTURES_BY_START = _DEPARTURES.wanted({"experience_id": Id, "starts_at": BigInteger})
_DEPARTURES_OF_ONE = Statement(_DEPARTURES.where(departures.c.experience_id == bindparam("id", type_=Id)))
_CUSTOMERS_BY_ID = _CUSTOMERS.wanted(_ID)
_CUSTOMERS_BY_KEY = _CUSTOMERS.wanted({"email_key": Text})
_GIFT_CARDS_BY_ID = _GIFT_CARDS.wanted(_ID)
_GIFT_CARDS_BY_HASH = _GIFT_CARDS.wanted({"code_hash": Text})


def every_experience(tx: Tx, organization_id: str) -> list[Row]:
    """Return all rows, oldest first."""
    return _EXPERIENCES.all(tx, _EVERY_EXPERIENCE, organization_id=organization_id)


def every_departure(tx: Tx, organization_id: str) -> list[Row]:
    """Return all rows, sorted by start."""
    return _DEPARTURES.all(tx, _EVERY_DEPARTURE, organization_id=organization_id)


def every_customer(tx: Tx, organization_id: str) -> list[Row]:
    """Return all rows, oldest first."""
    return _CUSTOMERS.all(tx, _EVERY_CUSTOMER, organization_id=organization_id)


def every_gift_card(tx: Tx, organization_id: str) -> list[Row]:
    """Return all rows, oldest first."""
    return _GIFT_CARDS.all(tx, _EVERY_GIFT_CARD, organization_id=organization_id)


def _found(
    tx: Tx, reading: _TableReader, statement: Statement, organization_id: str, wanted: Iterable[Mapping[str, object]]
) -> list[Row]:
    asked = [{"organization_id": organization_id, **each} for each in wanted]
    return reading.all(tx, statement, wanted=as_json(asked)) if asked else []


def _by_ids(
    tx: Tx, reading: _TableReader, statement: Statement, organization_id: str, ids: Iterable[str | None]
) -> list[Row]:
    return _found(tx, reading, statement, organization_id, ({"id": each} for each in ids if each))


def departures_by_id(tx: Tx, organization_id: str, ids: Iterable[str | None]) -> list[Row]:
    return _by_ids(tx, _DEPARTURES, _DEPARTURES_BY_ID, organization_id, ids)


def departures_by_start(tx: Tx, organization_id: str, starts: Iterable[tuple[str, int]]) -> list[Row]:
    wanted = ({"experience_id": experience_id, "starts_at": starts_at} for experience_id, starts_at in starts)
    return _found(tx, _DEPARTURES, _DEPARTURES_BY_START, organization_id, wanted)


def departures_of(tx: Tx, organization_id: str, experience_id: str) -> list[Row]:
    return _DEPARTURES.all(tx, _DEPARTURES_OF_ONE, organization_id=organization_id, id=experience_id)


def customers_by_id(tx: Tx, organization_id: str, ids: Iterable[str | None]) -> list[Row]:
    return _by_ids(tx, _CUSTOMERS, _CUSTOMERS_BY_ID, organization_id, ids)


def customers_by_key(tx: Tx, organization_id: str, keys: Iterable[str]) -> list[Row]:
    wanted = ({"email_key": key} for key in keys)
    return _found(tx, _CUSTOMERS, _CUSTOMERS_BY_KEY, organization_id, wanted)


def gift_cards_by_id(tx: Tx, organization_id: str, ids: Iterable[str | None]) -> list[Row]:
    return _by_ids(tx, _GIFT_CARDS, _GIFT_CARDS_BY_ID, organization_id, ids)


def gift_cards_by_hash(tx: Tx, organization_id: str, hashes: Iterable[str]) -> list[Row]:
    wanted = ({"code_hash": each} for each in hashes)
    return _found(tx, _GIFT_CARDS, _GIFT_CARDS_BY_HASH, organization_id, wanted)


# Writing ---------------------------------------------------------------------------------------------------------

_VACATE = Update("vacate", departures, sets=("starts_at",))


def _stored(row: Row) -> Row:
    return {
        key: orjson.dumps(value).decode() if key in _JSON and value is not None else value for key, value in row.items()
    }


def insert(tx: Tx, table: Table, organization_id: str, row: Row, *, now: int) -> None:
    """Insert a row into one of the four tables."""
    tx.insert(table, organization_id=organization_id, **_stored(row), created_at=now, updated_at=now)


def change(tx: Tx, table: Table, organization_id: str, row: Row, *, now: int) -> None:
    """Update only the columns of `row`, so that concurrent changes of other columns are kept."""
    columns = _stored(row) | {"organization_id": organization_id, "updated_at": now}
    sets = tuple(sorted(columns.keys() - {"organization_id", "id"}))
    name = f"{table.name}_{zlib.crc32(','.join(sets).encode()):08x}"  # all the columns would be too long for a name
    tx.update(Update(name, table, sets=sets), **columns)


def insert_entry(tx: Tx, organization_id: str, row: Row, *, now: int) -> None:
    """Insert a line into the ledger of a gift card."""
    tx.insert(gift_card_entries, organization_id=organization_id, **row, booking_id=None, created_at=now)


def vacate(tx: Tx, organization_id: str, ids: Iterable[str]) -> None:
    """Move departures to distinct starts before 1970, so that others can take over their starts."""
    for i, each in enumerate(sorted(ids)):
        tx.update(_VACATE, organization_id=organization_id, id=each, starts_at=-1 - i)
    tx.flush()  # before any start is taken: one statement would change both in any order
