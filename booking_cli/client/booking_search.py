"""Find bookings over HTTP by their number, or by the guest's name, for which the API has no filter.

For a name the API's list is read and each booking compared. The search ends after 5,000 bookings. `--all` removes the
limit, and `--org` searches the database instead.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from booking_cli.client import api_client, pagination
from booking_cli.framework.arguments import is_booking_number
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.not_found_hints import LISTS
from booking_cli.framework.pages import LIMIT_REACHED, Page

if TYPE_CHECKING:
    from booking_sdk import BookingClient

PAGE = 100
PAGES = 50
"""The number of requests of a search without `--all`."""

Booking = dict[str, Any]
Condition = Callable[[Booking], bool]


def has_name(name: str) -> Condition:
    """Return a function that tests whether a booking's guest has the words of a name.

    Raises:
        CliError: the name has no letter and no digit.
    """
    from booking_core.models import names

    words = names.words(name)
    if not words:
        raise CliError("--name needs at least one letter or digit.")
    return lambda booking: names.has_words(booking["customer"]["name"], words)


def search(
    cli: Cli,
    client: "BookingClient",
    params: Mapping[str, Any],
    matches: Condition,
    *,
    limit: int | None,
) -> Iterator[Page]:
    """Yield pages of matching bookings, up to a number of bookings; without a limit all of them.

    The last page has `LIMIT_REACHED` when a search with a limit stopped after 5,000 bookings.
    """
    all_pages = limit is None
    cli.render.note("The API has no such filter: searching its list. --org SLUG searches the database instead.")
    with cli.render.progress("searching bookings") as advance:
        query = {**params, "limit": PAGE}
        for count, page in enumerate(pagination.iter_pages(client, api_client.path("bookings"), query, None), start=1):
            advance(count * PAGE, PAGES * PAGE)
            matching = [each for each in page["data"] if matches(each)]
            taken = matching if limit is None else matching[:limit]
            limit = None if limit is None else limit - len(taken)
            if limit == 0 or not page["has_more"]:
                has_more = page["has_more"] or len(taken) < len(matching)
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


def resolve_id(client: "BookingClient", reference: str) -> str:
    """Return the id of a booking, from its number or its id.

    Raises:
        CliError: no booking has the number.
    """
    if not is_booking_number(reference):
        return reference
    number = int(reference)
    for booking in pagination.fetch_page(client, api_client.path("bookings"), {"booking_number": number})["data"]:
        # A service of an earlier release ignores the filter.
        if booking["booking_number"] == number:
            return str(booking["id"])
    raise CliError(f"There is no booking {number}.", ExitCode.NOT_FOUND, code="not_found", hint=LISTS["booking"])
