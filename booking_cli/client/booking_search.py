"""Find bookings over HTTP by conditions for which the API has no filter: read its list and compare each booking.

A search ends after 5,000 bookings: the newest, or the oldest for a number that is nearer to them. `--all` removes the
limit, and `--org` searches the database instead, which has an index for each condition.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from booking_cli.client import api_client, pagination
from booking_cli.framework.arguments import is_booking_number
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.pages import LIMIT_REACHED, Page

if TYPE_CHECKING:
    from booking_sdk import BookingClient

PAGE = 100
PAGES = 50
"""The number of requests of a search without `--all`."""

Booking = dict[str, Any]
Condition = Callable[[Booking], bool]


def condition(
    *, number: int | None = None, email: str | None = None, name: str | None = None, departure: str | None = None
) -> Condition | None:
    """Return a function that tests a booking; None without any condition.

    Raises:
        CliError: the name has no letter and no digit.
    """
    from booking_core.models import names
    from booking_core.models.base import email_key

    tests: list[Condition] = []
    if number is not None:
        tests.append(lambda booking: booking["booking_number"] == number)
    if email is not None:
        key = email_key(email.strip())
        tests.append(lambda booking: email_key(booking["customer"]["email"] or "") == key)
    if name is not None:
        words = names.words(name)
        if not words:
            raise CliError("--name needs at least one letter or digit.")
        tests.append(lambda booking: names.has_words(booking["customer"]["name"], words))
    if departure is not None:
        tests.append(lambda booking: booking["departure"]["id"] == departure.lower())
    return (lambda booking: all(test(booking) for test in tests)) if tests else None


def search(
    cli: Cli,
    client: "BookingClient",
    params: Mapping[str, Any],
    matches: Condition,
    *,
    number: int | None = None,
    limit: int | None,
    all_pages: bool = False,
) -> Iterator[Page]:
    """Yield pages of matching bookings, up to a number of bookings; without a limit all of them.

    The last page has `LIMIT_REACHED` when the search stopped after 5,000 bookings.
    """
    limit = 1 if number is not None else limit
    cli.render.note("The API has no such filter: searching its list. --org SLUG searches the database instead.")
    with cli.render.progress("searching bookings") as advance:
        query = _query(client, params, number)
        for count, page in enumerate(pagination.iter_pages(client, api_client.path("bookings"), query, None), start=1):
            advance(count * PAGE, PAGES * PAGE)
            matching = [each for each in page["data"] if matches(each)]
            taken = matching if limit is None else matching[:limit]
            limit = None if limit is None else limit - len(taken)
            if limit == 0 or not page["has_more"]:
                has_more = number is None and (page["has_more"] or len(taken) < len(matching))
                yield {"data": taken, "has_more": has_more, "next_cursor": None}
                return
            is_last = count == PAGES and not all_pages
            yield {"data": taken, "has_more": True, "next_cursor": page["next_cursor"], LIMIT_REACHED: is_last}
            if is_last:
                return


def limit_reached(cursor: str) -> CliError:
    """Return the error for a search that stopped after 5,000 bookings."""
    return CliError(
        f"Searched {PAGES * PAGE} bookings, and there are more.",
        ExitCode.PARTIAL,
        code="partial",
        hint=f"search all with --all, continue with --starting-after {cursor}, or search the database with --org SLUG",
    )


def _query(client: "BookingClient", params: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    """Return the parameters of the list. A search for a number in the older half begins with the oldest booking."""
    query = {**params, "limit": PAGE}
    if number is None or params.get("starting_after"):
        return query
    newest = pagination.fetch_page(client, api_client.path("bookings"), {"limit": 1})["data"]
    is_old = bool(newest) and number <= (newest[0]["booking_number"] or 0) // 2
    return query | {"order": "asc" if is_old else "desc"}


def resolve_id(cli: Cli, client: "BookingClient", reference: str) -> str:
    """Return the id of a booking, from its number or its id.

    Raises:
        CliError: no booking has the number, or the search stopped at its limit.
    """
    if not is_booking_number(reference):
        return reference
    number = int(reference)
    matches = condition(number=number)
    assert matches is not None
    for page in search(cli, client, {}, matches, number=number, limit=1):
        for booking in page["data"]:
            return str(booking["id"])
        if page.get(LIMIT_REACHED):
            raise limit_reached(page["next_cursor"])
    raise CliError(f"There is no booking {number}.", ExitCode.NOT_FOUND, code="not_found", hint="booking bookings list")
