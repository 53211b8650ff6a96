"""Write an endless list item by item."""

import shutil
import sys
from collections.abc import Mapping

from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import BOLD, Item, readable, value_at
from booking_cli.framework.tables import headings_of

_GAP = "  "


class Stream:
    """Writes items one by one: as a JSON object per line in both json modes, as a line elsewhere."""

    def __init__(self, cli: Cli, columns: Mapping[str, int]) -> None:
        """Write the header, if the list is written to a terminal.

        Args:
            columns: the paths with their widths; the leading ones that fit are shown.
        """
        self._render = cli.render
        self._columns = columns if not self._render.fields else dict.fromkeys(self._render.fields, 0)
        self._visible: list[str] = []
        if self._render.format == "table" and sys.stdout.isatty():
            self._visible = self._fitting(shutil.get_terminal_size().columns)
            titles = {path: path for path in self._visible} if self._render.fields else headings_of(self._visible)
            self._render.text(self._render.painted(self._row(titles), BOLD))

    def show(self, item: Item) -> None:
        """Write an item immediately."""
        if self._visible:
            self._render.text(self._row({path: readable(value_at(item, path)) for path in self._visible}))
        elif self._render.is_json:
            self._render.line(item)
        else:
            self._render.many([item], tuple(self._columns))
        self._render.flush()

    def _row(self, cells: Mapping[str, str]) -> str:
        return _GAP.join(f"{cells[path]:<{self._columns[path]}}" for path in self._visible).rstrip()

    def _fitting(self, width: int) -> list[str]:
        if self._render.fields:
            return list(self._columns)
        paths: list[str] = []
        for path, column in self._columns.items():
            if paths and width < column:
                break
            paths.append(path)
            width -= column + len(_GAP)
        return paths
