"""Read all rows of a query in pages, each of which begins after the last row of the page before."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Integer, Select, bindparam, tuple_
from sqlalchemy.engine import Dialect

from booking_core.db.engine import Tx
from booking_core.db.statements import Row, Statement

_LIMIT = bindparam("limit", type_=Integer)


class Scan:
    """A query whose rows are read in the order of its first columns.

    Args:
        query: the query; or a function of the dialect, where the dialects differ.
        key: the number of columns that say the order, and the position of a row.
    """

    def __init__(self, query: Select[Any] | Callable[[Dialect], Select[Any]], key: int = 1) -> None:
        self._query = query
        self._key = key
        self._first = Statement(lambda dialect: self._page(dialect, is_first=True))
        self._next = Statement(lambda dialect: self._page(dialect, is_first=False))

    def _page(self, dialect: Dialect, *, is_first: bool) -> Select[Any]:
        query = self._query if isinstance(self._query, Select) else self._query(dialect)
        key = list(query.selected_columns)[: self._key]
        after = [bindparam(f"after_{number}", type_=column.type) for number, column in enumerate(key)]
        if not is_first:
            query = query.where(tuple_(*key) > tuple_(*after) if len(key) > 1 else key[0] > after[0])
        return query.order_by(*key).limit(_LIMIT)

    def page(
        self, tx: Tx, after: Sequence[Any], limit: int, **parameters: Any
    ) -> tuple[list[Row], tuple[Any, ...] | None]:
        """Return the next rows, and the position of the last one; None instead of it if no row follows.

        Args:
            after: the position of the last row that was read; empty at the beginning.
        """
        given = {f"after_{number}": value for number, value in enumerate(after)}
        rows = tx.all(self._next if after else self._first, limit=limit, **given, **parameters)
        return rows, (tuple(rows[-1][: self._key]) if len(rows) == limit else None)
