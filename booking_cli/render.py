"""The only writer to the terminal: one renderer for every command.

stdout holds the result and nothing else; notes, questions, progress and errors go to stderr. On a terminal a result is
a table, elsewhere tab-separated with full values. In the json modes stdout is JSON, and stderr one JSON object when
something went wrong.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from booking_cli.exit_codes import ExitCode

FORMATS = ("table", "json", "jsonl", "tsv")
COLORS = ("auto", "always", "never")

Item = Mapping[str, Any]
Advance = Callable[[int, int], None]
"""Told how many are done, and of how many."""

_RED, _YELLOW, _DIM, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}
"""A name in the database must not move the cursor of an operator's terminal, nor break a line of TSV."""
_WIDE = 10_000
_GAP = 2


def wants_color(stream: TextIO, choice: str) -> bool:
    """--color, then NO_COLOR, then FORCE_COLOR or CLICOLOR_FORCE, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def value_at(item: Item, path: str) -> Any:
    """What lies at a dotted path, or none."""
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def picked(item: Item, paths: Sequence[str]) -> dict[str, Any]:
    """The item with those paths alone, nested as it was."""
    result: dict[str, Any] = {}
    for path in paths:
        *parents, last = path.split(".")
        place = result
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = value_at(item, path)
    return result


def text_of(value: Any) -> str:
    """A value in full, on one line: empty for null, commas in a list, JSON for what is nested deeper."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple) and not any(isinstance(each, Mapping | list) for each in value):
        return ",".join(map(text_of, value))
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | list | tuple) else str(value)
    return text.translate(_ESCAPES)


class Renderer:
    """Writes results, notes and errors as the options of one command ask."""

    def __init__(
        self,
        *,
        output: str | None = None,
        fields: Sequence[str] = (),
        color: str = "auto",
        quiet: bool = False,
        verbose: int = 0,
        progress: bool = True,
    ) -> None:
        self.format = output or ("table" if sys.stdout.isatty() else "tsv")
        self.fields = tuple(fields)
        self._color = color
        self._quiet = quiet
        self._verbose = verbose
        self._progress = progress

    @property
    def is_json(self) -> bool:
        return self.format in ("json", "jsonl")

    # Results ---------------------------------------------------------------------------------------------------

    def one(self, item: Item) -> None:
        """A single thing: an object, or a line for each of its fields."""
        if self.is_json:
            self._json(picked(item, self.fields) if self.fields else item)
        elif self.fields:
            self._line(item, self.fields)
        elif self.format == "tsv":
            for key, value in item.items():
                self._write(f"{key}\t{text_of(value)}\n")
        else:
            self._pairs(item)

    def many(self, items: Sequence[Item], columns: Sequence[str], *, empty: str = "Nothing found.") -> None:
        """A whole list, in the envelope of the API's lists."""
        if self.format == "json":
            data = [picked(item, self.fields) for item in items] if self.fields else list(items)
            self._json({"data": data, "has_more": False, "next_cursor": None})
        elif self.format == "jsonl":
            for item in items:
                self._json(picked(item, self.fields) if self.fields else item)
        elif self.format == "tsv":
            for item in items:
                self._line(item, self.fields or columns)
        elif items:
            self._table(items, self.fields or columns)
        else:
            self.note(empty)

    def document(self, item: Item) -> None:
        """A file for a program, which is JSON whatever the output is."""
        self._json(item, indent=None if self.format == "jsonl" else 2)

    def text(self, text: str) -> None:
        """A result that is prose; a command gives an object instead in the json modes."""
        self._write(text + "\n")

    def _line(self, item: Item, paths: Sequence[str]) -> None:
        self._write("\t".join(text_of(value_at(item, path)) for path in paths) + "\n")

    def _json(self, item: Item, indent: int | None = None) -> None:
        ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
        indent = 2 if self.format == "json" else indent
        self._write(json.dumps(item, ensure_ascii=ascii_only, indent=indent) + "\n")

    def _pairs(self, item: Item) -> None:
        width = max(map(len, item))
        for key, value in item.items():
            self._write(f"{key:<{width}}  {text_of(value)}".rstrip() + "\n")

    def _table(self, items: Sequence[Item], paths: Sequence[str]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        colored = wants_color(sys.stdout, self._color)
        console = Console(
            file=sys.stdout,
            force_terminal=colored,
            no_color=not colored,
            color_system="standard" if colored else None,
            width=None if sys.stdout.isatty() else _WIDE,
            highlight=False,
        )
        cells = {path: [_short(text_of(value_at(item, path))) for item in items] for path in paths}
        shown = paths if self.fields else _fitting(cells, console.width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for path in shown:
            is_number = all(isinstance(value_at(item, path), int | float) for item in items)
            table.add_column(
                _title(path),
                overflow="fold",
                justify="right" if is_number else "left",
                no_wrap=path == "id",  # broken over two lines it cannot be copied
                min_width=max(map(len, cells[path])) if path == "id" else None,
            )
        for number in range(len(items)):
            table.add_row(*(Text(cells[path][number]) for path in shown))
        console.print(table)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)

    def flush(self) -> None:
        """Writes out what is buffered, so that a closed pipe is noticed now."""
        sys.stdout.flush()

    # What goes beside the result -------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A remark for a person; nothing in the json modes, nothing with --quiet."""
        if not (self._quiet or self.is_json):
            self._aside(text)

    def detail(self, text: str) -> None:
        """A remark for who asked with --verbose."""
        if self._verbose:
            self.note(self._painted(text, _DIM))

    def warn(self, text: str) -> None:
        """A remark that should not be overlooked."""
        if not self.is_json:
            self._aside(self._painted(text, _YELLOW))

    def _aside(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def _painted(self, text: str, color: str) -> str:
        return f"{color}{text}{_PLAIN}" if wants_color(sys.stderr, self._color) else text

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Advance]:
        """A bar on stderr while something long runs, where somebody can see it."""
        if not (self._progress and sys.stderr.isatty()) or self._quiet or self.is_json:
            yield lambda done, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        colored = wants_color(sys.stderr, self._color)
        console = Console(file=sys.stderr, no_color=not colored, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            task = shown.add_task(title, total=None)
            yield lambda done, total: shown.update(task, completed=done, total=total)

    def error(
        self,
        message: str,
        *,
        code: str,
        exit_code: ExitCode,
        hint: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        details: Sequence[Item] = (),
    ) -> None:
        """Why the command failed: a line with a hint below it, or one JSON object."""
        if self.is_json:
            error: dict[str, Any] = {
                "code": code,
                "message": message,
                "status": status,
                "request_id": request_id,
                "hint": hint,
                "exit_code": int(exit_code),
            }
            if details:
                error["details"] = list(details)
            self._aside(json.dumps({"error": error}))
            return
        self._aside(f"{self._painted('error:', _RED)} {one_line(message)}")
        for detail in details:
            if detail["message"] in message:
                continue
            self._aside(f"  {one_line(detail.get('field') or '')}: {one_line(detail['message'])}")
        if request_id:
            self._aside(f"request: {request_id}")
        if hint:
            self._aside(f"hint: {hint}")


def one_line(text: str) -> str:
    """The text without what would break the line or move the cursor."""
    return " ".join(text.split()).translate(_ESCAPES)


def _title(path: str) -> str:
    return path.replace("_", " ")


def _fitting(cells: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """The first columns that fit the terminal side by side; the first in any case."""
    shown: list[str] = []
    for path, texts in cells.items():
        width -= max(len(_title(path)), *map(len, texts)) + _GAP
        if shown and width < -_GAP:
            break
        shown.append(path)
    return shown


def _short(text: str) -> str:
    """For a table: a timestamp to the minute, as the clock on the organization's wall shows it."""
    is_timestamp = len(text) == 25 and text[10:11] == "T" and text[4:5] == "-" and text[22:23] == ":"
    return f"{text[:10]} {text[11:16]}" if is_timestamp else text
