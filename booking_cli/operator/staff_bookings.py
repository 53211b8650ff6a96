"""The operator half of `booking bookings`: the same commands in the database, for staff, an agency or an assistant.

A booking names them in its `source`, a cancellation in its `reason`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any

from booking_cli.framework.arguments import is_booking_number
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import booking_text, counted, start_text
from booking_cli.framework.options import Paging
from booking_cli.framework.output import ListPage
from booking_cli.framework.tables import Columns
from booking_cli.operator import cancellations, transactions
from booking_cli.operator.transactions import FindOrganization, Session, by_slug, stored_id
from booking_core.models.json import JsonObject

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.bookings import BookingRequest, Search
    from booking_core.db.engine import Tx
    from booking_core.models.bookings import BookingCreate

_PAGE_SIZE_MAX = 100


def write_list(cli: Cli, org: str, paging: Paging, conditions: Mapping[str, Any], columns: Columns) -> None:
    """Write the bookings of an organization that meet the conditions; a condition of None is ignored."""
    cli.render.pages(_pages(cli, org, paging, conditions), columns)


def _pages(cli: Cli, org: str, paging: Paging, conditions: Mapping[str, Any]) -> Iterator[ListPage]:
    """Yield pages up to a number of bookings; without a limit all of them."""
    limit, after = paging.most, paging.starting_after
    with transactions.open_session(cli) as session:
        from booking_core import bookings
        from booking_core.db.paging import PageRequest
        from booking_core.models.pages import Order

        def query(tx: "Tx", actor: "Actor") -> ListPage:
            search = _search(actor.organization.zone.parse, conditions)
            return bookings.search(tx, actor, PageRequest(size, Order(paging.order), after), search)

        while True:
            size = _PAGE_SIZE_MAX if limit is None else min(_PAGE_SIZE_MAX, limit)
            page = _plain(session.read(by_slug(org), query))
            yield page
            limit = None if limit is None else limit - len(page["data"])
            after = page["next_cursor"]
            if after is None or limit == 0:
                return


def _search(parse_instant: Any, conditions: Mapping[str, Any]) -> "Search":
    """Return the conditions in the types of the core."""
    from booking_core.bookings import Search
    from booking_core.models.bookings import BookingStatus

    parsers = {
        "status": BookingStatus,
        "departure_from": date.fromisoformat,
        "departure_to": date.fromisoformat,
        "updated_since": parse_instant,
        "departure_id": stored_id,
        "experience_id": stored_id,
    }
    filters = {name: value for name, value in conditions.items() if value is not None}
    return Search(**{name: parsers[name](value) if name in parsers else value for name, value in filters.items()})


def _plain(page: JsonObject) -> JsonObject:
    """Return a booking or a page as plain values; some of its parts are stored as JSON."""
    import orjson

    plain: JsonObject = orjson.loads(orjson.dumps(page))
    return plain


def get(cli: Cli, reference: str, *, org: str | None) -> None:
    """Write a booking, found by its number or its id."""
    from booking_core import bookings

    booking = transactions.read(cli, find_organization(reference, org), _of_booking(reference, bookings.get))
    cli.render.one(_plain(booking))


def create(
    cli: Cli, org: str, source: str, body: Mapping[str, Any], key_option: str | None, *, dry_run: bool = False
) -> tuple[JsonObject, bool]:
    """Create a booking for the organization; return it, and whether an earlier run with the same key created it.

    Args:
        body: the body of the API's request, which is validated by the API's rules.
        key_option: the value of --idempotency-key.
        dry_run: make every check and roll back; the booking has no id and no number then.
    """
    from booking_core import bookings
    from booking_core.models.bookings import BookingCreate
    from booking_core.records import idempotency
    from booking_core.records.idempotency import Once

    draft = _draft(transactions.parse_request(BookingCreate, body), source)
    with cli.idempotency_key(key_option) as key:
        once = Once(key, idempotency.fingerprint("POST", "/staff/bookings", {**body, "source": source}))

        def change(tx: "Tx", actor: "Actor") -> tuple[JsonObject, bool]:
            response = bookings.create_once(tx, actor, draft, once)
            return json.loads(response.body), response.replayed

        booking, is_replay = transactions.change(cli, by_slug(org), change, dry_run=dry_run)
    if dry_run:
        booking |= {"dry_run": True} | ({} if is_replay else {"id": None, "booking_number": None})
    return booking, is_replay


def _draft(request: "BookingCreate", source: str) -> "BookingRequest":
    """Return the request of the API as one of staff."""
    from booking_core.bookings import BookingRequest
    from booking_core.models.bookings import BookingSource

    names = {field.name for field in fields(BookingRequest)}
    values = {name: value for name, value in request if name in names and value is not None}
    return BookingRequest(**values, source=BookingSource(source))


def find_organization(reference: str, org: str | None) -> FindOrganization:
    """Return a function that finds the organization of a booking.

    Raises:
        CliError: a booking number without --org, since every organization may have that number.
    """
    if org is not None:
        return by_slug(org)
    if is_booking_number(reference):
        raise CliError(f"Each organization has its own booking {reference}.", hint="pass --org, or the booking's id")
    from booking_core import bookings

    return lambda tx: bookings.organization_of(tx, reference)


def id_of_number(tx: "Tx", reference: str, org: str | None) -> str:
    """Return the id of a booking that is named by its number; any other text is returned unchanged."""
    from booking_core import bookings

    if not is_booking_number(reference):
        return reference
    return bookings.resolve_id(tx, find_organization(reference, org)(tx), reference)


def change_booking(
    cli: Cli,
    reference: str,
    org: str | None,
    change: Callable[..., Any],
    *,
    present: transactions.Present | None = None,
    dry_run: bool = False,
) -> Any:
    """Make a change of a booking that is named by its number or its id.

    Args:
        change: takes the transaction, the actor and the id of the booking.
    """
    organization, work = find_organization(reference, org), _of_booking(reference, change)
    return transactions.change(cli, organization, work, present=present, dry_run=dry_run)


def _of_booking(reference: str, function: Callable[..., Any]) -> Callable[["Tx", "Actor"], Any]:
    """Return a function of a transaction and an actor that calls another one with the id of the booking as well."""
    from booking_core import bookings

    return lambda tx, actor: function(tx, actor, bookings.resolve_id(tx, actor.organization, reference))


def cancel(
    cli: Cli, reference: str, *, org: str | None, reason_code: str, refund: str, reason: str | None, dry_run: bool
) -> None:
    """Cancel a booking for staff or an agent, and write it with its refund."""
    from booking_core import bookings
    from booking_core.models.bookings import BookingCancel, CancelReason, RefundMode

    organization = find_organization(reference, org)
    note = transactions.parse_request(BookingCancel, {"reason": reason}).reason

    def change(tx: "Tx", actor: "Actor", booking_id: str) -> JsonObject:
        before = bookings.get(tx, actor, booking_id)["status"]
        cancelled = bookings.cancel(
            tx,
            actor,
            booking_id,
            reason=CancelReason(reason_code),
            note=note,
            refund=RefundMode.NONE if refund == "none" else RefundMode.AUTO,
            in_full=refund == "full",
        )
        return {"before": before, "booking": json.loads(cancelled)}

    with transactions.open_session(cli) as session:
        if not dry_run:
            cli.confirm(f"Cancel {_description(cli, session, organization, reference)}? This cannot be undone.")
        work = _of_booking(reference, change)
        result = session.change(organization, work, present=_with_refund, dry_run=dry_run)
    _write_cancelled(cli, result, dry_run=dry_run)


def _description(cli: Cli, session: Session, organization: FindOrganization, reference: str) -> str:
    """Return the description of a booking for the confirmation; it is looked up only if there is a question."""
    from booking_core import bookings

    if cli.options.yes or not cli.is_interactive:
        return f"the booking {reference}"
    return booking_text(session.read(organization, _of_booking(reference, bookings.get)))


def _with_refund(tx: "Tx", actor: "Actor", result: JsonObject) -> JsonObject:
    return result | cancellations.of_cancelled_booking(tx, actor.organization.id, result["booking"]["id"])


def _write_cancelled(cli: Cli, result: JsonObject, *, dry_run: bool) -> None:
    booking, refund = result["booking"], result["refund"]
    if dry_run and refund:
        refund = refund | {"refund_id": None}  # it was rolled back
    cli.render.one({**booking, "refund": refund} | ({"dry_run": True} if dry_run else {}))
    if result["before"] == "cancelled":
        cli.render.note("It was cancelled before; nothing was changed.")
    cli.render.note(result["sentence"])
    note_dry_run(cli, dry_run)


def note_dry_run(cli: Cli, dry_run: bool) -> None:
    """Note that a dry run wrote nothing."""
    if dry_run:
        cli.render.note("Nothing was written (--dry-run).")


def confirm(cli: Cli, reference: str, *, org: str | None) -> None:
    """Confirm a pending booking and write it."""
    from booking_core import bookings

    cli.render.one(change_booking(cli, reference, org, bookings.confirm))


def attend(cli: Cli, reference: str, verb: str, *, org: str | None, undo: bool) -> None:
    """Check a booking in, or record a no-show, and write it; `verb` is the end of the API's path."""
    from booking_core import bookings

    record = {"check-in": bookings.check_in, "no-show": bookings.record_no_show}[verb]
    cli.render.one(change_booking(cli, reference, org, partial(record, undo=undo)))


def set_guest(cli: Cli, reference: str, body: Mapping[str, Any], *, org: str | None) -> None:
    """Change the guest of a booking and write it."""
    from booking_core import bookings
    from booking_core.models.bookings import BookingGuestChange

    change = transactions.parse_request(BookingGuestChange, body)
    cli.render.one(change_booking(cli, reference, org, partial(bookings.change_guest, change=change)))


def change_party(
    cli: Cli, reference: str, body: Mapping[str, Any], *, org: str | None, refund: str, dry_run: bool
) -> None:
    """Change the party of a booking and write it with the effect on its money. A dry run rolls back.

    Args:
        body: the body of the API's request, which is validated by the API's rules.
    """
    from booking_core import bookings
    from booking_core.bookings import Party
    from booking_core.models.bookings import BookingPartyChange, RefundMode

    request = transactions.parse_request(BookingPartyChange, body)
    mode = RefundMode.NONE if refund == "none" else RefundMode.AUTO
    party = Party(guests=request.guests, add_ons=request.add_ons, refund=mode, in_full=refund == "full")
    changed = change_booking(cli, reference, org, partial(bookings.change_party, party=party), dry_run=dry_run)
    effect = {name: value for name, value in changed.items() if name != "booking"}
    cli.render.one({**changed["booking"], "change": effect} | ({"dry_run": True} if dry_run else {}))
    note_dry_run(cli, dry_run)


def reschedule(cli: Cli, reference: str, departure: str, *, org: str | None, dry_run: bool) -> None:
    """Move a booking to another departure and write it. A dry run makes every check and rolls back."""
    from booking_core import bookings
    from booking_core.catalogue import departures

    target = stored_id(departure, "departure")

    def change(tx: "Tx", actor: "Actor", booking_id: str) -> JsonObject:
        before = bookings.get(tx, actor, booking_id)["departure"]
        return {"before": before, "booking": json.loads(bookings.reschedule(tx, actor, booking_id, target))}

    def present(tx: "Tx", actor: "Actor", result: JsonObject) -> JsonObject:
        return result | {"seats_available": departures.get(tx, actor, target)["seats_available"]}

    result = change_booking(cli, reference, org, change, present=present, dry_run=dry_run)
    if not dry_run:
        cli.render.one(result["booking"])
        return
    extra = {"dry_run": True, "previous_departure": result["before"], "seats_available": result["seats_available"]}
    cli.render.one({**result["booking"], **extra})
    _note_move(cli, result)
    note_dry_run(cli, dry_run)


def _note_move(cli: Cli, result: JsonObject) -> None:
    before, after = result["before"], result["booking"]["departure"]
    if before["id"] == after["id"]:
        cli.render.note("It is on that departure already.")
        return
    seats = counted(result["seats_available"], "seat")
    move = f"from {start_text(before)} to {start_text(after)}"
    cli.render.note(f"It would move {move}, which would have {seats} left; its price stays.")
