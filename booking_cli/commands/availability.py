"""`booking availability`: departures and the seats that are left."""

from collections.abc import Collection, Iterator, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.framework import context
from booking_cli.framework.arguments import day, identifier
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli

if TYPE_CHECKING:
    from booking_sdk import BookingClient

app = single()

TITLE = "experience.title"
"""Not a field of the API's departure: it is asked for where a person reads, or `--fields` names it."""
COLUMNS = (
    *("id", "starts_at", "status", "seats_available", "seats_total", "price", "booking_closes_at", "experience_id"),
    TITLE,
)
TABLE = ("id", "starts_at", "seats", TITLE, "price", "booking_closes_at")
CLIPPED = {TITLE: 24}
_ONE_BY_ONE = 3
"""So few experiences are asked for by their ids; more are found in the list."""
_WINDOW_DAYS = 92
"""The API's widest window (section 8); a wider one is asked for in parts."""


@command(
    app,
    "availability",
    "booking availability",
    "booking availability --from 2026-12-01 --to 2027-05-31 --experience 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07",
    "booking availability --from tomorrow --fields id,starts_at,seats_available,experience.title",
    shape="departure",
)
def availability(
    ctx: typer.Context,
    first: Annotated[
        str, typer.Option("--from", metavar="DAY", parser=day, help="The first day; default: today.")
    ] = "today",
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", parser=day, help="The last day, included; default: 30 days later."),
    ] = None,
    experience: Annotated[
        str | None, typer.Option("--experience", metavar="ID", parser=identifier, help="Only this experience.")
    ] = None,
) -> None:
    """List departures with their seats, the earliest first.

    Days are days of the organization. On a terminal, `seats` is the number left of the total, or the status of a
    departure that cannot be booked.
    """
    cli = context.of(ctx)
    asked = {"experience_id": experience} if experience else {}
    found: list[Any] = []
    with api_client.client(cli) as client:
        for window in _windows(first, last):
            found += pagination.one_page(client, api_client.path("availability"), {**asked, **window})["data"]
        if _shows_titles(cli):
            titles = _titles(client, {departure["experience_id"] for departure in found})
            found = [_titled(departure, titles) for departure in found]
    if cli.render.format == "table" and not cli.render.fields:
        found = [{**departure, "seats": _seats(departure)} for departure in found]
        cli.render.many(found, TABLE, clipped=CLIPPED, empty="There is no departure in these days.")
    else:
        cli.render.many(found, COLUMNS, empty="There is no departure in these days.")


def _shows_titles(cli: Cli) -> bool:
    fields = cli.render.fields
    return TITLE in fields if fields else not cli.render.is_json


def _titles(client: "BookingClient", ids: Collection[str]) -> Mapping[str, str]:
    """Return the titles by the experiences' ids; without the scope experiences:read there are none."""
    from booking_sdk import PermissionDeniedError

    titles: dict[str, str] = {}
    try:
        for each in _experiences(client, ids):
            titles[each["id"]] = each["title"]
            if titles.keys() >= set(ids):
                break
    except PermissionDeniedError:
        pass
    return titles


def _experiences(client: "BookingClient", ids: Collection[str]) -> Iterator[Mapping[str, Any]]:
    if len(ids) <= _ONE_BY_ONE:
        for each in ids:
            yield api_client.ask(client, "GET", api_client.path("experiences", each)).body
        return
    for page in pagination.pages(client, api_client.path("experiences"), {}, None):
        yield from page["data"]


def _titled(departure: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    return {**departure, "experience": {"title": titles.get(departure["experience_id"], departure["experience_id"])}}


def _seats(departure: Mapping[str, Any]) -> str:
    if departure["status"] != "open":
        return str(departure["status"])
    return f"{departure['seats_available']}/{departure['seats_total']}"


def _windows(first: str, last: str | None) -> Iterator[dict[str, str]]:
    """Yield the days as windows that the API takes. One that ends before it begins is for the API to refuse."""
    if last is None or last < first:
        yield {"from": first} | ({"to": last} if last else {})
        return
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    while begin <= end:
        until = min(end, begin + timedelta(days=_WINDOW_DAYS))
        yield {"from": begin.isoformat(), "to": until.isoformat()}
        begin = until + timedelta(days=1)
