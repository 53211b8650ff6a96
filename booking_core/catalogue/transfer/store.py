"""SQL statements of imports and exports.

Rows are dicts by column with parsed JSON. An import reads with a fixed number of statements, for any number of entries.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Boolean, Table, and_, select

from booking_core.catalogue.transfer.changes import CatalogueRow
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, Statement, as_json, rows_parameter
from booking_core.db.tables import customers, departures, experiences, gift_cards

_JSON = frozenset({"languages", "tags", "price_tiers", "add_ons", "prices", "what_to_bring", "translations"})
_SET_ON_WRITE = frozenset({"organization_id", "created_at", "updated_at"})


class TableReader:
    """A reader of the organization's rows of one table.

    Args:
        order: the column that `every` sorts by.
        left_out: columns that are not read.
    """

    def __init__(self, table: Table, order: str, *left_out: str) -> None:
        self.table = table
        columns = [column for column in table.columns if column.name not in _SET_ON_WRITE.union(left_out)]
        self._names = [column.name for column in columns]
        self._flags = [column.name for column in columns if isinstance(column.type, Boolean)]
        self._json = [name for name in self._names if name in _JSON]
        self._select = select(*columns)
        of_organization = self._select.where(table.c.organization_id == OWNER)
        self._every = Statement(of_organization.order_by(table.c[order], table.c.id))
        self._matching = lru_cache(self._select_matching)

    def every(self, tx: Tx, organization_id: str) -> list[CatalogueRow]:
        """Return all rows, in order."""
        return [self._row(values) for values in tx.all(self._every, organization_id=organization_id)]

    def matching(self, tx: Tx, organization_id: str, rows: Iterable[Mapping[str, object]]) -> list[CatalogueRow]:
        """Return the rows whose columns equal the columns of a wanted row."""
        keys = [{"organization_id": organization_id, **row} for row in rows]
        if not keys:
            return []
        return [self._row(values) for values in tx.all(self._matching(tuple(keys[0])), wanted=as_json(keys))]

    def _select_matching(self, names: tuple[str, ...]) -> Statement:
        """Return the statement for rows whose columns equal a row of the parameter `wanted`.

        The organization is part of each wanted row: SQLite looks each row up. With a separate parameter it would scan
        all rows of the organization, and all wanted rows for each of them.
        """
        rows = rows_parameter("wanted", {name: self.table.c[name].type for name in names})
        return Statement(self._select.join(rows, and_(*(self.table.c[name] == rows.c[name] for name in names))))

    def _row(self, values: tuple[Any, ...]) -> CatalogueRow:
        row = dict(zip(self._names, values, strict=True))
        for name in self._flags:
            row[name] = bool(row[name])
        for name in self._json:
            row[name] = None if row[name] is None else orjson.loads(row[name])
        return row


EXPERIENCES = TableReader(experiences, "created_at")
DEPARTURES = TableReader(departures, "starts_at", "seats_ceiling")
CUSTOMERS = TableReader(customers, "created_at")
GIFT_CARDS = TableReader(gift_cards, "created_at")


# Writing ---------------------------------------------------------------------------------------------------------


def _stored(row: CatalogueRow) -> CatalogueRow:
    return {
        key: orjson.dumps(value).decode() if key in _JSON and value is not None else value for key, value in row.items()
    }


def insert(tx: Tx, table: Table, organization_id: str, row: CatalogueRow, *, now: int) -> None:
    """Insert a row into one of the four tables."""
    tx.insert(table, organization_id=organization_id, **_stored(row), created_at=now, updated_at=now)


def change(tx: Tx, table: Table, organization_id: str, row: CatalogueRow, *, now: int) -> None:
    """Update only the columns of `row`: concurrent changes of other columns are kept."""
    tx.update(table, organization_id=organization_id, **_stored(row), updated_at=now)


def vacate(tx: Tx, organization_id: str, ids: Iterable[str]) -> None:
    """Move departures to distinct starts before 1970: others can then take over their starts."""
    for i, departure_id in enumerate(sorted(ids)):
        tx.update(departures, organization_id=organization_id, id=departure_id, starts_at=-1 - i)
    tx.flush()  # before any start is taken: one statement would change both in any order
