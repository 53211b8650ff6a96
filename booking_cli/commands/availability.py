"""`booking availability`: list departures with their available seats."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, Any

from booking_cli.client import api_client, api_departures
from booking_cli.framework.arguments import day
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.options import DEFAULT_LIMIT, ExperienceFilter, Limit, option

app = command_app()

_WINDOW_DAYS = 92
"""The longest range of days of the API (section 8). A longer one is requested in parts."""


@command(app, "availability", shape="departure")
def availability(
    cli: Cli,
    first: Annotated[str, option("--from DAY", "The first day.", parser=day)] = "today",
    last: Annotated[str | None, option("--to DAY", "The last day; default: 30 days later.", parser=day)] = None,
    experience: ExperienceFilter = None,
    limit: Limit = DEFAULT_LIMIT,
) -> None:
    """List departures with their available seats, earliest first.

    Days are in the organization's time zone. In the table, `seats` is available/total, or the status of a departure
    that cannot be booked, and `price` the lowest one. The line below a departure has its id and the ids of its price
    tiers, for `booking bookings create --departure ID --guest TIER=COUNT`.

    Examples:
        booking availability
        booking availability --from 2026-12-01 --to 2027-05-31 --experience 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking availability --to today --limit 200
        booking availability --from tomorrow --fields id,starts_at,seats_available,experience.title
    """
    params = {"experience_id": experience} if experience else {}
    departures: Any = []
    with api_client.connect(cli) as client:
        for window in _windows(first, last):
            departures += api_client.fetch_page(client, "availability", {**params, **window})["data"]
            if len(departures) > limit:
                break
        departures = api_departures.with_titles(cli, client, departures[: limit + 1])
    cli.render.limited(departures, limit, api_departures.COLUMNS)


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
