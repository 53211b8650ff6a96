"""Write a list that comes page by page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode

Page = dict[str, Any]
"""The envelope of a list: `data`, `has_more`, `next_cursor` and the other fields of the API's list."""

LIMIT_REACHED = "is_limit_reached"
"""A field of the last page of a search that stopped at its limit. It is not written."""


def write_pages(
    cli: Cli,
    pages: Iterator[Page],
    columns: Sequence[str],
    *,
    truncated: Mapping[str, int] | None = None,
    empty: str,
) -> Page:
    """Write all pages, and return the last one. JSON lines and TSV are written page by page.

    Raises:
        CliError: PARTIAL, if the service failed after some lines were written; the hint says how to continue.
    """
    if cli.render.format in ("jsonl", "tsv"):
        return _write_lines(cli, pages, columns)
    page = merge(pages)
    extra = {name: value for name, value in page.items() if name not in ("data", "next_cursor", LIMIT_REACHED)}
    cli.render.many(
        page["data"], columns, empty=empty, next_cursor=page["next_cursor"], truncated=truncated, extra=extra
    )
    if page["has_more"] and cli.render.format == "table":
        cli.render.note("There are more: use --limit N or --all.")
    return page


def _write_lines(cli: Cli, pages: Iterator[Page], columns: Sequence[str]) -> Page:
    page: Page = {}
    count = 0
    try:
        for page in pages:
            cli.render.many(page["data"], columns)
            cli.render.flush()
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


def write_limited(
    cli: Cli, items: Sequence[Mapping[str, Any]], limit: int, columns: Sequence[str], **settings: Any
) -> None:
    """Write the first items of a list that was read with one item more than the limit."""
    has_more = len(items) > limit
    cli.render.many(items[:limit], columns, extra={"has_more": has_more}, **settings)
    if has_more:
        cli.render.note("There are more: use --limit N.")


def merge(pages: Iterator[Page]) -> Page:
    """Return all pages as one, with the cursor of the last one."""
    page: Page = {}
    items: list[Any] = []
    for page in pages:
        items += page["data"]
    return {**page, "data": items}
