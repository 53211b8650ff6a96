"""Lists of the API, walked page by page: as many as were asked for, or all of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client import api_client
from booking_cli.framework.arguments import one_of
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode

if TYPE_CHECKING:
    from booking_sdk import BookingClient

LIMIT = 25
_PAGE_MAX = 100

Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help=f"How many at most; {LIMIT} unless said.")
]
All = Annotated[bool, typer.Option("--all", help="All of them, however many pages that takes.")]
After = Annotated[
    str | None, typer.Option("--starting-after", metavar="CURSOR", help="Go on behind the next_cursor of a list.")
]
Order = Annotated[
    str, typer.Option("--order", metavar="asc|desc", parser=one_of("asc", "desc"), help="By creation; newest first.")
]


def show(
    cli: Cli,
    path: str,
    columns: Sequence[str],
    *,
    params: Mapping[str, Any],
    limit: int = LIMIT,
    everything: bool = False,
    starting_after: str | None = None,
    clipped: Mapping[str, int] | None = None,
    empty: str = "Nothing found.",
) -> None:
    """Ask for a list and write it. Where lines are written, each page is written as it comes."""
    wanted = None if everything else limit
    asked = {**params, "starting_after": starting_after}
    if cli.render.format in ("jsonl", "tsv"):
        page = _written(cli, path, asked, wanted, columns)
    else:
        with api_client.client(cli) as client:
            page = merged(pages(client, path, asked, wanted))
        beside = {name: value for name, value in page.items() if name not in ("data", "has_more", "next_cursor")}
        cli.render.many(
            page["data"], columns, empty=empty, next_cursor=page["next_cursor"], clipped=clipped, beside=beside
        )
    if page["has_more"] and cli.render.format == "table":
        cli.render.note("There are more: --limit N shows as many, --all shows all.")


def _written(
    cli: Cli, path: str, params: Mapping[str, Any], wanted: int | None, columns: Sequence[str]
) -> dict[str, Any]:
    """Writes each page as it comes, and gives the last one.

    Raises:
        CliError: PARTIAL when the list broke off; then it says where to go on.
    """
    page: dict[str, Any] = {}
    count = 0
    try:
        with api_client.client(cli) as client:
            for page in pages(client, path, params, wanted):
                cli.render.many(page["data"], columns)
                cli.render.flush()
                count += len(page["data"])
    except CliError as error:
        if not count:
            raise
        raise CliError(
            f"The list broke off behind {count}: {error}",
            ExitCode.PARTIAL,
            code=error.code,
            hint=f"--starting-after {page['next_cursor']} goes on there",
            status=error.status,
            request_id=error.request_id,
        ) from error
    return page


def pages(
    client: "BookingClient", path: str, params: Mapping[str, Any], wanted: int | None
) -> Iterator[dict[str, Any]]:
    """The pages of a list, until there are as many items as wanted; none: all.

    Raises:
        CliError: the pages lead nowhere, or are none.
    """
    asked = {name: value for name, value in params.items() if value is not None}
    seen: set[str] = set()
    while True:
        if wanted is not None or "limit" not in asked:
            asked["limit"] = min(_PAGE_MAX, _PAGE_MAX if wanted is None else wanted)
        page = one_page(client, path, asked)
        yield page
        wanted = None if wanted is None else wanted - len(page["data"])
        if not page["has_more"] or wanted == 0:
            return
        cursor = page["next_cursor"]
        if not cursor or cursor in seen:
            raise CliError("The pages of the list lead nowhere.", ExitCode.SERVER, code="unreadable_answer")
        seen.add(cursor)
        asked["starting_after"] = cursor


def one_page(client: "BookingClient", path: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """One answer, which is a page.

    Raises:
        CliError: it is none.
    """
    page = api_client.ask(client, "GET", path, params=params).body
    if not (isinstance(page, dict) and isinstance(page.get("data"), list) and "has_more" in page):
        raise CliError(
            "The answer is no list of the API.",
            ExitCode.SERVER,
            code="unreadable_answer",
            hint="is the address that of the service? booking config show tells which was used",
        )
    return {"next_cursor": None, **page}


def merged(found: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """All the pages as one: their items, and what the last one says of what follows."""
    result: dict[str, Any] = {}
    items: list[Any] = []
    for page in found:
        items += page["data"]
        result = page
    return {**result, "data": items}


def show_pages(
    cli: Cli,
    found: Iterator[dict[str, Any]],
    columns: Sequence[str],
    *,
    clipped: Mapping[str, int] | None = None,
    empty: str,
) -> dict[str, Any]:
    """Write the pages of a list that is not simply the API's, and return what the last one says of what follows.

    Where lines are written, each page is written as it comes.
    """
    page: dict[str, Any] = {}
    if cli.render.format in ("jsonl", "tsv"):
        for page in found:
            cli.render.many(page["data"], columns)
            cli.render.flush()
        return page
    page = merged(found)
    beside = {"has_more": page["has_more"]}
    cli.render.many(page["data"], columns, empty=empty, next_cursor=page["next_cursor"], clipped=clipped, beside=beside)
    if page["has_more"] and cli.render.format == "table":
        cli.render.note("There are more: --limit N shows as many, --all shows all.")
    return page
