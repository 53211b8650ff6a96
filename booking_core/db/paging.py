"""Walking a list by keyset (decisions L1, L2): a page costs the same wherever it lies, and nothing is skipped or
repeated while rows are inserted, however many share one instant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Integer, Select, Table, bindparam, tuple_

from booking_core import cursors
from booking_core.caller import Caller
from booking_core.cursors import Binding
from booking_core.db.engine import Tx
from booking_core.db.statements import Row, Statement
from booking_core.db.tables import Id
from booking_core.wire.limits import PAGE_LIMIT_DEFAULT
from booking_core.wire.pages import Order

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

    def __hash__(self) -> int:
        return hash(self.endpoint)

    def find(
        self, tx: Tx, caller: Caller, page: PageRequest, present: Callable[[Row], dict[str, Any]], **filters: object
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
    created_at, row_id = walk.table.c.created_at, walk.table.c.id
    query = walk.select.where(*(walk.filters[name] for name in filters))
    if after:
        position = tuple_(bindparam("after_created_at", type_=BigInteger), bindparam("after_id", type_=Id))
        here = tuple_(created_at, row_id)
        query = query.where(here > position if order is Order.ASC else here < position)
    query = query.order_by(*_direction(order, created_at, row_id)).limit(bindparam("limit", type_=Integer))
    if walk.joined is None:
        return Statement(query)
    page = query.subquery("page")
    return Statement(walk.joined(page).order_by(*_direction(order, page.c.created_at, page.c.id)))


def _direction(order: Order, *columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    return [column if order is Order.ASC else column.desc() for column in columns]


def envelope(data: Sequence[dict[str, Any]], next_cursor: str | None) -> Page:
    """The page envelope of the contract."""
    return {"data": data, "has_more": next_cursor is not None, "next_cursor": next_cursor}
