"""Read the API's lists page by page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from booking_cli.client import api_client
from booking_cli.client.errors import NOT_THE_API
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.pages import Page, write_pages

if TYPE_CHECKING:
    from booking_sdk import BookingClient

_PAGE_SIZE_MAX = 100


def write_list(
    ctx: typer.Context,
    path: str,
    columns: Sequence[str],
    *,
    empty: str,
    params: Mapping[str, Any] | None = None,
    truncated: Mapping[str, int] | None = None,
) -> None:
    """Request a list and write it.

    Args:
        ctx: of a command with the options of `framework.options` for lists: Limit, AllPages, Order and StartingAfter.
        params: the filters.
    """
    given = ctx.params
    query = {**(params or {}), "order": given["order"], "starting_after": given["starting_after"]}
    pages = _fetch(ctx.obj, path, query, None if given["all_pages"] else given["limit"])
    write_pages(ctx.obj, pages, columns, truncated=truncated, empty=empty)


def _fetch(cli: Cli, path: str, params: Mapping[str, Any], limit: int | None) -> Iterator[Page]:
    with api_client.connect(cli) as client:
        yield from iter_pages(client, path, params, limit)


def iter_pages(client: "BookingClient", path: str, params: Mapping[str, Any], limit: int | None) -> Iterator[Page]:
    """Yield the pages of a list, up to a number of items; without a limit all of them.

    Raises:
        CliError: a cursor repeats, or a response is not a list.
    """
    query = {name: value for name, value in params.items() if value is not None}
    seen: set[str] = set()
    while True:
        if limit is not None or "limit" not in query:
            query["limit"] = min(_PAGE_SIZE_MAX, _PAGE_SIZE_MAX if limit is None else limit)
        page = fetch_page(client, path, query)
        yield page
        limit = None if limit is None else limit - len(page["data"])
        if not page["has_more"] or limit == 0:
            return
        cursor = page["next_cursor"]
        if not cursor or cursor in seen:
            raise CliError("The list's cursor is missing or repeats.", ExitCode.SERVER, code="unreadable_answer")
        seen.add(cursor)
        query["starting_after"] = cursor


def iter_items(client: "BookingClient", path: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every item of a list."""
    for page in iter_pages(client, path, params, None):
        yield from page["data"]


def fetch_page(client: "BookingClient", path: str, params: Mapping[str, Any]) -> Page:
    """Return one page.

    Raises:
        CliError: the response is not a list.
    """
    page = api_client.request(client, "GET", path, params=params).body
    if not (isinstance(page, dict) and isinstance(page.get("data"), list) and "has_more" in page):
        raise CliError(
            "The response is not a list of the API.", ExitCode.SERVER, code="unreadable_answer", hint=NOT_THE_API
        )
    return {"next_cursor": None, **page}
