"""The only writer to the terminal: one renderer for every command.

stdout holds the result and nothing else; notes, questions, progress and errors go to stderr. On a terminal a result is
a table, elsewhere tab-separated with full values. In the json modes stdout is JSON, and stderr one JSON object when
something went wrong.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from booking_cli.framework.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FORMATS = ("table", "json", "jsonl", "tsv")
COLORS = ("auto", "always", "never")

Item = Mapping[str, Any]
Advance = Callable[[int, int], None]
"""Told how many are done, and of how many."""

_RED, _YELLOW, _DIM, _BOLD, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[1m", "\x1b[0m"
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = (
    {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
    | {code: f"\\u{code:04x}" for code in (*_BIDI, 0x2028, 0x2029)}
    | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
)
"""A name in the database must not move the cursor of an operator's terminal, reorder what stands beside it, nor break a
line of TSV."""
_WIDE = 10_000
_GAP = 2
_PROSE = 16
"""Narrower than this, prose is hard to read."""
_CLIPPED = 12
"""Narrower than this, a name or a title that ends in an ellipsis says too little."""

HEADINGS: Mapping[str, str] = {
    "booking_number": "number",
    "departure.starts_at": "departs",
    "customer.name": "customer",
    "experience.title": "experience",
    "payment.status": "payment",
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
"""Column headings that are shorter than their fields, so that more columns fit. With --fields they are the fields."""


def wants_color(stream: TextIO, choice: str) -> bool:
    """--color, then NO_COLOR, then FORCE_COLOR or CLICOLOR_FORCE, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class UnknownField(Exception):
    """`--fields` names a field that what is written does not have."""

    def __init__(self, path: str, known: Iterable[str]) -> None:
        super().__init__(path)
        self.path = path
        self.known = tuple(dict.fromkeys(known))


def _holds(item: Item, path: str) -> bool:
    """Return whether there is a field at a dotted path, or a null above it, which may have it another time."""
    value: Any = item
    for part in path.split("."):
        if value is None:
            return True
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _paths(items: Sequence[Item], prefix: str = "") -> Iterator[str]:
    """Yield every path that an item has."""
    for item in items:
        for name, value in item.items():
            yield f"{prefix}{name}"
            if isinstance(value, Mapping):
                yield from _paths([value], f"{prefix}{name}.")


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
        if any(path.startswith(f"{other}.") for other in paths):
            continue  # it is there, in the whole that was asked for too
        *parents, last = path.split(".")
        place = result
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = value_at(item, path)
    return result


def is_money(value: Any) -> bool:
    """Whether it is an amount as the API writes it."""
    return isinstance(value, Mapping) and value.keys() == {"amount_minor", "currency"}


def money(amount: Mapping[str, Any]) -> str:
    """An amount for people, with the digits that its currency has: 890.00 NOK, 25000 CLP."""
    from booking_core.models.currencies import minor_digits

    minor, currency = int(amount["amount_minor"]), str(amount["currency"])
    digits = minor_digits(currency)
    text = f"{abs(minor):0{digits + 1}}"
    point = f"{text[:-digits]}.{text[-digits:]}" if digits else text
    return f"{'-' if minor < 0 else ''}{point} {currency}"


def flat(item: Item, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every field of an item with its dotted path and its text; a line for each thing in a list of things."""
    for key, value in item.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not is_money(value):
            yield from flat(value, f"{path}.")
        elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
            for number, each in enumerate(value):
                texts = (text_of(inner) for inner in each.values())
                yield path if number == 0 else "", ", ".join(text for text in texts if text)
        elif isinstance(value, list | tuple):
            yield path, ", ".join(map(text_of, value))
        else:
            yield path, text_of(value)


def text_of(value: Any) -> str:
    """A value in full, on one line: empty for null, commas in a list, JSON for what is nested deeper."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_money(value):
        return money(value)
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
        self._shape: str | None = None
        self._color = color
        self._quiet = quiet
        self._verbose = verbose
        self._progress = progress

    @property
    def is_json(self) -> bool:
        return self.format in ("json", "jsonl")

    # --fields -------------------------------------------------------------------------------------------------

    def expect(self, shape: str | None, *, checked: bool = False) -> None:
        """Take note of what will be written.

        Args:
            shape: a name of `shapes`.
            checked: refuse fields that it does not have now; else they are looked for in what is written.

        Raises:
            UnknownField: `--fields` names one that it does not have.
        """
        self._shape = shape
        if checked and shape:
            self.check([])

    def check(self, items: Sequence[Item]) -> None:
        """Compare `--fields` with what is written, or with the shape where nothing is.

        Raises:
            UnknownField: neither has a field.
        """
        if not self.fields or not (items or self._shape):
            return
        from booking_cli.framework import output_fields

        for path in self.fields:
            if any(_holds(item, path) for item in items) or (self._shape and output_fields.names(path, self._shape)):
                continue
            raise UnknownField(path, output_fields.paths(self._shape) if self._shape else _paths(items))

    # Results ---------------------------------------------------------------------------------------------------

    def one(self, item: Item) -> None:
        """A single thing: an object, or a line for each of its fields."""
        self.check([item])
        if self.is_json:
            self._json(picked(item, self.fields) if self.fields else item)
        elif self.fields:
            self._line(item, self.fields)
        elif self.format == "tsv":
            for key, value in item.items():
                self._write(f"{key}\t{text_of(value)}\n")
        else:
            self._pairs(item)

    def many(
        self,
        items: Sequence[Item],
        columns: Sequence[str],
        *,
        empty: str = "Nothing found.",
        next_cursor: str | None = None,
        prose: Sequence[str] = (),
        clipped: Mapping[str, int] | None = None,
        beside: Item | None = None,
    ) -> None:
        """Write a whole list, or a page with the cursor to the next, in the envelope of the API's lists.

        Args:
            prose: columns of a table that may be broken into lines.
            clipped: columns of a table that may end in an ellipsis, with the width each should have before less
                important columns are shown.
            beside: further fields of the envelope.

        Raises:
            UnknownField: `--fields` names a field that the items do not have.
        """
        self.check(items)
        if self.format == "json":
            data = [picked(item, self.fields) for item in items] if self.fields else list(items)
            self._json(
                {"data": data, "has_more": next_cursor is not None, "next_cursor": next_cursor, **(beside or {})}
            )
        elif self.format == "jsonl":
            for item in items:
                self._json(picked(item, self.fields) if self.fields else item)
        elif self.format == "tsv":
            for item in items:
                self._line(item, self.fields or columns)
        elif items:
            self._table(items, self.fields or columns, prose, clipped or {})
        else:
            self.note(empty)

    def document(self, item: Item) -> None:
        """A file for a program, which is JSON whatever the output is."""
        self._json(item, indent=None if self.format == "jsonl" else 2)

    def text(self, text: str) -> None:
        """A result that is prose; a command gives an object instead in the json modes."""
        self._write(text + "\n")

    def heading(self, text: str) -> None:
        """Write a line that begins a section of prose, in bold where there is color."""
        self._write(self._bold(text) + "\n")

    def line(self, item: Item) -> None:
        """One of many things in the json modes, on a line of its own."""
        self.check([item])
        ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
        self._write(json.dumps(picked(item, self.fields) if self.fields else item, ensure_ascii=ascii_only) + "\n")

    def _line(self, item: Item, paths: Sequence[str]) -> None:
        self._write("\t".join(text_of(value_at(item, path)) for path in paths) + "\n")

    def _json(self, item: Item, indent: int | None = None) -> None:
        ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
        indent = 2 if self.format == "json" else indent
        self._write(json.dumps(item, ensure_ascii=ascii_only, indent=indent) + "\n")

    def _pairs(self, item: Item) -> None:
        pairs = [(path, shortened(text)) for path, text in flat(item)]
        width = max((len(title) for title, _ in pairs), default=0)
        for title, text in pairs:
            self._write(f"{self._bold(f'{title:<{width}}')}  {text}".rstrip() + "\n")

    def _bold(self, text: str) -> str:
        return f"{_BOLD}{text}{_PLAIN}" if wants_color(sys.stdout, self._color) else text

    @contextlib.contextmanager
    def watched(
        self, columns: Sequence[str], clipped: Mapping[str, int] | None = None
    ) -> Iterator[Callable[[Sequence[Item]], None]]:
        """Draw a table on the terminal, again in its place each time it is told what to show."""
        from rich.live import Live

        console = self._console()
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda items: live.update(
                self._tabled(items, self.fields or columns, console.width, clipped=clipped or {}), refresh=True
            )

    def _table(
        self, items: Sequence[Item], paths: Sequence[str], prose: Sequence[str], clipped: Mapping[str, int]
    ) -> None:
        console = self._console()
        console.print(self._tabled(items, paths, console.width, prose, clipped))

    def _console(self) -> "Console":
        from rich.console import Console

        colored = wants_color(sys.stdout, self._color)
        return Console(
            file=sys.stdout,
            force_terminal=colored,
            no_color=not colored,
            color_system="standard" if colored else None,
            width=None if sys.stdout.isatty() else _WIDE,
            highlight=False,
        )

    def _tabled(
        self,
        items: Sequence[Item],
        paths: Sequence[str],
        width: int,
        prose: Sequence[str] = (),
        clipped: Mapping[str, int] | None = None,
    ) -> "Table":
        from rich.table import Table
        from rich.text import Text

        cells = {path: [shortened(text_of(value_at(item, path))) for item in items] for path in paths}
        titles = dict(zip(paths, paths, strict=True)) if self.fields else headings_of(paths)
        layout = Layout(cells, titles, prose, {} if self.fields else clipped or {})
        widths = dict.fromkeys(paths) if self.fields else layout.fitted(width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for path, clip in widths.items():
            values = [value for item in items if (value := value_at(item, path)) is not None]
            is_number = bool(values) and all(is_money(value) or type(value) in (int, float) for value in values)
            kept = None if clip else self._kept_width(path, layout.length(path), prose, width)
            table.add_column(
                titles[path],
                overflow="ellipsis" if clip else "fold",
                justify="right" if is_number else "left",
                no_wrap=kept is not None or clip is not None,
                min_width=kept,
                width=clip,
            )
        for number in range(len(items)):
            table.add_row(*(Text(cells[path][number]) for path in widths))
        return table

    def _kept_width(self, path: str, longest: int, prose: Sequence[str], width: int) -> int | None:
        """Return the width of a column that is never broken into lines, or None for one that may be. A broken id
        cannot be copied, and of the rest only prose reads well in lines."""
        is_whole = path == "id" or not (self.fields or path in prose or longest > width)
        return longest if is_whole else None

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
        # A reader of stderr who has gone must not keep the command from doing its work.
        with contextlib.suppress(OSError):
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


def titles_of(paths: Sequence[str]) -> dict[str, str]:
    """What stands above each column: the last part of its path, where that is no other's."""
    last = {path: path.rpartition(".")[2] for path in paths}
    return {path: name if list(last.values()).count(name) == 1 else path for path, name in last.items()}


def headings_of(paths: Sequence[str]) -> dict[str, str]:
    """Return what stands above each column: its heading, or the last part of its path."""
    return {path: HEADINGS.get(path, title) for path, title in titles_of(paths).items()}


class Layout:
    """Decides which columns of a table are shown side by side, and how wide those are that may be clipped.

    Widths are cells of the terminal: a Chinese or Japanese letter takes two.
    """

    def __init__(
        self,
        cells: Mapping[str, Sequence[str]],
        titles: Mapping[str, str],
        prose: Sequence[str],
        clipped: Mapping[str, int],
    ) -> None:
        from rich.cells import cell_len

        self._longest = {path: max(map(cell_len, texts), default=0) for path, texts in cells.items()}
        self._natural = {path: max(len(titles[path]), length) for path, length in self._longest.items()}
        self._prose = prose
        self._clipped = clipped

    def length(self, path: str) -> int:
        """Return the width of the column's longest cell."""
        return self._longest[path]

    def fitted(self, width: int) -> dict[str, int | None]:
        """Return the columns that are shown, the first in any case, with the widths of those that are clipped."""
        shown = self._shown(width)
        fixed = [self._wanted(path) for path in shown if path not in self._clipped]
        room = width - sum(fixed) - _GAP * (len(shown) - 1)
        shares = self._shared([path for path in shown if path in self._clipped], room)
        return {path: shares.get(path) for path in shown}

    def _shown(self, width: int) -> list[str]:
        """Take columns in their order while they fit. Up to the last one that is clipped all may be narrow; what
        follows is only shown beside columns of the width they should have."""
        shown: list[str] = []
        narrow = wide = -_GAP
        for path in self._natural:
            least = min(self._natural[path], _CLIPPED) if path in self._clipped else self._wanted(path)
            room = narrow + _GAP + least if path in self._clipped else wide + _GAP + least
            if shown and room > width:
                break
            narrow, wide = narrow + _GAP + least, wide + _GAP + self._wanted(path)
            shown.append(path)
        return shown

    def _wanted(self, path: str) -> int:
        limit = self._clipped.get(path, _PROSE if path in self._prose else None)
        return self._natural[path] if limit is None else min(self._natural[path], limit)

    def _shared(self, paths: Sequence[str], room: int) -> dict[str, int]:
        """Divide the room among columns: what a short one does not need is left to the longer ones."""
        shares: dict[str, int] = {}
        for left, path in zip(range(len(paths), 0, -1), sorted(paths, key=self._natural.__getitem__), strict=True):
            shares[path] = max(1, min(self._natural[path], room // left))
            room -= shares[path]
        return shares


def shortened(text: str) -> str:
    """For a table: a timestamp to the minute, as the clock on the organization's wall shows it."""
    is_timestamp = len(text) == 25 and text[10:11] == "T" and text[4:5] == "-" and text[22:23] == ":"
    return f"{text[:10]} {text[11:16]}" if is_timestamp else text
