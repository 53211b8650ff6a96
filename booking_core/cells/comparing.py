"""Compares both copies of an organization that moves (decision 0060).

All rows are compared beside the service, a page at a time. A row that differs, or changes afterwards, stays open: it is
compared again, at last while changes are refused. So that moment is as short for a large organization as for a small
one, but for counting its rows.
"""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Table

from booking_core.cells import rows
from booking_core.cells.registry import CellError
from booking_core.db.engine import Database, Tx

PAGE = 2_000
"""Rows that are compared at once."""


class Comparison:
    """The rows of an organization that were not found the same in both cells yet.

    Args:
        of: the tables that are copied before the organization leaves.
    """

    def __init__(self, source: Database, target: Database, organization_id: str, of: Sequence[Table]) -> None:
        self._source = source
        self._target = target
        self._organization_id = organization_id
        self._tables = of
        self._open: dict[str, set[str]] = {table.name: set() for table in of}

    @property
    def open_count(self) -> int:
        """The number of rows that are to be compared again."""
        return sum(map(len, self._open.values()))

    def note(self, table_name: str, keys: Iterable[str]) -> None:
        """Compare these rows again, since they have changed."""
        if table_name in self._open:
            self._open[table_name].update(map(rows.canonical, keys))

    def compare_all(self) -> None:
        """Compare every row of the source with its copy."""
        for table in self._tables:
            after, is_last = None, False
            while not is_last:
                after, is_last = self._compare_page(table, after)

    def _compare_page(self, table: Table, after: str | None) -> tuple[str | None, bool]:
        of, position = self._organization_id, after
        page = self._source.read(lambda tx: rows.read_hashes(tx, table, of, position, PAGE))
        if page:
            keys = [row.key for row in page]
            copies = self._target.read(lambda tx: rows.hashes_of(tx, table, of, keys, held_back=False))
            self.note(table.name, different(page, copies))
        return (page[-1].key if page else None), len(page) < PAGE

    def narrow(self) -> None:
        """Compare the open rows again, and leave those that still differ open."""
        of = self._organization_id
        for table in self._tables:
            keys = self._open[table.name]
            if keys:
                own = self._source.read(lambda tx, table=table, keys=keys: rows.hashes_of(tx, table, of, keys))  # type: ignore[misc]
                copies = self._target.read(
                    lambda tx, table=table, keys=keys: rows.hashes_of(tx, table, of, keys, held_back=False)  # type: ignore[misc]
                )
                self._open[table.name] = set(map(rows.canonical, different(own, copies)))

    def require_same(self, leaving: Tx, arriving: Tx, at_once: Mapping[str, Sequence[str]]) -> None:
        """Compare what is still open, while changes are refused: with the number of rows of each table.

        Args:
            at_once: the keys of the rows that were copied just now, by table.

        Raises:
            CellError: both copies are not the same.
        """
        of = self._organization_id
        for table in rows.moved_tables():
            here, there = rows.count(leaving, table, of), rows.count(arriving, table, of)
            keys = {*self._open.get(table.name, ()), *map(rows.canonical, at_once.get(table.name, ()))}
            own, copies = (rows.hashes_of(tx, table, of, keys, held_back=False) for tx in (leaving, arriving))
            if here != there or different(own, copies):
                raise self._difference(table.name, f"{here} and {there}")

    def require_few_open(self, most: int) -> None:
        """Check that not too many rows are open.

        Raises:
            CellError: they are not the same, however often they are copied.
        """
        if self.open_count > most:
            name, keys = max(self._open.items(), key=lambda each: len(each[1]))
            raise self._difference(name, f"at {len(keys)} places")

    def _difference(self, table_name: str, where: str) -> CellError:
        return CellError(
            f"The rows of {table_name} are not the same in both cells ({where}), and the organization lives where it"
            " did. Undo the move with --abort, and begin it again."
        )


def different(own: Iterable[rows.Hashed], copies: Iterable[rows.Hashed]) -> set[str]:
    """Return the keys of the rows that one side lacks, or that are not the same."""
    return {key for key, _ in set(own) ^ set(copies)}
