"""Write an endless list item by item; on a terminal with a status line below it."""

import shutil
import sys
from collections.abc import Mapping
from typing import Self

from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import (
    BOLD,
    CLEAR_LINE,
    DIM,
    PLAIN,
    Item,
    one_line,
    readable,
    value_at,
    wants_color,
)

_GAP = "  "


class Stream:
    """Writes items one by one: as a JSON object per line in both json modes, as a line in TSV."""

    def __init__(self, cli: Cli, columns: Mapping[str, int], status: str) -> None:
        """
        Args:
            columns: the paths with their widths; the leading ones that fit are shown.
            status: the text of the status line.
        """
        self._render = cli.render
        self._columns = columns if not self._render.fields else dict.fromkeys(self._render.fields, 0)
        self._is_live = self._render.format == "table" and sys.stdout.isatty()
        self._is_colored = wants_color(sys.stdout, cli.options.color)
        self._status = status

    def __enter__(self) -> Self:
        if self._is_live:
            self._visible = self._fitting(shutil.get_terminal_size().columns)
            self._write_line(self._painted(self._row(dict(zip(self._visible, self._visible, strict=True))), BOLD))
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_live:
            sys.stdout.write(CLEAR_LINE)

    def show(self, item: Item) -> None:
        """Write an item immediately."""
        if self._is_live:
            self._write_line(self._row({path: readable(value_at(item, path)) for path in self._visible}))
        elif self._render.is_json:
            self._render.line(item)
        else:
            self._render.many([item], tuple(self._columns))
        self._render.flush()

    def note(self, text: str) -> None:
        """Write a note between the items."""
        if self._is_live:
            self._write_line(self._painted(one_line(text), DIM))
        else:
            self._render.note(text)

    def _write_line(self, text: str) -> None:
        """Write a line above the status line."""
        status = self._status[: shutil.get_terminal_size().columns - 1]
        sys.stdout.write(f"{CLEAR_LINE}{text}\n{self._painted(status, DIM)}")
        sys.stdout.flush()

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

    def _painted(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._is_colored else text
