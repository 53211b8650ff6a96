"""Lay out tables: which columns fit side by side, and how wide each one is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from booking_cli.framework.formatting import Item, is_money, readable, value_at

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2
_WRAPPED_MIN = 16
"""The width below which wrapped text is hard to read."""
_TRUNCATED_MIN = 12
"""The width below which a truncated name or title says too little."""

HEADINGS: Mapping[str, str] = {
    "booking_number": "number",
    "departure.starts_at": "departs",
    "customer.name": "customer",
    "experience.title": "experience",
    "payment.status": "payment",
    "refund.amount": "refund",
    "is_published": "published",
    "code_last4": "last4",
    "recipient.email": "recipient",
    "default_currency": "currency",
    "consecutive_failures": "failures",
    "last_failure_at": "last_failure",
    "last_success_at": "last_success",
    "attempt_count": "attempts",
    "last_response_status": "http",
    "response_status": "http",
    "last_error": "error",
    "duration_ms": "ms",
    "response_excerpt": "response",
    "next_attempt_at": "next_attempt",
}
"""Column headings that are shorter than their fields: more columns fit. With --fields they are the fields."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a list, by importance: a narrow terminal shows the first ones."""

    paths: Sequence[str]
    empty: str = "Nothing found."
    """The note for a list without items."""
    terminal: Sequence[str] = ()
    """The columns of a terminal, if they are others."""
    cells: Mapping[str, Callable[[Item], Any]] = field(default_factory=dict)
    """Functions that return the values of a terminal's columns, if they are no fields of the items."""
    truncated: Mapping[str, int] = field(default_factory=dict)
    """Columns of a terminal that may end in an ellipsis, with the width that each should have before less important
    columns are shown."""
    wrapped: Sequence[str] = ()
    """Columns of a terminal that may break into lines."""
    below: Callable[[Item], str] | None = None
    """Returns a text that is written below each row on a terminal, whose cells are not wrapped then."""

    def values(self, items: Sequence[Item], path: str) -> list[Any]:
        """Return the values of a terminal's column."""
        cell = self.cells.get(path)
        return [cell(item) if cell else value_at(item, path) for item in items]


def titles_of(paths: Sequence[str]) -> dict[str, str]:
    """Return the title of each column: the last part of its path, or the whole path where that is ambiguous."""
    last = {path: path.rpartition(".")[2] for path in paths}
    return {path: name if list(last.values()).count(name) == 1 else path for path, name in last.items()}


def headings_of(paths: Sequence[str]) -> dict[str, str]:
    """Return the heading of each column: the shorter one of HEADINGS, or its title."""
    return {path: HEADINGS.get(path, title) for path, title in titles_of(paths).items()}


def build_table(items: Sequence[Item], columns: Columns, width: int, *, is_selected: bool) -> "Table":
    """Return a Rich table of the items.

    Args:
        width: the cells of a line.
        is_selected: `--fields` names the columns. All of them are shown then, in full, under the names of the fields.
    """
    from rich.table import Table
    from rich.text import Text

    paths = columns.terminal or columns.paths
    values = {path: columns.values(items, path) for path in paths}
    cells = {path: [readable(value) for value in values[path]] for path in paths}
    titles = {path: path for path in paths} if is_selected else headings_of(paths)
    layout = Layout(cells, titles, columns.wrapped, columns.truncated)
    widths = dict.fromkeys(paths) if is_selected else layout.fit(width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for path, limit in widths.items():
        may_break = limit or (path != "id" and (is_selected or path in columns.wrapped or layout.length(path) > width))
        fixed = None if may_break else layout.length(path)
        table.add_column(
            titles[path],
            overflow="ellipsis" if limit else "fold",
            justify="right" if _is_numeric(values[path]) else "left",
            no_wrap=fixed is not None or limit is not None,
            min_width=fixed,
            width=limit,
        )
    for number in range(len(items)):
        table.add_row(*(Text(cells[path][number]) for path in widths))
    return table


def _is_numeric(values: Sequence[Any]) -> bool:
    numbers = [value for value in values if value is not None]
    return bool(numbers) and all(is_money(value) or type(value) in (int, float) for value in numbers)


class Layout:
    """Decides which columns of a table are shown, and how wide the truncated ones are.

    Widths are cells of the terminal: a Chinese or Japanese character takes two.
    """

    def __init__(
        self,
        cells: Mapping[str, Sequence[str]],
        titles: Mapping[str, str],
        wrapped: Sequence[str],
        truncated: Mapping[str, int],
    ) -> None:
        from rich.cells import cell_len

        self._longest = {path: max(map(cell_len, texts), default=0) for path, texts in cells.items()}
        self._natural = {path: max(len(titles[path]), length) for path, length in self._longest.items()}
        self._wrapped = wrapped
        self._truncated = truncated

    def length(self, path: str) -> int:
        """Return the width of the longest cell of a column."""
        return self._longest[path]

    def fit(self, width: int) -> dict[str, int | None]:
        """Return the columns that fit, at least the first, each with its width if it is truncated."""
        paths = self._select(width)
        fixed = [self._preferred(path) for path in paths if path not in self._truncated]
        free = width - sum(fixed) - _GAP * (len(paths) - 1)
        shares = self._share([path for path in paths if path in self._truncated], free)
        return {path: shares.get(path) for path in paths}

    def _select(self, width: int) -> list[str]:
        """Return the leading columns that fit.

        Truncated columns may shrink to their minimum, up to the last of them. A column after that is shown only when
        the columns before it have their preferred width.
        """
        paths: list[str] = []
        narrow = wide = -_GAP
        for path in self._natural:
            is_truncated = path in self._truncated
            least = min(self._natural[path], _TRUNCATED_MIN) if is_truncated else self._preferred(path)
            end = (narrow if is_truncated else wide) + _GAP + least
            if paths and end > width:
                break
            narrow, wide = narrow + _GAP + least, wide + _GAP + self._preferred(path)
            paths.append(path)
        return paths

    def _preferred(self, path: str) -> int:
        limit = self._truncated.get(path, _WRAPPED_MIN if path in self._wrapped else None)
        return self._natural[path] if limit is None else min(self._natural[path], limit)

    def _share(self, paths: Sequence[str], free: int) -> dict[str, int]:
        """Divide free cells among columns. Cells that a short column does not need go to the longer ones."""
        shares: dict[str, int] = {}
        for count, path in zip(range(len(paths), 0, -1), sorted(paths, key=self._natural.__getitem__), strict=True):
            shares[path] = max(1, min(self._natural[path], free // count))
            free -= shares[path]
        return shares
