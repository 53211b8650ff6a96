"""`booking availability`: list departures with their available seats."""

from collections.abc import Collection, Iterator, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.framework.arguments import day
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.options import ExperienceFilter

if TYPE_CHECKING:
    from booking_sdk import BookingClient

app = command_app()

TITLE = "experience.title"
"""Not a field of the API's departure: it is requested for tables, TSV, and if `--fields` names it."""
COLUMNS = (
    *("id", "starts_at", "status", "seats_available", "seats_total", "price", "booking_closes_at", "experience_id"),
    TITLE,
)
TABLE = ("id", "starts_at", "seats", TITLE, "price", "booking_closes_at")
TRUNCATED = {TITLE: 24}
_SINGLE_REQUESTS_MAX = 3
"""Up to so many experiences are requested by their ids; more are read from the list."""
_WINDOW_DAYS = 92
"""The longest range of days of the API (section 8). A longer one is requested in parts."""


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
    first: Annotated[str, typer.Option("--from", metavar="DAY", parser=day, help="The first day.")] = "today",
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", parser=day, help="The last day; default: 30 days later."),
    ] = None,
    experience: ExperienceFilter = None,
) -> None:
    """List departures with their available seats, earliest first.

    Days are in the organization's time zone. In the table, `seats` is available/total, or the status of a departure
    that cannot be booked.
    """
    cli: Cli = ctx.obj
    params = {"experience_id": experience} if experience else {}
    departures: list[Any] = []
    with api_client.connect(cli) as client:
        for window in _windows(first, last):
            departures += pagination.fetch_page(client, api_client.path("availability"), {**params, **window})["data"]
        if _needs_titles(cli):
            titles = _titles(client, {departure["experience_id"] for departure in departures})
            departures = [_with_title(departure, titles) for departure in departures]
    if cli.render.is_default_table:
        departures = [{**departure, "seats": _seats(departure)} for departure in departures]
    columns = TABLE if cli.render.is_default_table else COLUMNS
    cli.render.many(departures, columns, truncated=TRUNCATED, empty="No departure found.")


def _needs_titles(cli: Cli) -> bool:
    fields = cli.render.fields
    return TITLE in fields if fields else not cli.render.is_json


def _titles(client: "BookingClient", ids: Collection[str]) -> Mapping[str, str]:
    """Return the titles of experiences by their ids; nothing without the scope experiences:read."""
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
    if len(ids) <= _SINGLE_REQUESTS_MAX:
        for each in ids:
            yield api_client.get(client, "experiences", each)
        return
    yield from pagination.iter_items(client, api_client.path("experiences"), {})


def _with_title(departure: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    return {**departure, "experience": {"title": titles.get(departure["experience_id"], departure["experience_id"])}}


def _seats(departure: Mapping[str, Any]) -> str:
    if departure["status"] != "open":
        return str(departure["status"])
    return f"{departure['seats_available']}/{departure['seats_total']}"


def _windows(first: str, last: str | None) -> Iterator[dict[str, str]]:
    """Yield the days in ranges that the API takes. A range that ends before it begins is left for the API to refuse."""
    if last is None or last < first:
        yield {"from": first} | ({"to": last} if last else {})
        return
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    while begin <= end:
        until = min(end, begin + timedelta(days=_WINDOW_DAYS))
        yield {"from": begin.isoformat(), "to": until.isoformat()}
        begin = until + timedelta(days=1)
