"""A list without an end, written as it grows: on a terminal with a line below it that says what is waited for."""

import shutil
import sys
from collections.abc import Mapping
from typing import Self

from booking_cli.framework.context import Cli
from booking_cli.framework.output import Item, one_line, shortened, text_of, value_at, wants_color

_CLEAR = "\r\x1b[2K"
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_GAP = "  "


class Stream:
    """Takes items one by one. In both json modes each is an object on a line of its own, in TSV a line."""

    def __init__(self, cli: Cli, columns: Mapping[str, int], waiting: str) -> None:
        """
        Args:
            columns: the paths, with the width that each is given; those that fit side by side are shown.
            waiting: what the line below says.
        """
        self._render = cli.render
        self._columns = columns if not self._render.fields else dict.fromkeys(self._render.fields, 0)
        self._is_live = self._render.format == "table" and sys.stdout.isatty()
        self._is_colored = wants_color(sys.stdout, cli.options.color)
        self._waiting = waiting

    def __enter__(self) -> Self:
        if self._is_live:
            self._shown = self._fitting(shutil.get_terminal_size().columns)
            self._above(self._painted(self._row(dict(zip(self._shown, self._shown, strict=True))), _BOLD))
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_live:
            sys.stdout.write(_CLEAR)

    def show(self, item: Item) -> None:
        """Writes an item, at once."""
        if self._is_live:
            self._above(self._row({path: shortened(text_of(value_at(item, path))) for path in self._shown}))
        elif self._render.is_json:
            self._render.line(item)
        else:
            self._render.many([item], tuple(self._columns))
        self._render.flush()

    def note(self, text: str) -> None:
        """A remark between the items."""
        if self._is_live:
            self._above(self._painted(one_line(text), _DIM))
        else:
            self._render.note(text)

    def _above(self, text: str) -> None:
        """Writes a line above the one that stays."""
        status = self._waiting[: shutil.get_terminal_size().columns - 1]
        sys.stdout.write(f"{_CLEAR}{text}\n{self._painted(status, _DIM)}")
        sys.stdout.flush()

    def _row(self, cells: Mapping[str, str]) -> str:
        return _GAP.join(f"{cells[path]:<{self._columns[path]}}" for path in self._shown).rstrip()

    def _fitting(self, room: int) -> list[str]:
        if self._render.fields:
            return list(self._columns)
        shown: list[str] = []
        for path, width in self._columns.items():
            if shown and room < width:
                break
            shown.append(path)
            room -= width + len(_GAP)
        return shown

    def _painted(self, text: str, style: str) -> str:
        return f"{style}{text}{_PLAIN}" if self._is_colored else text
