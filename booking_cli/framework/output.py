"""Write results, notes and errors: the only module that writes to the terminal.

stdout holds the result and nothing else; notes, questions, progress and errors go to stderr. On a terminal a result is
a table, elsewhere it is tab-separated with full values. In the json modes stdout is JSON, and an error is one JSON
object on stderr.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from booking_cli.framework.errors import CliError, UnknownField
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import (
    BOLD,
    DIM,
    PLAIN,
    RED,
    YELLOW,
    Item,
    flat,
    has_path,
    one_line,
    paths_of,
    picked,
    text_of,
    value_at,
    wants_color,
)
from booking_cli.framework.global_options import Options
from booking_cli.framework.tables import Columns, build_table
from booking_core.base.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FORMATS = ("table", "json", "jsonl", "tsv")
COLORS = ("auto", "always", "never")


ListPage = dict[str, Any]
"""The envelope of a list: `data`, `has_more`, `next_cursor` and the other fields of the API's list."""
LIMIT_REACHED = "is_limit_reached"
"""A field of the last page of a search that stopped at its limit. It is not written."""

_PIPE_WIDTH = 10_000
_INDENT = "  "
"""Is written before a detail below a row of a table."""
_DETAIL_LENGTH_MAX = 200
"""A longer detail lists every choice. People get a hint instead, and programs the whole detail."""


class Renderer:
    """Writes results, notes and errors in the format of the global options."""

    def __init__(self, options: Options) -> None:
        self.format = "json" if options.json else options.output or ("table" if sys.stdout.isatty() else "tsv")
        self.fields = options.fields
        self._options = options
        self._shape: str | None = None

    @property
    def is_json(self) -> bool:
        return self.format in ("json", "jsonl")

    @property
    def is_default_table(self) -> bool:
        """Return whether a table is written whose columns are not chosen by `--fields`."""
        return self.format == "table" and not self.fields

    @property
    def is_json_or_fields(self) -> bool:
        """Return whether an object is written, rather than plain text."""
        return self.is_json or bool(self.fields)

    def set_shape(self, shape: str | None, *, check_now: bool = False) -> None:
        """Set the shape of the output, a name of `output_fields`.

        Args:
            check_now: check `--fields` against the shape at once, before the command changes something.

        Raises:
            UnknownField: `--fields` names a field that the shape does not have.
        """
        self._shape = shape
        if check_now and shape:
            self.check_fields([])

    def check_fields(self, items: Sequence[Item]) -> None:
        """Compare `--fields` with the items and the shape.

        Raises:
            UnknownField: neither has a field.
        """
        if not self.fields or not (items or self._shape):
            return
        from booking_cli.framework import output_fields

        for path in self.fields:
            if any(has_path(item, path) for item in items):
                continue
            if not (self._shape and output_fields.has_field(self._shape, path)):
                raise UnknownField(path, output_fields.paths(self._shape) if self._shape else paths_of(items))

    def one(self, item: Item) -> None:
        """Write a single item: an object, or a line for each field. On a terminal empty fields are left out."""
        self.check_fields([item])
        if self.is_json:
            self.document(self._selected(item))
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
        columns: Columns | Sequence[str],
        *,
        next_cursor: str | None = None,
        extra: Item | None = None,
    ) -> None:
        """Write a list, or a page of one, in the envelope of the API's lists.

        Args:
            columns: the columns of a table and of TSV, or only their paths.
            extra: further fields of the envelope.

        Raises:
            UnknownField: `--fields` names a field that the items do not have.
        """
        self.check_fields(items)
        if self.fields:
            columns = Columns(self.fields)
        elif not isinstance(columns, Columns):
            columns = Columns(columns)
        if self.format == "json":
            envelope = {"has_more": next_cursor is not None, "next_cursor": next_cursor, **(extra or {})}
            self.document({"data": [self._selected(item) for item in items], **envelope})
        elif self.format == "jsonl":
            for item in items:
                self._json(self._selected(item), None)
        elif self.format == "tsv":
            for item in items:
                self._line(item, columns.paths)
        elif items:
            console = self._console()
            table = build_table(items, columns, console.width, is_selected=bool(self.fields))
            if columns.below:
                self._write_in_pairs(console, table, [text_of(columns.below(item)) for item in items])
            else:
                console.print(table)
        else:
            self.note(columns.empty)

    def _write_in_pairs(self, console: "Console", table: "Table", details: Sequence[str]) -> None:
        """Write a table whose rows have one line each, with a detail below each row. Only a blank ends its lines, so an
        id stays whole."""
        from rich.text import Text

        with console.capture() as capture:
            console.print(table)
        header, *rows = capture.get().splitlines()
        self._write(f"{header}\n")
        for row, detail in zip(rows, details, strict=True):
            self._write(f"{row}\n")
            for line in Text(detail).wrap(console, console.width - len(_INDENT)) if detail else ():
                line.rstrip()
                console.print(Text(_INDENT).append_text(line), style="dim")

    def limited(self, items: Sequence[Item], limit: int, columns: Columns) -> None:
        """Write the first items of a list that was read with one item more than the limit."""
        has_more = len(items) > limit
        self.many(items[:limit], columns, extra={"has_more": has_more})
        if has_more:
            self.note("There are more: use --limit N.")

    def pages(self, pages: Iterator[ListPage], columns: Columns) -> ListPage:
        """Write all pages of a list, and return the last one. JSON lines and TSV are written page by page.

        Raises:
            CliError: PARTIAL, if the service failed after some lines were written; the hint says how to continue.
        """
        if self.format in ("jsonl", "tsv"):
            return self._page_by_page(pages, columns)
        page = merge(pages)
        extra = {name: value for name, value in page.items() if name not in ("data", "next_cursor", LIMIT_REACHED)}
        self.many(page["data"], columns, next_cursor=page["next_cursor"], extra=extra)
        if page["has_more"] and self.format == "table":
            self.note("There are more: use --limit N or --all.")
        return page

    def _page_by_page(self, pages: Iterator[ListPage], columns: Columns) -> ListPage:
        page: ListPage = {}
        count = 0
        try:
            for page in pages:
                self.many(page["data"], columns)
                self.flush()
                count += len(page["data"])
        except CliError as error:
            if not count:
                raise
            raise CliError(
                f"The list ended early, after {count} items: {error}",
                ExitCode.PARTIAL,
                code=error.code,
                hint=f"continue with --starting-after {page['next_cursor']}",
                status=error.status,
                request_id=error.request_id,
            ) from error
        return page

    def document(self, item: Item) -> None:
        """Write a JSON document, in every output format."""
        self._json(item, None if self.format == "jsonl" else 2)

    def text(self, text: str) -> None:
        """Write plain text. In the json modes a command writes an object instead."""
        self._write(text + "\n")

    def painted(self, text: str, color: str) -> str:
        """Return a text for stdout in a color, where colors are used."""
        return self._colored(text, color, sys.stdout)

    def heading(self, text: str) -> None:
        """Write a heading on one line, in bold where colors are used."""
        self._write(self.painted(one_line(text), BOLD) + "\n")

    def line(self, item: Item) -> None:
        """Write one item as a JSON object on one line."""
        self.check_fields([item])
        self._json(self._selected(item), None)

    def flush(self) -> None:
        """Write buffered output now, to notice a closed pipe."""
        sys.stdout.flush()

    def _selected(self, item: Item) -> Item:
        return picked(item, self.fields) if self.fields else item

    def _line(self, item: Item, paths: Sequence[str]) -> None:
        self._write("\t".join(text_of(value_at(item, path)) for path in paths) + "\n")

    def _json(self, item: Item, indent: int | None) -> None:
        ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
        self._write(json.dumps(item, ensure_ascii=ascii_only, indent=indent) + "\n")

    def _pairs(self, item: Item) -> None:
        pairs = [(path, text) for path, text in flat(item) if text]
        width = max((len(title) for title, _ in pairs), default=0)
        for title, text in pairs:
            self._write(f"{self.painted(f'{title:<{width}}', BOLD)}  {text}".rstrip() + "\n")

    def _console(self) -> "Console":
        from rich.console import Console

        is_colored = wants_color(sys.stdout, self._options.color)
        return Console(
            file=sys.stdout,
            force_terminal=is_colored,
            no_color=not is_colored,
            color_system="standard" if is_colored else None,
            width=None if sys.stdout.isatty() else _PIPE_WIDTH,
            highlight=False,
        )

    def _colored(self, text: str, color: str, stream: TextIO) -> str:
        return f"{color}{text}{PLAIN}" if wants_color(stream, self._options.color) else text

    def _write(self, text: str) -> None:
        sys.stdout.write(text)

    def note(self, text: str) -> None:
        """Write a note to stderr; not in the json modes, and not with --quiet."""
        if not (self._options.quiet or self.is_json):
            self._write_stderr(text)

    def detail(self, text: str) -> None:
        """Write a note that is shown with --verbose."""
        if self._options.verbose or self._options.debug:
            self.note(self._colored(text, DIM, sys.stderr))

    def warn(self, text: str) -> None:
        """Write a warning to stderr, also with --quiet."""
        if not self.is_json:
            self._write_stderr(self._colored(text, YELLOW, sys.stderr))

    def receipt(self, text: str) -> None:
        """Write the effect of a change to stderr, also with --quiet."""
        if not self.is_json:
            self._write_stderr(text)

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Progress]:
        """Show a progress bar on stderr if it is a terminal, and yield the function that advances it."""
        if self._options.no_progress or self._options.quiet or self.is_json or not sys.stderr.isatty():
            yield lambda count, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as ProgressBar

        console = Console(file=sys.stderr, no_color=not wants_color(sys.stderr, self._options.color), highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with ProgressBar(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=None)
            yield lambda count, total: bar.update(task, completed=count, total=total)

    def error(self, error: CliError) -> None:
        """Write an error to stderr: a line with a hint below it, or one JSON object."""
        if self.is_json:
            self._write_stderr(json.dumps({"error": _error_object(error)}))
            return
        message = str(error)
        self._write_stderr(f"{self._colored('error:', RED, sys.stderr)} {one_line(message)}")
        for detail in error.details:
            if detail["message"] not in message and len(detail["message"]) <= _DETAIL_LENGTH_MAX:
                self._write_stderr("  " + one_line(": ".join(filter(None, (detail.get("field"), detail["message"])))))
        if error.request_id:
            self._write_stderr(f"request: {error.request_id}")
        if error.hint:
            self._write_stderr(f"hint: {error.hint}")

    def _write_stderr(self, text: str) -> None:
        # A closed stderr must not stop the command.
        with contextlib.suppress(OSError):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def _error_object(error: CliError) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "code": error.code,
        "message": str(error),
        "status": error.status,
        "request_id": error.request_id,
        "hint": error.hint,
        "exit_code": int(error.exit_code),
    }
    return fields | ({"details": list(error.details)} if error.details else {})


def merge(pages: Iterator[ListPage]) -> ListPage:
    """Return all pages as one, with the cursor of the last one."""
    page: ListPage = {}
    items: list[Any] = []
    for page in pages:
        items += page["data"]
    return {**page, "data": items}
