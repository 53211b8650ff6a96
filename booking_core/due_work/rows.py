"""Due rows of a table, by organization: the work of a job that serves organizations in turn.

The organizations with due rows are found by an index skip scan, from one organization to the next, so its cost grows
with the number of organizations and not with the number of rows. The rows of one organization are read in pages along
the same index, each page after the last one: no statement reads skipped rows again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    Text,
    bindparam,
    case,
    cast,
    false,
    func,
    literal_column,
    select,
    tuple_,
)

from booking_core.db.engine import Row, Tx
from booking_core.db.statements import LIMIT, NOW, OWNER, Statement, as_ids, in_rows, purge_before
from booking_core.db.tables import organizations

NIL_ID = "00000000-0000-0000-0000-000000000000"
"""Sorts before every id."""
_BEFORE_ALL = -(2**63)
_ONE: ColumnElement[int] = literal_column("1", type_=Integer)
_UNTIL = cast(bindparam("until", type_=BigInteger), BigInteger)

T = TypeVar("T")


class Owner(NamedTuple):
    """An organization with rows of some kind."""

    id: str
    is_due: bool
    """Some of its rows are due."""
    clock_offset: int | None = None
    """The lead of a sandbox's clock, in microseconds; None: the organization is live."""


class DueRow(NamedTuple):
    """The position of a row among the due rows of its organization."""

    at: int
    key: str


class DuePage(NamedTuple):
    """Due rows of an organization, the earliest due first."""

    rows: Sequence[DueRow]
    after: DueRow | None
    """Continues after this page; None: it was the last one."""


@dataclass(frozen=True, slots=True)
class Processed(Generic[T]):
    """The result of a transaction on due rows of one organization. Rows in no list were locked, or no longer due."""

    finished: Collection[str] = ()
    remaining: Collection[str] = ()
    """Rows that need another transaction."""
    results: Sequence[T] = ()


class DueWork(Protocol):
    """Due rows of all organizations."""

    def organizations(self, tx: Tx, *, after: str, limit: int) -> list[Owner]:
        """Return the organizations after `after` in the order of their ids."""

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> DuePage:
        """Return the next due rows of an organization."""


def clock_offset_of(organization_id: ColumnElement[str]) -> Select[Any]:
    """Select the offset of a sandbox's clock, along the index of the sandboxes; nothing for a live organization."""
    offset = organizations.c.clock_offset
    return select(offset).where(organizations.c.id == organization_id, offset.is_not(None))


def skip_scan(owner: ColumnElement[str], first: Callable[[ColumnElement[bool]], Select[Any]]) -> CTE:
    """Select the organizations after the parameter `after` that have rows, as `organization_id`; the last is null.

    Args:
        owner: the column with the organization.
        first: selects the organization of the first row, in the order of an index, that meets a condition.
    """
    start = first(owner > bindparam("after")).scalar_subquery()
    owners = select(start.label("organization_id")).cte("owners", recursive=True)
    last = owners.c.organization_id
    following = first(owner > last).correlate(owners).scalar_subquery()
    return owners.union_all(select(following).select_from(owners).where(last.is_not(None)))


class DueRows:
    """The rows of a table that meet the conditions of a partial index and whose instant has come.

    Args:
        at: the column with the instant; the index is (organization_id, at, key).
        conditions: those of the index, written as in the index: else the planner would not use it.
        ahead: a row is due these microseconds before its instant; negative: after it.
        bounds: further conditions on the instant. They apply within an organization, where they are a range of the
            index, and not to the step from one organization to the next, which would read the excluded rows.
    """

    def __init__(
        self,
        table: Table,
        at: ColumnElement[int],
        key: ColumnElement[str],
        conditions: Sequence[ColumnElement[bool]] = (),
        *,
        ahead: int = 0,
        bounds: Sequence[ColumnElement[bool]] = (),
    ) -> None:
        self._table, self._owner, self._at, self._key = table, table.c.organization_id, at, key
        self._conditions, self._bounds, self._ahead = conditions, bounds, ahead
        self._is_id = not isinstance(key.type, Text)
        until = func.coalesce(_UNTIL, NOW, type_=BigInteger) + literal_column(str(ahead))
        self._until: ColumnElement[int] = select(until).scalar_subquery()
        """The last due instant, evaluated once for the statement: a bound of the index."""
        self._organizations = Statement(self._select_organizations())
        self._find = Statement(self._select_rows())
        self._purge = purge_before(table, at, self._owner == OWNER, *conditions)

    def organizations(self, tx: Tx, *, after: str, limit: int, until: int | None = None) -> list[Owner]:
        """Return organizations that have such rows, after `after` in the order of their ids.

        Args:
            until: rows are due up to this instant, also in sandboxes; by default the present, by the clock of each
                organization.
        """
        rows = tx.all(self._organizations, after=after, limit=limit, until=until)
        return [Owner(owner, bool(is_due), offset) for owner, is_due, offset in rows]

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> DuePage:
        """Return the next due rows of an organization."""
        at, key = after or (_BEFORE_ALL, NIL_ID if self._is_id else "")
        position = {"after_at": at, "after_key": key}
        records = tx.all(self._find, organization_id=organization_id, limit=limit, until=None, **position)
        rows = [DueRow(*row) for row in records]
        return DuePage(rows, rows[-1] if len(rows) == limit else None)

    def locking(self, query: Select[Any], *, key_share: bool = False) -> Statement:
        """Return a statement for `lock`.

        Args:
            query: selects from the table; it may join others, whose rows are not locked.
            key_share: others may meanwhile insert rows that refer to the locked ones.
        """
        return Statement(
            query.where(in_rows(self._key, "wanted", "id"), *self._are_due())
            .order_by(self._at, self._key)
            .with_for_update(of=self._table, skip_locked=True, key_share=key_share)
        )

    def lock(self, tx: Tx, statement: Statement, organization_id: str, keys: Iterable[str]) -> list[Row]:
        """Lock the rows among these that are still due, the earliest due first, and skip locked ones.

        Args:
            statement: made by `locking`.
        """
        return tx.all(statement, organization_id=organization_id, wanted=as_ids(keys), until=None)

    def purge(self, tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
        """Delete rows of an organization that were due before that instant, the oldest first, and return how many."""
        return tx.run(self._purge, organization_id=organization_id, before=before + self._ahead, limit=limit)

    def _first(self, column: ColumnElement[Any], *where: ColumnElement[bool]) -> Select[Any]:
        """Select a column of the first row in the order of the index."""
        return select(column).where(*self._conditions, *where).order_by(self._owner, self._at).limit(_ONE)

    def _select_organizations(self) -> Select[Any]:
        owners = skip_scan(self._owner, lambda behind: self._first(self._owner, behind))
        owner = owners.c.organization_id
        # A row without an instant is never due; SQLite would find it first.
        of_owner = (self._owner == owner, self._at.is_not(None), *self._bounds)
        due_first = self._first(self._at, *of_owner).correlate(owners).scalar_subquery()
        offset = clock_offset_of(owner).correlate(owners).scalar_subquery()
        ahead = case((_UNTIL.is_(None), func.coalesce(offset, literal_column("0"))), else_=literal_column("0"))
        is_due = func.coalesce(due_first <= self._until + ahead, false())
        return select(owner, is_due, offset).where(owner.is_not(None)).limit(LIMIT)

    def _are_due(self) -> Sequence[ColumnElement[bool]]:
        return (self._owner == OWNER, *self._conditions, *self._bounds, self._at <= self._until)

    def _select_rows(self) -> Select[int, str]:
        after = tuple_(bindparam("after_at", type_=BigInteger), bindparam("after_key", type_=self._key.type))
        return (
            select(self._at, self._key)
            .where(*self._are_due(), tuple_(self._at, self._key) > after)
            .order_by(self._at, self._key)
            .limit(LIMIT)
        )
