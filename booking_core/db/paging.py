"""Keyset pagination (decisions L1, L2): each page of a list costs the same, and no row is skipped or repeated while
others are inserted, however many share one instant."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Table,
    and_,
    bindparam,
    case,
    false,
    func,
    literal_column,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.engine import Dialect

from booking_core.base import cursors
from booking_core.base.context import Actor
from booking_core.base.cursors import Binding
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, Row, Statement, has_key
from booking_core.db.tables import Id
from booking_core.models.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from booking_core.models.pages import Order

_SORTED_MAX = 500
"""The number of rows that are sorted in a millisecond."""
_SCANNED_MAX = 1_000
"""The number of rows of a list that are searched for those that pass a filter."""
_EVERYTHING = 1_000_000_000
"""A limit that is never reached. With it each database searches the index of the filter, in its order."""
_NOTHING: ColumnElement[int] = literal_column("0")


T = TypeVar("T")
JsonPage = dict[str, Any]
"""`{data, has_more, next_cursor}`, ready for JSON."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The shared list parameters."""

    limit: int = PAGE_LIMIT_DEFAULT
    order: Order = Order.DESC
    starting_after: str | None = None


def every_row(find: Callable[[PageRequest], JsonPage], order: Order) -> Iterator[dict[str, Any]]:
    """Yield the rows of all pages of a list, each page when it is reached.

    Args:
        find: returns a page.
    """
    cursor: str | None = None
    while True:
        page = find(PageRequest(PAGE_LIMIT_MAX, order, cursor))
        yield from page["data"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


@dataclass(frozen=True, slots=True)
class KeysetList:
    """A list ordered by (created_at, id): its name in cursors, its base select and its filters by name.

    The select names the organization by the parameter `organization_id` and begins with the columns created_at, id.
    `joined` joins columns of other tables to the rows of the page: else the planner would join the whole table before
    it sorts.
    """

    endpoint: str
    table: Table
    select: Select[Any]
    filters: dict[str, ColumnElement[bool]]
    joined: Callable[[FromClause], Select[Any]] | None = None
    scattered: Mapping[str, Select[Any]] = field(default_factory=dict)
    """By filter whose rows may be anywhere along the list: a select of the (organization_id, id) of the rows that pass
    it, by a separate index."""

    def __hash__(self) -> int:
        return hash(self.endpoint)

    def find(
        self, tx: Tx, caller: Actor, page: PageRequest, present: Callable[[Row], dict[str, Any]], **filters: object
    ) -> JsonPage:
        """Return a page of the list. A filter that is None is not applied; one with several parameters is a dict.

        The statement may name the parameter `now`, the caller's instant.
        """
        applied = {name: value for name, value in filters.items() if value is not None}
        binding = Binding(caller.organization.id, self.endpoint, page.order, tuple(sorted(applied.items())))
        owner, limit = caller.organization.id, page.limit + 1
        parameters: dict[str, Any] = {"organization_id": owner, "limit": limit, "now": caller.at}
        for name, value in applied.items():
            parameters |= value if isinstance(value, dict) else {name: value}
        if page.starting_after is not None:
            position = cursors.decode_row(caller.secret_keys, binding, page.starting_after)
            parameters["after_created_at"], parameters["after_id"] = position
        statement = _statement(self, page.order, page.starting_after is not None, tuple(sorted(applied)))
        rows = tx.all(statement, **parameters)
        return page_of(rows, page, present, lambda row: cursors.encode_row(caller.secret_keys, binding, *row[:2]))


@lru_cache(maxsize=1024)
def _statement(keyset_list: KeysetList, order: Order, after: bool, filters: tuple[str, ...]) -> Statement:
    return Statement(partial(_page, keyset_list, order, after, filters))


def _page(
    keyset_list: KeysetList, order: Order, after: bool, filters: tuple[str, ...], dialect: Dialect
) -> Select[Any]:
    created_at, row_id = keyset_list.table.c.created_at, keyset_list.table.c.id
    conditions = {name: keyset_list.filters[name] for name in filters}
    if after:
        position = tuple_(bindparam("after_created_at", type_=BigInteger), bindparam("after_id", type_=Id))
        row_position = tuple_(created_at, row_id)
        conditions["after"] = row_position > position if order is Order.ASC else row_position < position

    def in_order(query: Select[Any]) -> Select[Any]:
        return query.order_by(*_direction(order, created_at, row_id))

    scattered = next((name for name in filters if name in keyset_list.scattered), None)
    if scattered:
        page: FromClause = _sorted_or_scanned(keyset_list, scattered, conditions, in_order)
    else:
        few = _limited(in_order(keyset_list.select.where(*conditions.values())), order, dialect)
        if keyset_list.joined is None:
            return few
        page = few.subquery("page")
    statement = select(page) if keyset_list.joined is None else keyset_list.joined(page)
    return statement.order_by(*_direction(order, page.c.created_at, page.c.id))


def _limited(ordered: Select[Any], order: Order, dialect: Dialect) -> Select[Any]:
    """Limit a query to the rows of a page.

    For a limit with an unknown value PostgreSQL estimates a tenth of the table, and would rather plan each page again
    than keep a plan for so many rows. A constant limit, which is never reached, is applied first.
    """
    if dialect.name != "postgresql":
        return ordered.limit(LIMIT)
    bounded = ordered.limit(literal_column(str(PAGE_LIMIT_MAX + 1))).subquery()
    return select(bounded).order_by(*_direction(order, bounded.c.created_at, bounded.c.id)).limit(LIMIT)


def _sorted_or_scanned(
    keyset_list: KeysetList,
    scattered: str,
    conditions: Mapping[str, ColumnElement[bool]],
    in_order: Callable[[Select[Any]], Select[Any]],
) -> FromClause:
    """Return the rows of a page, found in the cheapest of three ways.

    When few rows pass the scattered filter, they are looked up by its index and sorted. When many do, a scan along the
    list may soon meet a page of them, so the next rows of the list are scanned. When those have no full page, the rows
    that pass are elsewhere, and all of them are sorted: the cost grows with the rows that pass the filter, not with the
    rows it excludes.

    Neither database can choose: SQLite plans before it knows the values, and PostgreSQL keeps the plan that suited the
    first executions. So the statement has every way, and those that are not taken get the limit 0.
    """
    others = [condition for name, condition in conditions.items() if name != scattered]
    matching = keyset_list.scattered[scattered].limit(literal_column(str(_SORTED_MAX + 1))).cte("matching")
    few = select(func.count()).select_from(matching).scalar_subquery() <= literal_column(str(_SORTED_MAX))
    looked_up = _looked_up(keyset_list, matching, others)
    scanned = _scanned(keyset_list, conditions[scattered], others, in_order, few)
    is_full = select(func.count()).select_from(scanned).scalar_subquery() >= LIMIT
    is_elsewhere = and_(~few, ~is_full, _goes_on(keyset_list, others, in_order))
    everything = keyset_list.scattered[scattered].limit(literal_column(str(_EVERYTHING))).subquery("everything")
    every = _looked_up(keyset_list, everything, others)
    ways = (
        in_order(looked_up).limit(case((few, LIMIT), else_=_NOTHING)),
        select(scanned).limit(case((is_elsewhere, _NOTHING), else_=LIMIT)),
        in_order(every).limit(case((is_elsewhere, LIMIT), else_=_NOTHING)),
    )
    return union_all(*(select(way.subquery()) for way in ways)).subquery("page")


def _scanned(
    keyset_list: KeysetList,
    passes: ColumnElement[bool],
    others: Sequence[ColumnElement[bool]],
    in_order: Callable[[Select[Any]], Select[Any]],
    few: ColumnElement[bool],
) -> FromClause:
    """Return a page among the next rows of the list; nothing where few rows pass the filter."""
    # Within coalesce() the filter is checked row by row: the planner must not use its index instead of the scan.
    checked = func.coalesce(passes, false()).label("passes")
    next_rows = in_order(keyset_list.select.add_columns(checked).where(*others))
    rows = next_rows.limit(case((few, _NOTHING), else_=literal_column(str(_SCANNED_MAX)))).subquery("next_rows")
    columns = [column for column in rows.c if column.name != "passes"]
    return select(*columns).where(rows.c.passes).limit(LIMIT).cte("scanned")


def _goes_on(
    keyset_list: KeysetList, others: Sequence[ColumnElement[bool]], in_order: Callable[[Select[Any]], Select[Any]]
) -> ColumnElement[bool]:
    """Return the condition that the list has more rows than are scanned."""
    last = keyset_list.select.with_only_columns(keyset_list.table.c.id).where(*others)
    next_row = in_order(last).limit(literal_column("1")).offset(literal_column(str(_SCANNED_MAX)))
    return next_row.scalar_subquery().is_not(None)


def _looked_up(keyset_list: KeysetList, keys: FromClause, others: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """Return the rows of those keys that pass the other filters."""
    rows = select(*keyset_list.select.selected_columns)
    return rows.join_from(keys, keyset_list.table, has_key(keyset_list.table, keys)).where(*others)


def _direction(order: Order, *columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    return [column if order is Order.ASC else column.desc() for column in columns]


def envelope(data: Sequence[object], next_cursor: str | None) -> JsonPage:
    """Return the page envelope of the contract."""
    return {"data": data, "has_more": next_cursor is not None, "next_cursor": next_cursor}


def page_of(
    rows: Sequence[T], page: PageRequest, present: Callable[[T], dict[str, Any]], cursor_after: Callable[[T], str]
) -> JsonPage:
    """Return the page of the rows that were found, one more than its limit when another page follows.

    Args:
        cursor_after: makes the cursor after a row.
    """
    page_rows = rows[: page.limit]
    next_cursor = cursor_after(page_rows[-1]) if len(rows) > page.limit else None
    return envelope([present(row) for row in page_rows], next_cursor)


# All rows of a query --------------------------------------------------------------------------------------------------


class Scan:
    """A query whose rows are all read in pages, in the order of its first columns.

    Args:
        key: the number of columns that say the order, and the position of a row.
    """

    def __init__(self, query: Select[Any], key: int = 1) -> None:
        self._key = key
        columns = list(query.selected_columns)[:key]
        after = [bindparam(f"after_{number}", type_=column.type) for number, column in enumerate(columns)]
        follows = tuple_(*columns) > tuple_(*after) if key > 1 else columns[0] > after[0]
        ordered = query.order_by(*columns).limit(LIMIT)
        self._first, self._next = Statement(ordered), Statement(ordered.where(follows))

    def page(
        self, tx: Tx, after: Sequence[Any], limit: int, **parameters: Any
    ) -> tuple[list[Row], tuple[Any, ...] | None]:
        """Return the next rows, and the position of the last one; None instead of it if no row follows.

        Args:
            after: the position of the last row that was read; empty at the beginning.
        """
        position = {f"after_{number}": value for number, value in enumerate(after)}
        rows = tx.all(self._next if after else self._first, limit=limit, **position, **parameters)
        return rows, (tuple(rows[-1][: self._key]) if len(rows) == limit else None)
