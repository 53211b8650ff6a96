"""Moves an organization from one cell to another while it is served (decision 0051).

The rows are copied and compared in batches beside the service, and again those that change meanwhile. Then changes are
refused for a moment: the rest is copied and compared, and one commit in the cell that the organization leaves decides.
Before it the organization lives there, after it in the other one, wherever the move is interrupted: it goes on when it
is run again.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import Table, bindparam, select, text

from booking_core import organizations
from booking_core.cells import forwarding, guards, rows
from booking_core.cells.comparing import Comparison
from booking_core.cells.registry import Cell, CellError
from booking_core.context import Organization
from booking_core.db import arrivals, tables
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, cell_changes, cell_moves
from booking_core.db.unit_of_work import Update
from booking_core.errors import Unavailable
from booking_core.tokens import new_id

COPYING, MOVED = "copying", "moved"
CATCH_UP_MAX = 500
"""Rows that may still have to be copied when changes are refused; more are copied before."""
AT_ONCE_MAX = 20_000
"""Rows that may have to be copied while changes are refused: what workers are to act on, keys and endpoints."""
FROZEN_MAX_S = 10.0
"""Seconds for which changes are refused at most: then the organization lives where it did."""
_CHANGES = 5_000
_ROUNDS = 50
_SWITCHES = 20
_PAUSE_S = 0.5
LATE_S = 15.0
"""Seconds for which the cell that the organization left still refuses requests that it admitted before: longer than any
request lasts."""

Examine = Callable[[Tx, str], Sequence[str]]
"""Returns a sentence for each broken invariant of an organization."""
Report = Callable[[str, int], None]
"""Called with a table and the number of rows of it that were copied just now."""

_ID = bindparam("o", type_=Id)
_GET = Statement(select(cell_moves).where(cell_moves.c.organization_id == _ID))
_ALL = Statement(select(cell_moves.c.organization_id, cell_moves.c.to_cell, cell_moves.c.state, cell_moves.c.slug))
_PROGRESS = Update("progress", cell_moves, sets=("progress",), keys=("organization_id",))
_SWITCHED = Update("switched", cell_moves, sets=("state", "switched_at"), keys=("organization_id",))
_DELETE = Statement(cell_moves.delete().where(cell_moves.c.organization_id == _ID))
_FIND_CHANGES = Statement(
    select(cell_changes.c.id, cell_changes.c.table_name, cell_changes.c.key)
    .where(cell_changes.c.organization_id == _ID)
    .limit(_CHANGES)
)
_DELETE_CHANGES = Statement(
    text(
        "DELETE FROM cell_changes WHERE organization_id = CAST(:o AS uuid)"
        " AND id IN (SELECT CAST(value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)))"
    )
)
_ARRIVALS = Statement(
    select(tables.cell_arrivals.c.table_name, tables.cell_arrivals.c.rows).where(
        tables.cell_arrivals.c.organization_id == _ID
    )
)
_LINK_KEYS = Statement(select(tables.link_keys.c.key_id, tables.link_keys.c.key_sealed, tables.link_keys.c.created_at))
_LOCK_COUNTERS = Statement(
    select(tables.counters.c.organization_id).where(tables.counters.c.organization_id == _ID).with_for_update()
)


@dataclass(frozen=True, slots=True)
class Move:
    """A move that is under way."""

    organization_id: str
    slug: str
    to_cell: str
    state: str
    progress: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move."""

    organization_id: str
    rows: int
    frozen_s: float
    """Seconds for which changes were refused, in the end."""
    broken: Sequence[str]
    """The findings about the organization where it lives now."""


def under_way(tx: Tx) -> list[tuple[str, str, str, str]]:
    """Return the id, the destination, the state and the slug of each organization that leaves this cell."""
    return [(str(row[0]), str(row[1]), str(row[2]), str(row[3])) for row in tx.all(_ALL)]


class Mover:
    """The move of an organization, or what is left of one that was interrupted.

    Args:
        examine: examines the organization where it has arrived. Both copies are the same by then: what it finds was
            broken before.
    """

    def __init__(
        self,
        slug: str,
        source: tuple[Cell, Database],
        target: tuple[Cell, Database],
        *,
        examine: Examine,
        report: Report = lambda table, count: None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slug = slug
        self._cell, self._source = source
        self._target_cell, self._target = target
        self._examine = examine
        self._report = report
        self._pause = pause
        self._clock = clock
        self._tables = rows.moved_tables()
        self._early = [table for table in self._tables if table.name not in rows.AT_ONCE]
        self._comparison: Comparison | None = None
        self._at_once: dict[str, list[str]] = {}
        self._copied = 0

    def run(self) -> Moved:
        """Move the organization, from wherever an earlier run was interrupted.

        Raises:
            CellError: it cannot be moved, or the copy is not the same; it lives where it did.
            Unavailable: a cell is away, or changes never paused; run it again.
        """
        move = self._begin()
        organization_id, frozen_s = move.organization_id, 0.0
        if move.state == COPYING:
            guards.install(self._source, organization_id, self._pause)
            self._target.write(lambda tx: arrivals.announce(tx, organization_id))
            self._copy(move)
            frozen_s = self._leave(organization_id)
        self._target.write(lambda tx: _arrive(tx, organization_id, self._tables))
        broken = self._target.read(lambda tx: self._examine(tx, organization_id))
        self._clean_up(organization_id)
        return Moved(organization_id, self._copied, frozen_s, broken)

    def abort(self) -> None:
        """Undo a move that has not left yet: what was copied is deleted.

        Raises:
            CellError: there is none, or the organization has left.
        """
        move = self._find()
        if move is None or move.state != COPYING:
            raise CellError(f"The organization {self._slug} has no move that could be undone.")
        guards.remove(self._source, move.organization_id, self._pause)
        self._discard(move.organization_id)
        self._forget(move.organization_id)

    def _discard(self, organization_id: str) -> None:
        """Delete the copy. It counts as one that has not arrived until its last row is gone."""
        _delete_all(self._target, organization_id, self._tables)
        self._target.write(lambda tx: arrivals.settle(tx, organization_id))

    # Beginning -------------------------------------------------------------------------------------------------------

    def _begin(self) -> Move:
        found = self._find()
        if found is not None:
            if found.to_cell != self._target_cell.name:
                raise CellError(
                    f"The organization {self._slug} is on its way to the cell {found.to_cell} already: finish that"
                    " move, or undo it with --abort."
                )
            return found
        organization = self._source.read(lambda tx: organizations.get(tx, slug=self._slug))
        self._require_room(organization)
        self._source.write(lambda tx: self._insert(tx, organization))
        return self._begin()

    def _find(self) -> Move | None:
        own = [each for each in self._source.read(under_way) if each[3] == self._slug]
        if not own:
            return None
        row = self._source.read(lambda tx: tx.first(_GET, o=own[0][0]))
        assert row is not None
        return Move(str(row[0]), str(row[1]), str(row[2]), str(row[3]), json.loads(row[4]))

    def _require_room(self, organization: Organization) -> None:
        """Check that the other cell has no rows of the organization, and no other one with its slug."""
        if organization.id in self._target.read(arrivals.find_arriving):  # left by a move that the source forgot
            self._discard(organization.id)
        if self._target.read(lambda tx: organizations.is_taken(tx, slug=self._slug, organization_id=organization.id)):
            raise CellError(f"The cell {self._target_cell.name} has an organization {self._slug} already.")

    def _insert(self, tx: Tx, organization: Organization) -> Organization:
        tx.insert(
            cell_moves,
            organization_id=organization.id,
            slug=organization.slug,
            to_cell=self._target_cell.name,
            state=COPYING,
            progress="{}",
            started_at=tx.now(),
        )
        return organization

    # Copying beside the service --------------------------------------------------------------------------------------

    def _copy(self, move: Move) -> None:
        self._copy_link_keys()
        progress = dict(move.progress)
        for table in self._early:
            while table.name not in progress or progress[table.name] is not None:
                progress[table.name] = self._copy_page(move.organization_id, table, progress.get(table.name))
                self._save(move.organization_id, progress)
        self._follow(lambda: self._catch_up(move.organization_id, self._early))
        self._compare(move.organization_id)

    def _follow(self, catch_up: Callable[[], int]) -> None:
        """Copy what has changed until few rows are left.

        Raises:
            Unavailable: that is never so.
        """
        for _ in range(_ROUNDS):
            if catch_up() < CATCH_UP_MAX:
                return
        raise Unavailable("The organization is changed faster than it can be copied; try again at a quieter time.")

    def _compare(self, organization_id: str) -> None:
        """Compare both copies while the organization is served, until few rows are left to be compared."""
        self._comparison = Comparison(self._source, self._target, organization_id, self._early)
        self._comparison.compare_all()
        self._follow(lambda: self._catch_up(organization_id, self._early))
        self._comparison.narrow()
        self._comparison.require_few_open(CATCH_UP_MAX)

    def _copy_page(self, organization_id: str, table: Table, after: str | None) -> str | None:
        """Copy the next rows of a table, and return the last key; None when it was the last page."""
        for _ in range(_ROUNDS):
            found = self._source.read(lambda tx: rows.read_page(tx, table, organization_id, after))
            if self._written(table, found):
                self._copied += len(found)
                self._report(table.name, len(found))
                return found[-1].key if len(found) == rows.BATCH else None
            # A row refers to one that was written after that one's table was copied.
            self._catch_up(organization_id, self._early[: self._early.index(table)])
        raise CellError(f"Rows of {table.name} refer to rows that are not there: run booking doctor.")

    def _written(self, table: Table, found: Sequence[rows.Row]) -> bool:
        """Write the rows to the other cell; return False if a row that one of them refers to is not there yet."""
        if not found:
            return True
        try:
            self._target.write(lambda tx: rows.write(tx, table, rows.as_array(found)))
        except Exception as error:
            if getattr(error, "sqlstate", None) != _FOREIGN_KEY:
                raise
            return False
        return True

    def _catch_up(self, organization_id: str, of: Sequence[Table]) -> int:
        """Copy the rows that were noted as changed, of these tables, and return how many there were."""
        noted = self._source.read(lambda tx: tx.all(_FIND_CHANGES, o=organization_id))
        names = {table.name for table in of}
        done = [(str(row[0]), str(row[1]), str(row[2])) for row in noted if row[1] in names]
        try:
            with self._source.reading() as tx:
                self._apply(tx, organization_id, _by_table(of, done))
        except Exception as error:  # a row refers to one that was written since: that one is noted too
            if getattr(error, "sqlstate", None) != _FOREIGN_KEY:
                raise
            return CATCH_UP_MAX
        self._note(done)
        late = [str(row[0]) for row in noted if row[1] in rows.AT_ONCE] if of is self._early else []
        ids = json.dumps([each for each, _, _ in done] + late)
        self._source.write(lambda tx: tx.run(_DELETE_CHANGES, o=organization_id, ids=ids))
        return len(done)

    def _note(self, changes: Iterable[tuple[str, str, str]]) -> None:
        """Compare the rows of these changes again."""
        if self._comparison:
            for _, table_name, key in changes:
                self._comparison.note(table_name, [key])

    def _apply(self, tx: Tx, organization_id: str, changed: Sequence[tuple[Table, set[str]]]) -> None:
        """Bring the rows of these keys to the state that they have now: those that exist, then those that do not."""
        gone: list[tuple[Table, list[str]]] = []
        for table, keys in changed:
            found = rows.read_keys(tx, table, organization_id, keys)
            there = {rows.canonical(each.key) for each in found}
            gone.append((table, [key for key in keys if rows.canonical(key) not in there]))
            self._copied += len(found)
            if found:
                array = rows.as_array(found)
                self._target.write(lambda other, table=table, array=array: rows.write(other, table, array))  # type: ignore[misc]
        for table, missing in reversed(gone):
            if missing:
                self._target.write(
                    lambda other, table=table, missing=missing: rows.delete_keys(  # type: ignore[misc]
                        other, table, organization_id, missing
                    )
                )

    def _save(self, organization_id: str, progress: dict[str, str | None]) -> None:
        text_of = json.dumps(progress)
        self._source.write(lambda tx: tx.update(_PROGRESS, organization_id=organization_id, progress=text_of))

    def _copy_link_keys(self) -> None:
        """Copy what makes the links of former secret keys, which belongs to the installation."""
        kept = self._source.read(lambda tx: tx.all(_LINK_KEYS))
        known = {row[0] for row in self._target.read(lambda tx: tx.all(_LINK_KEYS))}
        for key_id, sealed, created_at in kept:
            if key_id not in known:
                row = {"key_id": key_id, "key_sealed": sealed, "created_at": created_at}
                self._target.write(lambda tx, row=row: tx.insert(tables.link_keys, **row))  # type: ignore[misc]

    # Leaving ---------------------------------------------------------------------------------------------------------

    def _leave(self, organization_id: str) -> float:
        """Let the organization leave, and return for how many seconds its changes were refused."""
        assert self._comparison is not None
        self._require_few_at_once(organization_id)
        for attempt in range(1, _SWITCHES + 1):
            self._catch_up(organization_id, self._early)
            self._comparison.narrow()
            begun_s = self._clock()
            try:
                self._leave_once(organization_id)
            except Unavailable:
                if not self._has_left(organization_id):
                    self._require_in_time(begun_s)
                    if attempt == _SWITCHES:
                        raise
                    self._pause(_PAUSE_S * attempt)
                    continue
            return self._clock() - begun_s
        raise AssertionError

    def _require_few_at_once(self, organization_id: str) -> None:
        """Check that few rows are left for the moment in which changes are refused.

        Raises:
            CellError: there are too many.
        """
        with self._source.reading() as tx:
            counts = {table.name: rows.count_at_once(tx, table, organization_id) for table in self._tables}
        if sum(counts.values()) > AT_ONCE_MAX:
            name = max(counts, key=lambda each: counts[each])
            raise CellError(
                f"{sum(counts.values())} rows of {self._slug} wait for a worker or an endpoint, {counts[name]} of them"
                f" in {name}. They could only be copied while its changes are refused: run the command again when"
                f" fewer than {AT_ONCE_MAX} are left."
            )

    def _require_in_time(self, begun_s: float) -> None:
        """Check that changes were not refused for too long.

        Raises:
            CellError: they were.
        """
        if self._clock() - begun_s > FROZEN_MAX_S:
            raise CellError(
                f"The changes of {self._slug} would be refused for more than {FROZEN_MAX_S:.0f} seconds, so it lives"
                " where it did. Run the command again at a quieter time."
            )

    def _leave_once(self, organization_id: str) -> None:
        begun_s = self._clock()
        with ExitStack() as stack:
            leaving = stack.enter_context(self._source.writing())
            leaving.allow_pauses()
            guards.pass_as_mover(leaving)
            guards.freeze(leaving, organization_id)
            leaving.first(_LOCK_COUNTERS, o=organization_id)  # workers and bookings that wait pass over it
            self._stage(leaving, organization_id)
            self._require_in_time(begun_s)
            # What is committed there after the commit here is written before it.
            arriving = stack.enter_context(self._target.writing())
            arriving.allow_pauses()
            _arrive(arriving, organization_id, self._tables)
            self._require_in_time(begun_s)
            self._require_same(leaving, arriving, organization_id)
            self._require_in_time(begun_s)
            self._let_go(leaving, organization_id)
            leaving.commit()

    def _stage(self, leaving: Tx, organization_id: str) -> None:
        """Copy the last changes, and put down in the other cell what makes the organization live there."""
        noted = leaving.all(_FIND_CHANGES, o=organization_id)
        if len(noted) >= _CHANGES:
            raise Unavailable(is_locked=True)
        changes = [(str(row[0]), str(row[1]), str(row[2])) for row in noted]
        self._apply(leaving, organization_id, _by_table(self._early, changes))
        self._note(changes)
        last = [(table, rows.read_at_once(leaving, table, organization_id)) for table in self._tables]
        self._at_once = {table.name: [row.key for row in found] for table, found in last}
        self._target.write(lambda tx: _stage_rows(tx, organization_id, last))

    def _require_same(self, leaving: Tx, arriving: Tx, organization_id: str) -> None:
        """Compare what was not found the same before, and the number of rows of each table.

        Raises:
            CellError: both copies are not the same.
        """
        assert self._comparison is not None
        self._comparison.require_same(leaving, arriving, self._at_once)

    def _let_go(self, leaving: Tx, organization_id: str) -> None:
        now = leaving.now()
        forwarding.write(leaving, organization_id, self._target_cell.name, now=now)
        for table in reversed(self._tables):
            rows.delete_live(leaving, table, organization_id)
        leaving.update(_SWITCHED, organization_id=organization_id, state=MOVED, switched_at=now)

    def _has_left(self, organization_id: str) -> bool:
        row = self._source.read(lambda tx: tx.first(_GET, o=organization_id))
        return row is not None and row[3] == MOVED

    # Cleaning up -----------------------------------------------------------------------------------------------------

    def _clean_up(self, organization_id: str) -> None:
        _delete_all(self._source, organization_id, self._tables)
        self._pause(LATE_S)
        guards.remove(self._source, organization_id, self._pause)
        self._forget(organization_id)

    def _forget(self, organization_id: str) -> None:
        """Delete what the move has noted, a batch at a time, and the move itself last."""
        while noted := self._source.read(lambda tx: tx.all(_FIND_CHANGES, o=organization_id)):
            ids = json.dumps([str(row[0]) for row in noted])
            self._source.write(lambda tx, ids=ids: tx.run(_DELETE_CHANGES, o=organization_id, ids=ids))  # type: ignore[misc]
        self._source.write(lambda tx: tx.run(_DELETE, o=organization_id))


_FOREIGN_KEY = "23503"


def _stage_rows(tx: Tx, organization_id: str, last: Sequence[tuple[Table, Sequence[rows.Row]]]) -> None:
    arrivals.announce(tx, organization_id)
    for table, found in last:
        for start in range(0, len(found), rows.BATCH):
            array = rows.as_array(found[start : start + rows.BATCH])
            row = {"id": new_id(), "table_name": table.name, "rows": array}
            tx.insert(tables.cell_arrivals, organization_id=organization_id, **row)


def _arrive(tx: Tx, organization_id: str, of: Sequence[Table]) -> None:
    """Write the rows that make the organization live in this cell; nothing if it does already."""
    staged = [(str(name), str(array)) for name, array in tx.all(_ARRIVALS, o=organization_id)]
    for table in of:
        for name, array in staged:
            if name == table.name and array != arrivals.NO_ROWS:
                rows.write(tx, table, array)
    if staged:
        forwarding.clear(tx, organization_id)
        arrivals.settle(tx, organization_id)


def _delete_all(database: Database, organization_id: str, of: Sequence[Table]) -> None:
    """Delete the organization's rows, those first that refer to others, in short transactions."""

    def delete(tx: Tx, table: Table) -> int:
        guards.pass_as_mover(tx)
        return rows.delete_some(tx, table, organization_id)

    for table in reversed(of):
        while database.write(lambda tx, table=table: delete(tx, table)):  # type: ignore[misc]
            pass


def _by_table(of: Sequence[Table], changes: Sequence[tuple[str, str, str]]) -> list[tuple[Table, set[str]]]:
    """Return the keys that have changed, by table in the order of the tables."""
    by_name = {table.name: {key for _, name, key in changes if name == table.name} for table in of}
    return [(table, by_name[table.name]) for table in of if by_name[table.name]]
