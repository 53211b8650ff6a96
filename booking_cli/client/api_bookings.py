"""The client half of `booking bookings`: list, get, quote, create and cancel over HTTP."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from booking_cli.client import api_client, booking_search
from booking_cli.framework.bookings import describe, write_created
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import money
from booking_cli.framework.idempotency import idempotency_key
from booking_cli.framework.pages import LIMIT_REACHED, Page, write_pages

if TYPE_CHECKING:
    from booking_sdk import BookingClient

Json = dict[str, Any]

_BACK = {
    "refunded": "The payment was refunded.",
    "partially_refunded": "The payment was partly refunded.",
    "failed": "No card was charged, so there is no refund.",
}


def write_search(
    cli: Cli,
    params: Mapping[str, Any],
    condition: booking_search.Condition,
    columns: tuple[str, ...],
    *,
    limit: int | None,
    truncated: Mapping[str, int],
) -> None:
    """Search the API's list for bookings that meet the condition, and write them.

    Raises:
        CliError: PARTIAL, if the search stopped at its limit.
    """

    def pages() -> Iterator[Page]:
        with api_client.connect(cli) as client:
            yield from booking_search.search(cli, client, params, condition, limit=limit)

    last = write_pages(cli, pages(), columns, truncated=truncated, empty="No booking found.")
    if last.get(LIMIT_REACHED):
        raise booking_search.limit_reached(last["next_cursor"])


def get(cli: Cli, reference: str) -> None:
    """Write a booking, found by its number or its id."""
    with api_client.connect(cli) as client:
        booking = api_client.get(client, "bookings", booking_search.resolve_id(client, reference))
    cli.render.one(booking)


def create(cli: Cli, body: Json, key_option: str | None) -> None:
    """Create a booking and write it; `key_option` is the value of --idempotency-key."""
    created = api_client.post(cli, "bookings", body=body, key_option=key_option)
    write_created(cli, created.body, is_replay=created.is_replay)


def quote(cli: Cli, body: Json, key: str | None) -> None:
    """Quote a booking and write the quote; `key` is the idempotency key of the order."""
    path = api_client.path("bookings", "quote")
    with api_client.connect(cli) as client:
        quoted = api_client.request(client, "POST", path, body=body, idempotency_key=key).body
    cli.render.one(quoted)


def cancel(cli: Cli, reference: str, *, refund: str, reason: str | None, dry_run: bool, key_option: str | None) -> None:
    """Cancel a booking and write it. A dry run writes the booking and the request that would be sent."""
    _refuse_full(refund)
    body = {"refund": refund} | ({"reason": reason} if reason else {})
    with api_client.connect(cli) as client:
        booking_id = booking_search.resolve_id(client, reference)
        path = api_client.path("bookings", booking_id, "cancel")
        if dry_run:
            _write_request(cli, client, booking_id, {"method": "POST", "path": path, "body": body})
            return
        _confirm(cli, client, booking_id)
        with idempotency_key(cli, key_option) as key:
            cancelled = api_client.request(client, "POST", path, body=body, idempotency_key=key).body
    cli.render.one(cancelled)
    cli.render.note(after_cancelling(cancelled, refund))


def attend(cli: Cli, reference: str, verb: str, *, undo: bool, key_option: str | None) -> None:
    """Check a booking in, or record a no-show, and write it; `verb` is the end of the path."""
    body = {"undo": True} if undo else {}
    with api_client.connect(cli) as client:
        path = api_client.path("bookings", booking_search.resolve_id(client, reference), verb)
        with idempotency_key(cli, key_option) as key:
            attended = api_client.request(client, "POST", path, body=body, idempotency_key=key).body
    cli.render.one(attended)


def reschedule(cli: Cli, reference: str, departure: str, *, dry_run: bool, key_option: str | None) -> None:
    """Move a booking to another departure and write it. A dry run writes the preview."""
    with api_client.connect(cli) as client:
        path = api_client.path("bookings", booking_search.resolve_id(client, reference), "reschedule")
        _change(cli, client, path, {"departure_id": departure}, dry_run=dry_run, key_option=key_option)


def change_party(cli: Cli, reference: str, body: Json, *, refund: str, dry_run: bool, key_option: str | None) -> None:
    """Change the party of a booking and write it. A dry run writes the preview."""
    _refuse_full(refund)
    with api_client.connect(cli) as client:
        path = api_client.path("bookings", booking_search.resolve_id(client, reference), "party")
        _change(cli, client, path, body | {"refund": refund}, dry_run=dry_run, key_option=key_option)


def _refuse_full(refund: str) -> None:
    if refund == "full":
        raise CliError("--refund full needs --org: the API refunds by the organization's policy.", hint="add --org")


def _change(cli: Cli, client: "BookingClient", path: str, body: Json, *, dry_run: bool, key_option: str | None) -> None:
    """Send a change of a booking and write the booking, or write the preview of the change."""
    if dry_run:
        preview = api_client.request(client, "POST", f"{path}/preview", body=body).body
        cli.render.one({**preview["booking"], "dry_run": True, "change": _without_booking(preview)})
        for refusal in preview["refusals"]:
            cli.render.note(f"It would be refused: {refusal['message']}")
        cli.render.note("Nothing was changed (--dry-run).")
        return
    with idempotency_key(cli, key_option) as key:
        changed = api_client.request(client, "POST", path, body=body, idempotency_key=key).body
    cli.render.one(changed["booking"] | {"change": _without_booking(changed)})


def _without_booking(change: Json) -> Json:
    return {name: value for name, value in change.items() if name != "booking"}


def _write_request(cli: Cli, client: "BookingClient", booking_id: str, request: Json) -> None:
    booking = api_client.get(client, "bookings", booking_id)
    cli.render.one({**booking, "dry_run": True, "request": request})
    if booking["status"] == "cancelled":
        cli.render.note("It is cancelled already: the service would return it unchanged.")
    else:
        cli.render.note(f"It would be cancelled (refund: {request['body']['refund']}). Nothing was sent (--dry-run).")


def _confirm(cli: Cli, client: "BookingClient", booking_id: str) -> None:
    """Ask for a confirmation; the booking is looked up only if the question is asked."""
    description = f"the booking {booking_id}"
    if cli.is_interactive and not cli.options.yes:
        description = describe(api_client.get(client, "bookings", booking_id))
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
    """Return a sentence about the rest of a card payment, a part of which was refunded before the cancellation or by
    it."""
    if refund == "none" or (payment["source"], payment["status"]) != ("stripe", "partially_refunded"):
        return ""
    return " What the organization's policy refunds of the rest is in the guest's mail."


def _by_hand(payment: Mapping[str, Any], total: str, refund: str) -> str:
    if payment["status"] == "paid" and payment["method"] == "external_paid":
        return f"{total} was paid outside the service, and is refunded there."
    if payment["status"] == "paid" and refund == "none":
        return f"{total} was paid by hand; with --refund none it is not refunded."
    if payment["status"] == "paid":
        return f"{total} was paid by hand. Staff was notified to pay the refund by the organization's policy."
    return "It was not paid by card and not fully paid; payments made by hand are refunded by hand."
