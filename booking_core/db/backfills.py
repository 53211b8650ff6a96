"""Back-fills: rows that a revision of the schema leaves to the worker, which fills them in batches (decision 0049).

A revision that adds a column is followed by one that makes a partial index of the rows that lack it, and says with a
`Backfill` how they are filled. The index is the list of what is left, so that nothing else has to be remembered: each
batch is a transaction, a worker may be killed at any point, and a row that a process of the release before writes
meanwhile is found too. A later revision, which names that one in `completes`, ends the back-fill.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    TableClause,
    Text,
    Update,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
    text,
    tuple_,
    update,
)

from booking_core.db.arrivals import has_arrived
from booking_core.db.due import NIL_ID, DueRow, Owner, Page, Processed, skip_scan
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import Id

EVERYTHING = 2**31 - 1
"""A number of rows that is never reached."""
_BATCH = 2_000
"""Rows of a transaction of the revision that ends a back-fill."""
_ONE: ColumnElement[int] = literal_column("1", type_=Integer)
_LIMIT = bindparam("limit", type_=Integer)
_ORGANIZATION_ID = bindparam("organization_id", type_=Id)


@dataclass(frozen=True)
class Backfill:
    """Rows of a table that lack a value, and the value. It is the due work of a job.

    Its revision makes the index (organization_id, key) of the rows that lack it, by
    `booking_core.db.migrations.online.create_index`.

    Args:
        table: the name of a table whose rows belong to organizations.
        missing: the condition of the index, in SQL: `colour IS NULL`.
        sets: the columns and their values, in SQL: `{"colour": "lower(title)"}`. A filled row no longer meets the
            condition.
        key: the column that, with the organization, names a row.
        has_text_key: whether that column is a text and not an id.
    """

    table: str
    missing: str
    sets: Mapping[str, str]
    key: str = "id"
    has_text_key: bool = False

    def organizations(self, tx: Tx, *, after: str, limit: int) -> list[Owner]:
        """Return organizations behind `after` with rows that lack the value, in the order of their ids."""
        return [Owner(owner, is_due=True) for (owner,) in tx.all(self._organizations, after=after, limit=limit)]

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> Page:
        """Return the next rows of an organization that lack the value."""
        first = "" if self.has_text_key else NIL_ID
        position = {"organization_id": organization_id, "after": after.key if after else first}
        rows = [DueRow(0, str(key)) for (key,) in tx.all(self._find, **position, limit=limit)]
        return Page(rows, rows[-1] if len(rows) == limit else None)

    def fill(self, tx: Tx, organization_id: str, keys: Sequence[str]) -> Processed[None]:
        """Fill rows of an organization that still lack the value, and pass over locked ones."""
        of = {"organization_id": organization_id}
        wanted = as_json({"key": key} for key in keys)
        locked = [str(key) for (key,) in tx.all(self._lock, **of, wanted=wanted)]
        if locked:
            tx.run(self._fill, **of, wanted=as_json({"key": key} for key in locked))
        return Processed(locked)

    def count(self, tx: Tx, most: int = EVERYTHING) -> int:
        """Count the rows that lack the value, up to `most`."""
        row = tx.first(self._count, limit=most)
        return int(row[0]) if row else 0

    def finish(self, connection: Connection) -> None:
        """Fill all rows, for the revision that ends the back-fill. In autocommit each batch is a transaction."""
        keys = self._missing(self._owner, self._key).limit(literal_column(str(_BATCH)))
        batch = self._update.where(tuple_(self._owner, self._key).in_(keys))
        while connection.execute(batch).rowcount:
            continue

    @cached_property
    def _rows(self) -> TableClause:
        key = column(self.key, Text() if self.has_text_key else Id)
        return table(self.table, column("organization_id", Id), key, *map(column, self.sets))

    @property
    def _owner(self) -> ColumnElement[str]:
        return self._rows.c.organization_id

    @property
    def _key(self) -> ColumnElement[str]:
        return self._rows.c[self.key]

    @property
    def _update(self) -> Update:
        return update(self._rows).values({name: text(value) for name, value in self.sets.items()})

    def _missing(self, *columns: ColumnElement[Any]) -> Select[Any]:
        return select(*columns).select_from(self._rows).where(text(self.missing))

    @cached_property
    def _organizations(self) -> Statement:
        """Step from one organization to the next along the index."""
        first = self._missing(self._owner).order_by(self._owner).limit(_ONE)
        owner = skip_scan(self._owner, lambda behind: first.where(behind)).c.organization_id
        return Statement(select(owner).where(owner.is_not(None), has_arrived(owner)).limit(_LIMIT))

    @cached_property
    def _find(self) -> Statement:
        of = self._owner == _ORGANIZATION_ID, self._key > bindparam("after", type_=self._key.type)
        return Statement(self._missing(self._key).where(*of).order_by(self._key).limit(_LIMIT))

    @cached_property
    def _lock(self) -> Statement:
        missing = self._missing(self._key).where(self._owner == _ORGANIZATION_ID)
        locked = missing.with_for_update(key_share=True, skip_locked=True)
        return Statement(lambda dialect: locked.where(in_rows(dialect, self._key, "wanted", "key")))

    @cached_property
    def _fill(self) -> Statement:
        of = self._update.where(self._owner == _ORGANIZATION_ID)
        return Statement(lambda dialect: of.where(in_rows(dialect, self._key, "wanted", "key")))

    @cached_property
    def _count(self) -> Statement:
        missing = self._missing(_ONE.label("one")).limit(_LIMIT).subquery("missing")
        return Statement(select(func.count()).select_from(missing))
