"""Departures over HTTP, with the titles of their experiences."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from booking_cli.client import api_client
from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import Item
from booking_cli.framework.tables import Columns

if TYPE_CHECKING:
    from booking_sdk import BookingClient

TITLE = "experience.title"
"""Not a field of the API's departure: it is requested for tables, TSV, and if `--fields` names it."""


def write_day(cli: Cli, day: str, experience_id: str | None) -> None:
    """Write the departures of a day."""
    params = {"date": day} | ({"experience_id": experience_id} if experience_id else {})
    with api_client.connect(cli) as client:
        departures = api_client.fetch_page(client, "departures", params)["data"]
        departures = with_titles(cli, client, departures)
    cli.render.many(departures, COLUMNS)


def with_titles(cli: Cli, client: "BookingClient", departures: Sequence[Item]) -> Sequence[Item]:
    """Return the departures with the titles of their experiences, if the output shows them."""
    fields = cli.render.fields
    if not (TITLE in fields if fields else not cli.render.is_json):
        return departures
    titles = _titles(client, {departure["experience_id"] for departure in departures})
    return [_with_title(departure, titles) for departure in departures]


def _titles(client: "BookingClient", ids: Collection[str]) -> Mapping[str, str]:
    """Return the titles of experiences by their ids; nothing without the scope experiences:read."""
    from booking_sdk import PermissionDeniedError

    titles: dict[str, str] = {}
    try:
        for experience in api_client.iter_items(client, "experiences", {}):
            titles[experience["id"]] = experience["title"]
            if titles.keys() >= set(ids):
                break
    except PermissionDeniedError:
        pass
    return titles


def _with_title(departure: Item, titles: Mapping[str, str]) -> Item:
    return {**departure, "experience": {"title": titles.get(departure["experience_id"], departure["experience_id"])}}


def _ids(departure: Item) -> str:
    return f"{departure['id']}  {', '.join(tier['id'] for tier in departure['price_tiers'])}"


def _seats(departure: Item) -> str:
    if departure["status"] != "open":
        return str(departure["status"])
    return f"{departure['seats_available']}/{departure['seats_total']}"


COLUMNS = Columns(
    f"id starts_at status seats_available seats_total price booking_closes_at experience_id {TITLE}".split(),
    empty="No departure found.",
    terminal=("starts_at", "seats", "price", TITLE, "booking_closes_at"),
    cells={"seats": _seats},
    truncated={TITLE: 40},
    below=_ids,
)
"""On a terminal, the line below each departure has its id and the ids of its tiers, for a booking."""
