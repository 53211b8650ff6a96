"""Walking a list by keyset (decisions L1, L2): a page costs the same wherever it lies, and nothing is skipped or
repeated while rows are inserted, however many share one instant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
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

from booking_core import cursors
from booking_core.context import Actor
from booking_core.cursors import Binding
from booking_core.db.engine import Tx
from booking_core.db.statements import Row, Statement
from booking_core.db.tables import Id
from booking_core.models.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from booking_core.models.pages import Order

_GATHERED_MAX = 500
"""So many rows are sorted in a millisecond."""

_LIMIT = bindparam("limit", type_=Integer)

Page = dict[str, Any]
"""`{data, has_more, next_cursor}`, ready for JSON."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The shared list parameters."""

    limit: int = PAGE_LIMIT_DEFAULT
    order: Order = Order.DESC
    starting_after: str | None = None


@dataclass(frozen=True, slots=True)
class Walk:
    """One list, ordered by (created_at, id): its name in cursors, its base select and its filters by name.

    The select names the organization by the parameter `organization_id` and begins with the columns created_at, id.
    What is shown of other tables is joined by `joined`, to the rows of the page: a page then costs its own rows, and
    no planner is tempted to join the whole table before it sorts.
    """

    endpoint: str
    table: Table
    select: Select[Any]
    filters: dict[str, ColumnElement[bool]]
    joined: Callable[[FromClause], Select[Any]] | None = None
    scattered: Mapping[str, Select[Any]] = field(default_factory=dict)
    """Of a filter whose rows lie anywhere along the list: the (organization_id, id) of the rows that pass it, found by
    an index of its own."""

    def __hash__(self) -> int:
        return hash(self.endpoint)

    def find(
        self, tx: Tx, caller: Actor, page: PageRequest, present: Callable[[Row], dict[str, Any]], **filters: object
    ) -> Page:
        """One page of the list; a filter that is None is not applied, one with several parameters is a dict of them."""
        applied = {name: value for name, value in filters.items() if value is not None}
        binding = Binding(caller.organization.id, self.endpoint, page.order, tuple(sorted(applied.items())))
        parameters: dict[str, Any] = {"organization_id": caller.organization.id, "limit": page.limit + 1}
        for name, value in applied.items():
            parameters |= value if isinstance(value, dict) else {name: value}
        if page.starting_after is not None:
            position = cursors.decode_row(caller.secret_keys, binding, page.starting_after)
            parameters["after_created_at"], parameters["after_id"] = position
        statement = _statement(self, page.order, page.starting_after is not None, tuple(sorted(applied)))
        found = tx.all(statement, **parameters)
        shown, has_more = found[: page.limit], len(found) > page.limit
        return envelope(
            [present(row) for row in shown],
            cursors.encode_row(caller.secret_keys, binding, *shown[-1][:2]) if has_more else None,
        )


@lru_cache(maxsize=1024)
def _statement(walk: Walk, order: Order, after: bool, filters: tuple[str, ...]) -> Statement:
    return Statement(partial(_page, walk, order, after, filters))


def _page(walk: Walk, order: Order, after: bool, filters: tuple[str, ...], dialect: Dialect) -> Select[Any]:
    created_at, row_id = walk.table.c.created_at, walk.table.c.id
    conditions = {name: walk.filters[name] for name in filters}
    if after:
        position = tuple_(bindparam("after_created_at", type_=BigInteger), bindparam("after_id", type_=Id))
        here = tuple_(created_at, row_id)
        conditions["after"] = here > position if order is Order.ASC else here < position

    def in_order(query: Select[Any]) -> Select[Any]:
        return query.order_by(*_direction(order, created_at, row_id))

    scattered = next((name for name in filters if name in walk.scattered), None)
    if scattered:
        page: FromClause = _gathered_or_walked(walk, scattered, conditions, in_order)
    else:
        few = _few(in_order(walk.select.where(*conditions.values())), order, dialect)
        if walk.joined is None:
            return few
        page = few.subquery("page")
    shown = select(page) if walk.joined is None else walk.joined(page)
    return shown.order_by(*_direction(order, page.c.created_at, page.c.id))


def _few(ordered: Select[Any], order: Order, dialect: Dialect) -> Select[Any]:
    """The first rows of a query.

    Of a limit that it does not know PostgreSQL expects a tenth of the table, and would rather plan each page anew than
    keep a plan for so many. One that it knows goes before it, and is never reached.
    """
    if dialect.name != "postgresql":
        return ordered.limit(_LIMIT)
    bounded = ordered.limit(literal_column(str(PAGE_LIMIT_MAX + 1))).subquery()
    return select(bounded).order_by(*_direction(order, bounded.c.created_at, bounded.c.id)).limit(_LIMIT)


def _gathered_or_walked(
    walk: Walk,
    scattered: str,
    conditions: Mapping[str, ColumnElement[bool]],
    in_order: Callable[[Select[Any]], Select[Any]],
) -> FromClause:
    """The rows of a page, found in the cheaper of two ways.

    When few rows pass the scattered filter they are gathered by its index and sorted; when many do, a walk along the
    list soon meets a page of them. Neither database can choose: SQLite plans before it knows the values, and PostgreSQL
    keeps the plan that suited the first few. So the statement holds both ways, and a count that stops early leaves one
    of them nothing to do.
    """
    table = walk.table
    matching = walk.scattered[scattered].limit(literal_column(str(_GATHERED_MAX + 1))).cte("matching")
    few = select(func.count()).select_from(matching).scalar_subquery() <= literal_column(str(_GATHERED_MAX))
    nothing: ColumnElement[int] = literal_column("0")
    others = [condition for name, condition in conditions.items() if name != scattered]
    same = and_(table.c.organization_id == matching.c.organization_id, table.c.id == matching.c.id)
    gathered = select(*walk.select.selected_columns).join_from(matching, table, same).where(*others)
    # Within coalesce() the filter is only looked at: it must not tempt the planner away from the walk.
    walked = walk.select.where(func.coalesce(conditions[scattered], false()), *others)
    either = (
        in_order(gathered).limit(case((few, _LIMIT), else_=nothing)),
        in_order(walked).limit(case((few, nothing), else_=_LIMIT)),
    )
    return union_all(*(select(each.subquery()) for each in either)).subquery("page")


def _direction(order: Order, *columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    return [column if order is Order.ASC else column.desc() for column in columns]


def envelope(data: Sequence[dict[str, Any]], next_cursor: str | None) -> Page:
    """The page envelope of the contract."""
    return {"data": data, "has_more": next_cursor is not None, "next_cursor": next_cursor}
