"""The client half of `booking bookings`: find, show, quote, create and change bookings over HTTP.

The API has no filter for a guest's name: its list is read, and each booking compared. Such a search ends after 5,000
bookings. `--all` removes the limit, and `--org` searches the database instead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.client import api_client
from booking_cli.framework.arguments import is_booking_number
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import LISTS, CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import booking_text, money
from booking_cli.framework.options import Paging
from booking_cli.framework.output import LIMIT_REACHED, ListPage
from booking_cli.framework.tables import Columns
from booking_core.models.json import JsonObject

if TYPE_CHECKING:
    from booking_sdk import BookingClient

BookingCondition = Callable[[JsonObject], bool]

PAGE = 100
PAGES = 50
"""The number of requests of a search without `--all`."""

_BACK = {
    "refunded": "The payment was refunded.",
    "partially_refunded": "The payment was partly refunded.",
    "failed": "No card was charged, so there is no refund.",
}


def write_search(cli: Cli, paging: Paging, params: Mapping[str, Any], name: str, columns: Columns) -> None:
    """Search the API's list for bookings of guests with a name, and write them.

    Raises:
        CliError: PARTIAL, if the search stopped at its limit.
    """
    matches = _has_name(name)
    query = {**params, "order": paging.order, "starting_after": paging.starting_after}

    def pages() -> Iterator[ListPage]:
        with api_client.connect(cli) as client:
            yield from _search(cli, client, query, matches, paging.most)

    last = cli.render.pages(pages(), columns)
    if last.get(LIMIT_REACHED):
        hint = f"search all with --all, continue with --starting-after {last['next_cursor']}"
        raise CliError(
            f"Searched {PAGES * PAGE} bookings, and there are more.",
            ExitCode.PARTIAL,
            code="partial",
            hint=f"{hint}, or search the database with --org SLUG",
        )


def _has_name(name: str) -> BookingCondition:
    """Return a function that tests whether a booking's guest has the words of a name.

    Raises:
        CliError: the name has no letter and no digit.
    """
    from booking_core.models import names

    words = names.words(name)
    if not words:
        raise CliError("--name needs at least one letter or digit.")
    return lambda booking: names.has_words(booking["customer"]["name"], words)


def _search(
    cli: Cli, client: "BookingClient", params: Mapping[str, Any], matches: BookingCondition, limit: int | None
) -> Iterator[ListPage]:
    """Yield pages of matching bookings, up to a number of bookings; without a limit all of them.

    The last page has `LIMIT_REACHED` when a search with a limit stopped after 5,000 bookings.
    """
    all_pages = limit is None
    cli.render.note("The API has no such filter: searching its list. --org SLUG searches the database instead.")
    with cli.render.progress("searching bookings") as advance:
        query = {**params, "limit": PAGE}
        for count, page in enumerate(api_client.iter_pages(client, "bookings", query, None), start=1):
            advance(count * PAGE, PAGES * PAGE)
            matching = [booking for booking in page["data"] if matches(booking)]
            bookings = matching if limit is None else matching[:limit]
            limit = None if limit is None else limit - len(bookings)
            if limit == 0 or not page["has_more"]:
                has_more = page["has_more"] or len(bookings) < len(matching)
                yield {"data": bookings, "has_more": has_more, "next_cursor": None}
                return
            is_last = count == PAGES and not all_pages
            yield {"data": bookings, "has_more": True, "next_cursor": page["next_cursor"], LIMIT_REACHED: is_last}
            if is_last:
                return


def get(cli: Cli, reference: str) -> None:
    """Write a booking, found by its number or its id."""
    with api_client.connect(cli) as client:
        booking = api_client.get(client, _path(client, reference))
    cli.render.one(booking)


def _path(client: "BookingClient", reference: str, *verb: str) -> str:
    """Return the path of a booking, or of one of its verbs."""
    return "/".join(("bookings", _resolve_id(client, reference), *verb))


def _resolve_id(client: "BookingClient", reference: str) -> str:
    """Return the id of a booking, from its number or its id.

    Raises:
        CliError: no booking has the number.
    """
    if not is_booking_number(reference):
        return reference
    number = int(reference)
    for booking in api_client.fetch_page(client, "bookings", {"booking_number": number})["data"]:
        # A service of an earlier release ignores the filter.
        if booking["booking_number"] == number:
            return str(booking["id"])
    raise CliError(f"There is no booking {number}.", ExitCode.NOT_FOUND, code="not_found", hint=LISTS["booking"])


def create(cli: Cli, body: JsonObject, key_option: str | None) -> tuple[JsonObject, bool]:
    """Create a booking; return it, and whether an earlier run with the same key created it."""
    created = api_client.post(cli, "bookings", body=body, key_option=key_option)
    return created.body, created.is_replay


def preview(cli: Cli, body: JsonObject, key: str | None) -> None:
    """Write the quote of a booking that a dry run does not create; `body` is the body of the booking."""
    with api_client.connect(cli) as client:
        quoted = api_client.request(client, "POST", "bookings/quote", body=body, idempotency_key=key).body
    cli.render.one({**quoted, "dry_run": True})
    _note_refusals(cli, quoted["refusals"])
    cli.render.note("Nothing was booked (--dry-run).")


def _note_refusals(cli: Cli, refusals: Sequence[JsonObject]) -> None:
    for refusal in refusals:
        cli.render.note(f"It would be refused: {refusal['message']}")


def cancel(cli: Cli, reference: str, *, refund: str, reason: str | None, dry_run: bool, key_option: str | None) -> None:
    """Cancel a booking and write it. A dry run writes the booking and the request that would be sent."""
    _refuse_full(refund)
    body = {"refund": refund} | ({"reason": reason} if reason else {})
    with api_client.connect(cli) as client:
        path = _path(client, reference)
        if dry_run:
            _write_request(cli, api_client.get(client, path), f"{path}/cancel", body)
            return
        _confirm(cli, client, path)
        cancelled = api_client.post_once(cli, client, f"{path}/cancel", body, key_option).body
    cli.render.one(cancelled)
    cli.render.note(after_cancelling(cancelled, refund))


def change(cli: Cli, reference: str, verb: str, body: JsonObject, *, key_option: str | None) -> None:
    """Make a change of a booking and write it; `verb` is the end of the path."""
    with api_client.connect(cli) as client:
        changed = api_client.post_once(cli, client, _path(client, reference, verb), body, key_option).body
    cli.render.one(changed)


def reschedule(cli: Cli, reference: str, departure: str, *, dry_run: bool, key_option: str | None) -> None:
    """Move a booking to another departure and write it. A dry run writes the preview.

    Raises:
        CliError: the text is not an id of a departure, as in the database. The service would call the body invalid.
    """
    from booking_core.models.base import is_id

    if not is_id(departure):
        message = f"There is no departure {departure!r}."
        raise CliError(message, ExitCode.NOT_FOUND, code="not_found", hint=LISTS["departure"])
    _change(cli, reference, "reschedule", {"departure_id": departure}, dry_run=dry_run, key_option=key_option)


def change_party(
    cli: Cli, reference: str, body: JsonObject, *, refund: str, dry_run: bool, key_option: str | None
) -> None:
    """Change the party of a booking and write it. A dry run writes the preview."""
    _refuse_full(refund)
    _change(cli, reference, "party", body | {"refund": refund}, dry_run=dry_run, key_option=key_option)


def _refuse_full(refund: str) -> None:
    if refund == "full":
        raise CliError("--refund full needs --org: the API refunds by the organization's policy.", hint="add --org")


def _change(cli: Cli, reference: str, verb: str, body: JsonObject, *, dry_run: bool, key_option: str | None) -> None:
    """Send a change of a booking and write the booking, or write the preview of the change."""
    with api_client.connect(cli) as client:
        path = _path(client, reference, verb)
        if not dry_run:
            changed = api_client.post_once(cli, client, path, body, key_option).body
            cli.render.one(changed["booking"] | {"change": _without_booking(changed)})
            return
        previewed = api_client.request(client, "POST", f"{path}/preview", body=body).body
    cli.render.one({**previewed["booking"], "dry_run": True, "change": _without_booking(previewed)})
    _note_refusals(cli, previewed["refusals"])
    cli.render.note("Nothing was changed (--dry-run).")


def _without_booking(change: JsonObject) -> JsonObject:
    return {name: value for name, value in change.items() if name != "booking"}


def _write_request(cli: Cli, booking: JsonObject, path: str, body: JsonObject) -> None:
    request = {"method": "POST", "path": f"{api_client.PREFIX}/{path}", "body": body}
    cli.render.one({**booking, "dry_run": True, "request": request})
    if booking["status"] == "cancelled":
        cli.render.note("It is cancelled already: the service would return it unchanged.")
    else:
        cli.render.note(f"It would be cancelled (refund: {body['refund']}). Nothing was sent (--dry-run).")


def _confirm(cli: Cli, client: "BookingClient", path: str) -> None:
    """Ask for a confirmation; the booking is looked up only if there is a question."""
    description = f"the booking {path.rpartition('/')[2]}"
    if cli.is_interactive and not cli.options.yes:
        description = booking_text(api_client.get(client, path))
    cli.confirm(f"Cancel {description}? This cannot be undone.")


def after_cancelling(booking: Mapping[str, Any], refund: str) -> str:
    """Return a sentence about the refund of a cancelled booking.

    The API does not return the refunded amount. The guest's mail has it, and `booking refunds show` for operators.

    Args:
        booking: the API's response to the cancellation.
        refund: the requested mode, auto or none.
    """
    sentence = _payment(booking, refund)
    card = booking["totals"]["gift_card"]
    return f"{sentence} {money(card)} was returned to the gift card." if card["amount_minor"] else sentence


def _payment(booking: Mapping[str, Any], refund: str) -> str:
    payment, total = booking["payment"], booking["totals"]["total"]
    if payment["status"] in _BACK:
        return _BACK[payment["status"]] + _rest(payment, refund)
    if not total["amount_minor"]:
        return "Nothing else was paid, so there is no refund."
    if payment["source"] != "stripe":
        return _by_hand(payment, money(total), refund)
    if refund == "none":
        return f"{money(total)} was paid by card; with --refund none it is not refunded."
    return (
        f"{money(total)} was paid by card. The refund by the organization's policy is on its way; the guest's mail has"
        " its amount, and payment.status changes when it is done."
    )


def _rest(payment: Mapping[str, Any], refund: str) -> str:
    """Return a sentence about the rest of a card payment that was partly refunded before the cancellation or by it."""
    if refund == "none" or (payment["source"], payment["status"]) != ("stripe", "partially_refunded"):
        return ""
    return " The guest's mail has the refund of the rest by the organization's policy."


def _by_hand(payment: Mapping[str, Any], total: str, refund: str) -> str:
    if payment["status"] == "paid" and payment["method"] == "external_paid":
        return f"{total} was paid outside the service, and is refunded there."
    if payment["status"] == "paid" and refund == "none":
        return f"{total} was paid by hand; with --refund none it is not refunded."
    if payment["status"] == "paid":
        return f"{total} was paid by hand. Staff was notified to pay the refund by the organization's policy."
    return "It was not paid by card and not fully paid; payments made by hand are refunded by hand."
