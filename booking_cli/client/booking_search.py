"""Finding bookings over HTTP by what the API has no filter for: its list is walked, page by page, and compared.

The walk is bounded, since a service may hold any number of bookings: it looks through the newest 5,000, and through the
oldest 5,000 instead for a number that is nearer to them. `--all` takes the bound away, and with `--org` the database is
asked, which looks up what is found at once.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from booking_cli.client import api_client, pagination
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode

if TYPE_CHECKING:
    from booking_sdk import BookingClient

PAGE = 100
PAGES = 50
"""So many requests are made at most, unless all is asked for."""
_DIGITS_MAX = 18
"""As many as any number of 64 bits may have."""

Booking = dict[str, Any]
Matches = Callable[[Booking], bool]


def matcher(
    *, number: int | None = None, email: str | None = None, name: str | None = None, departure: str | None = None
) -> Matches | None:
    """Return what tells whether a booking meets the conditions; none when there is no condition.

    Raises:
        CliError: an empty name.
    """
    from booking_core.models import names
    from booking_core.models.base import email_key

    tests: list[Matches] = []
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


def pages(
    cli: Cli,
    client: "BookingClient",
    params: Mapping[str, Any],
    matches: Matches,
    *,
    number: int | None = None,
    wanted: int | None,
    everything: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield pages of the bookings that match, until there are as many as wanted; none: all of them.

    The last page has `bound` when the walk ended there before it was at an end or had found enough.
    """
    wanted = 1 if number is not None else wanted
    cli.render.note("The API has no such filter: looking through its list. --org SLUG asks the database instead.")
    with cli.render.progress("looking through bookings") as advance:
        walked = pagination.pages(client, api_client.path("bookings"), _begun(client, params, number), None)
        for count, page in enumerate(walked, start=1):
            advance(count * PAGE, PAGES * PAGE)
            found = [each for each in page["data"] if matches(each)]
            kept = found if wanted is None else found[:wanted]
            wanted = None if wanted is None else wanted - len(kept)
            if wanted == 0 or not page["has_more"]:
                has_more = number is None and (page["has_more"] or len(kept) < len(found))
                yield {"data": kept, "has_more": has_more, "next_cursor": None}
                return
            is_bound = count == PAGES and not everything
            yield {"data": kept, "has_more": True, "next_cursor": page["next_cursor"], "bound": is_bound}
            if is_bound:
                return


def bounded(cursor: str) -> CliError:
    """Return the error that tells of a walk which ended at its bound."""
    return CliError(
        f"Looked through {PAGES * PAGE} bookings, and there are more.",
        ExitCode.PARTIAL,
        code="partial",
        hint=f"--all looks through all of them, --starting-after {cursor} goes on there, --org SLUG asks the database",
    )


def _begun(client: "BookingClient", params: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    """Return the parameters of the walk: for a number in the older half it begins with the oldest booking."""
    begun = {**params, "limit": PAGE}
    if number is None or params.get("starting_after"):
        return begun
    newest = pagination.one_page(client, api_client.path("bookings"), {"limit": 1})["data"]
    is_old = bool(newest) and number <= (newest[0]["booking_number"] or 0) // 2
    return begun | {"order": "asc" if is_old else "desc"}


def id_of(cli: Cli, client: "BookingClient", reference: str) -> str:
    """Return the id of the booking that is named by its number, or the id itself.

    Raises:
        CliError: no booking has the number, or the walk ended at its bound.
    """
    if not is_number(reference):
        return reference
    number = int(reference)
    matches = matcher(number=number)
    assert matches is not None
    for page in pages(cli, client, {}, matches, number=number, wanted=1):
        for booking in page["data"]:
            return str(booking["id"])
        if page.get("bound"):
            raise bounded(page["next_cursor"])
    raise CliError(f"There is no booking {number}.", ExitCode.NOT_FOUND, code="not_found", hint="booking bookings list")


def is_number(text: str) -> bool:
    """Return whether the text is a booking number, and no id."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
