"""The operator's side of `booking bookings`: the same commands, carried out in the database.

Staff, an agency or an assistant acts here, and no API key: a booking says so in its `source`, a cancellation in its
`reason`.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from booking_cli.client import api_client, booking_search, pagination
from booking_cli.framework.context import Cli, CliError
from booking_cli.operator import refund_summaries, storage, transactions, validation

if TYPE_CHECKING:
    from booking_core.bookings import Search
    from booking_core.context import Actor
    from booking_core.db.engine import Tx
    from booking_core.db.writes import Writes

SOURCES = ("admin", "agency", "ai")
REASON_CODES = ("admin", "agent")
REFUNDS = ("auto", "none", "full")
_PAGE_MAX = 100

Shown = dict[str, Any]


# Finding ---------------------------------------------------------------------------------------------------------


def list_(
    cli: Cli,
    org: str,
    conditions: Mapping[str, Any],
    columns: tuple[str, ...],
    *,
    order: str,
    limit: int | None,
    starting_after: str | None,
    clipped: Mapping[str, int],
) -> None:
    """Show the bookings of an organization that meet the conditions, of which those that are None are none."""
    found = _pages(cli, org, conditions, order=order, wanted=limit, after=starting_after)
    pagination.show_pages(cli, found, columns, clipped=clipped, empty="There is no such booking.")


def _pages(
    cli: Cli, org: str, conditions: Mapping[str, Any], *, order: str, wanted: int | None, after: str | None
) -> Iterator[Shown]:
    """Yield pages until there are as many bookings as wanted; none: all."""
    with transactions.opened(cli) as session:
        from booking_core import bookings
        from booking_core.context import Actor
        from booking_core.db.paging import PageRequest
        from booking_core.models.pages import Order

        database, installation = session.database, session.installation
        organization = database.read(transactions.of(org))
        storage.tell_organization(cli, organization)
        search = _search(organization.zone.parse, conditions)

        def page_of(tx: "Tx") -> Shown:
            actor = Actor(installation=installation, organization=organization, at=tx.now())
            return bookings.search(tx, actor, PageRequest(size, Order(order), after), search)

        while True:
            size = _PAGE_MAX if wanted is None else min(_PAGE_MAX, wanted)
            page = _plain(database.read(page_of))
            yield page
            wanted = None if wanted is None else wanted - len(page["data"])
            after = page["next_cursor"]
            if after is None or wanted == 0:
                return


def _search(instant: Any, conditions: Mapping[str, Any]) -> "Search":
    """Return the conditions as the core takes them, from what was typed."""
    from booking_core.bookings import Search
    from booking_core.models.bookings import BookingStatus

    read = {
        "status": BookingStatus,
        "departure_from": date.fromisoformat,
        "departure_to": date.fromisoformat,
        "updated_since": instant,
        "departure_id": transactions.stored_id,
        "experience_id": transactions.stored_id,
    }
    given = {name: value for name, value in conditions.items() if value is not None}
    return Search(**{name: read.get(name, _same)(value) for name, value in given.items()})


def _same(value: Any) -> Any:
    return value


def _plain(page: Shown) -> Shown:
    """Return the page as plain values: the lines of a booking are stored as JSON."""
    import orjson

    plain: Shown = orjson.loads(orjson.dumps(page))
    return plain


def get(cli: Cli, org: str, reference: str) -> None:
    """Show a booking of the organization by its number or its id."""
    with storage.installed():
        from booking_core import bookings

    def verb(tx: "Tx", actor: "Actor") -> Shown:
        return _plain(bookings.get(tx, actor, bookings.refer(tx, actor, reference)))

    cli.render.one(transactions.look(cli, transactions.of(org), verb))


# Creating --------------------------------------------------------------------------------------------------------


def create(cli: Cli, org: str, source: str, body: Mapping[str, Any], given_key: str | None) -> None:
    """Book seats for the organization; `body` is that of the API's request, and judged by the same rules."""
    with storage.installed():
        from booking_core import bookings, idempotency
        from booking_core.idempotency import Once
        from booking_core.models.bookings import BookingCreate

    draft = _draft(validation.request(BookingCreate, body), source)
    with api_client.once(cli, given_key) as key:
        once = Once(key, idempotency.fingerprint("POST", "/staff/bookings", {**body, "source": source}))

        def verb(tx: "Tx", actor: "Actor", pending: "Writes") -> tuple[Shown, bool]:
            answer = bookings.create_once(tx, actor, draft, once)
            return json.loads(answer.body), answer.replayed

        booking, is_replay = transactions.act(cli, transactions.of(org), verb)
    cli.render.one(booking)
    if is_replay:
        cli.render.note("This was booked before, with the same key; nothing was booked now.")


def _draft(request: Any, source: str) -> Any:
    from booking_core.bookings import Draft
    from booking_core.models.bookings import BookingSource

    return Draft(
        departure_id=request.experience_date_id,
        guests=request.guests,
        customer=request.customer,
        source=BookingSource(source),
        payment=request.payment,
        add_ons=request.add_ons or (),
        note=request.note,
        send_confirmation_email=request.send_confirmation_email is not False,
        notify_staff=request.notify_staff is not False,
    )


# Changing one ----------------------------------------------------------------------------------------------------


def owner(reference: str, org: str | None) -> transactions.Owner:
    """Return a function that gives the organization which has the booking.

    Raises:
        CliError: the booking is named by its number, which every organization may have.
    """
    if org is not None:
        return transactions.of(org)
    if booking_search.is_number(reference):
        raise CliError(f"Each organization has its own booking {reference}.", hint="pass --org, or the booking's id")
    with storage.installed():
        from booking_core import bookings

    return lambda tx: bookings.owner(tx, reference)


def cancel(
    cli: Cli, reference: str, *, org: str | None, reason_code: str, refund: str, reason: str | None, dry_run: bool
) -> None:
    """Cancel a booking for staff or an agent, and tell what happens to the money."""
    with storage.installed():
        from booking_core import bookings
        from booking_core.models.bookings import BookingCancel, CancelReason, RefundMode

    whose = owner(reference, org)
    note = validation.request(BookingCancel, {"reason": reason}).reason

    def verb(tx: "Tx", actor: "Actor", pending: "Writes") -> Shown:
        booking_id = bookings.refer(tx, actor, reference)
        before = bookings.get(tx, actor, booking_id)["status"]
        cancelled = bookings.cancel(
            tx,
            actor,
            pending,
            booking_id,
            reason=CancelReason(reason_code),
            note=note,
            refund=RefundMode.NONE if refund == "none" else RefundMode.AUTO,
            in_full=refund == "full",
        )
        return {"before": before, "booking": json.loads(cancelled)}

    with transactions.opened(cli) as session:
        if not dry_run:
            cli.confirm(f"Cancel {_asked_about(cli, session, whose, reference)}? It cannot be undone.")
        done = session.act(whose, verb, then=_with_refund, dry_run=dry_run)
    _show_cancelled(cli, done, dry_run=dry_run)


def _asked_about(cli: Cli, session: transactions.Session, whose: transactions.Owner, reference: str) -> str:
    """Return what the question names: the booking as it is now, where somebody is there to read it."""
    from booking_core import bookings

    if cli.options.yes or not cli.can_ask:
        return f"the booking {reference}"
    return name_of(session.look(whose, lambda tx, actor: bookings.get(tx, actor, bookings.refer(tx, actor, reference))))


def _with_refund(tx: "Tx", actor: "Actor", done: Shown) -> Shown:
    return done | refund_summaries.outcome(tx, actor.organization.id, done["booking"]["id"])


def _show_cancelled(cli: Cli, done: Shown, *, dry_run: bool) -> None:
    booking, refund = done["booking"], done["refund"]
    if dry_run and refund:
        refund = refund | {"refund_id": None}  # it was undone with the rest
    cli.render.one({**booking, "refund": refund} | ({"dry_run": True} if dry_run else {}))
    if done["before"] == "cancelled":
        cli.render.note("It was cancelled before; nothing was changed.")
    cli.render.note(done["sentence"])
    tell_dry_run(cli, dry_run)


def tell_dry_run(cli: Cli, dry_run: bool) -> None:
    """Say that nothing was written, when that is so."""
    if dry_run:
        cli.render.note("Nothing was written (--dry-run).")


def name_of(booking: Mapping[str, Any]) -> str:
    """Return what a person knows a booking by."""
    start = booking["departure"]["starts_at"][:16].replace("T", " ")
    title = booking["experience"]["title"]
    return f"booking {booking['booking_number']} of {booking['customer']['name']} ({title}, {start})"


def confirm(cli: Cli, reference: str, *, org: str | None) -> None:
    """Confirm a pending booking."""
    with storage.installed():
        from booking_core import bookings

    def verb(tx: "Tx", actor: "Actor", pending: "Writes") -> bytes:
        return bookings.confirm(tx, actor, pending, bookings.refer(tx, actor, reference))

    cli.render.one(transactions.act(cli, owner(reference, org), verb))


def reschedule(cli: Cli, reference: str, departure: str, *, org: str | None, dry_run: bool) -> None:
    """Move a booking to another departure; with `dry_run` make every check, and undo it."""
    with storage.installed():
        from booking_core import bookings, departures

    target = transactions.stored_id(departure, "departure")

    def verb(tx: "Tx", actor: "Actor", pending: "Writes") -> Shown:
        booking_id = bookings.refer(tx, actor, reference)
        before = bookings.get(tx, actor, booking_id)["departure"]
        return {"before": before, "booking": json.loads(bookings.reschedule(tx, actor, pending, booking_id, target))}

    def then(tx: "Tx", actor: "Actor", done: Shown) -> Shown:
        return done | {"seats_available": departures.get(tx, actor, target)["seats_available"]}

    done = transactions.act(cli, owner(reference, org), verb, then=then, dry_run=dry_run)
    if not dry_run:
        cli.render.one(done["booking"])
        return
    would = {"dry_run": True, "previous_departure": done["before"], "seats_available": done["seats_available"]}
    cli.render.one({**done["booking"], **would})
    _tell_move(cli, done)
    tell_dry_run(cli, dry_run)


def _tell_move(cli: Cli, done: Shown) -> None:
    before, after = (
        each["starts_at"][:16].replace("T", " ") for each in (done["before"], done["booking"]["departure"])
    )
    if done["before"]["id"] == done["booking"]["departure"]["id"]:
        cli.render.note("It is on that departure already.")
        return
    left = done["seats_available"]
    seats = f"{left} seat{'' if left == 1 else 's'}"
    cli.render.note(f"It would move from {before} to {after}, which would have {seats} left; its price stays.")
