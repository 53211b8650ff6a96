"""`booking availability`: departures and the seats that are left."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, Any

import typer

from booking_cli import context, lists, remote
from booking_cli.arguments import day, identifier
from booking_cli.command import command, single

app = single()

COLUMNS = ("id", "starts_at", "status", "seats_available", "seats_total", "price", "booking_closes_at", "experience_id")
_WINDOW_DAYS = 92
"""The API's widest window (section 8); a wider one is asked for in parts."""


@command(
    app,
    "availability",
    "booking availability",
    "booking availability --from 2026-12-01 --to 2027-05-31 --experience 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07",
    "booking availability --from tomorrow --fields id,starts_at,seats_available",
)
def availability(
    ctx: typer.Context,
    first: Annotated[
        str, typer.Option("--from", metavar="DAY", parser=day, help="The first day; today unless said.")
    ] = "today",
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", parser=day, help="The last day, included; 30 days after the first."),
    ] = None,
    experience: Annotated[
        str | None, typer.Option("--experience", metavar="ID", parser=identifier, help="Only this experience.")
    ] = None,
) -> None:
    """Lists departures with their seats, the earliest first. Days are days of the organization."""
    cli = context.of(ctx)
    asked = {"experience_id": experience} if experience else {}
    found: list[Any] = []
    with remote.client(cli) as client:
        for window in _windows(first, last):
            found += lists.one_page(client, remote.path("availability"), {**asked, **window})["data"]
    cli.render.many(found, COLUMNS, empty="Nothing departs in these days.")


def _windows(first: str, last: str | None) -> Iterator[dict[str, str]]:
    """The days as windows that the API takes. One that ends before it begins is for the API to refuse."""
    if last is None or last < first:
        yield {"from": first} | ({"to": last} if last else {})
        return
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    while begin <= end:
        until = min(end, begin + timedelta(days=_WINDOW_DAYS))
        yield {"from": begin.isoformat(), "to": until.isoformat()}
        begin = until + timedelta(days=1)
