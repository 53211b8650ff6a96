"""`booking departures`: what leaves when, who comes, and what staff changes about it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.framework import context
from booking_cli.framework.arguments import day, identifier, one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import manifests, refund_summaries, storage, transactions
from booking_cli.operator.staff_bookings import REASON_CODES, tell_dry_run

if TYPE_CHECKING:
    from booking_core.bookings import CancelledBatch
    from booking_core.context import Actor
    from booking_core.db.engine import Tx
    from booking_core.db.writes import Writes

app = group("Departures: what leaves when, who comes; closed, reopened, cancelled. These commands open the database.")

COLUMNS = (
    "id",
    "starts_at",
    "experience.title",
    "status",
    "seats_sold",
    "seats_total",
    "seats_available",
    "bookings.confirmed",
    "bookings.pending",
)
TABLE = ("id", "start", "sold", "experience.title", "status", "bookings.confirmed", "bookings.pending", "price")
"""Of a terminal: the day is left out where there is one only, and sold are the seats of all."""
BOOKINGS = (
    "booking_number",
    "customer.name",
    "totals.total",
    "payment.status",
    "refund.amount",
    "customer.email",
    "id",
)
BOOKINGS_TABLE = ("number", "customer.name", "totals.total", "payment", "refund", "customer.email")
CLIPPED = {"experience.title": 24, "customer.name": 16}
_ID = "0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21"

Shown = dict[str, Any]
DepartureId = Annotated[
    str, typer.Argument(metavar="ID", parser=identifier, help="The id; `booking departures list` shows it.")
]
Whose = Annotated[
    str | None,
    typer.Option("--org", metavar="SLUG", help="Whose it is, when two organizations have that id.", show_default=False),
]


def _owner(departure_id: str, org: str | None) -> transactions.Owner:
    with storage.installed():
        from booking_core import departures

    stored = transactions.stored_id(departure_id, "departure")
    return transactions.of_one(lambda tx: departures.owners(tx, stored), "departure", stored, org=org)


# Looking ---------------------------------------------------------------------------------------------------------


@command(
    app,
    "list",
    "booking departures list --org fjord-tours --date today",
    "booking departures list --org fjord-tours --date 2026-12-24 --to 2026-12-31 -o json",
)
def list_(
    ctx: typer.Context,
    org: Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.")],
    first: Annotated[str, typer.Option("--date", metavar="DAY", parser=day, help="The day, or the first.")] = "today",
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", parser=day, help="The last day, at most 92 days later; else the same."),
    ] = None,
    experience: Annotated[
        str | None, typer.Option("--experience", metavar="ID", parser=identifier, help="Only of this experience.")
    ] = None,
) -> None:
    """Lists the departures of a day with their seats and bookings, the earliest first. Days are the organization's."""
    from datetime import date

    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings

    def verb(tx: "Tx", actor: "Actor") -> list[Shown]:
        return bookings.find_departures(
            tx,
            actor,
            date_from=date.fromisoformat(first),
            date_to=date.fromisoformat(last or first),
            experience_id=transactions.stored_id(experience) if experience else None,
        )

    found = transactions.look(cli, transactions.of(org), verb)
    if _is_table(cli):
        found = [_for_table(each, is_one_day=last in (None, first)) for each in found]
        cli.render.many(found, TABLE, empty="Nothing departs then.", clipped=CLIPPED)
    else:
        cli.render.many(found, COLUMNS)


def _is_table(cli: Cli) -> bool:
    """Return whether a table is written whose columns nobody chose."""
    return cli.render.format == "table" and not cli.render.fields


def _for_table(departure: Shown, *, is_one_day: bool) -> Shown:
    start = departure["starts_at"]
    return departure | {
        "start": start[11:16] if is_one_day else start,
        "sold": f"{departure['seats_sold']}/{departure['seats_total']}",
    }


@command(app, "show", f"booking departures show {_ID}", f"booking departures show {_ID} -o json")
def show(ctx: typer.Context, departure_id: DepartureId, org: Whose = None) -> None:
    """Shows a departure with its seats and the number of its bookings."""
    with storage.installed():
        from booking_core import bookings

    cli = context.of(ctx)
    wanted = transactions.stored_id(departure_id, "departure")
    cli.render.one(
        transactions.look(cli, _owner(departure_id, org), lambda tx, actor: bookings.get_departure(tx, actor, wanted))
    )


@command(
    app,
    "manifest",
    f"booking departures manifest {_ID}",
    f"booking departures manifest {_ID} -o tsv --fields customer.name,customer.phone,unpaid",
)
def manifest(ctx: typer.Context, departure_id: DepartureId, org: Whose = None) -> None:
    """Lists who comes: guests by tier, add-ons, notes, contact, and what is still to be paid.

    Pending bookings are marked: their seats are taken, and given back if they are not paid in time.
    """
    with storage.installed():
        from booking_core import bookings

    cli = context.of(ctx)
    wanted = transactions.stored_id(departure_id, "departure")
    found = transactions.look(cli, _owner(departure_id, org), lambda tx, actor: bookings.manifest(tx, actor, wanted))
    manifests.show(cli, found)


# Changing --------------------------------------------------------------------------------------------------------


@command(app, "close", f"booking departures close {_ID}", shape="staff_departure", changes=True)
def close(ctx: typer.Context, departure_id: DepartureId, org: Whose = None) -> None:
    """Closes a departure for booking; what is booked stays. `reopen` undoes it."""
    with storage.installed():
        from booking_core import departures

    _change(ctx, departure_id, org, lambda tx, actor, pending, wanted: departures.close(tx, actor, pending, wanted))


@command(app, "reopen", f"booking departures reopen {_ID}", shape="staff_departure", changes=True)
def reopen(ctx: typer.Context, departure_id: DepartureId, org: Whose = None) -> None:
    """Offers a closed departure again, as long as its booking close lies ahead.

    A cancelled one stays cancelled: its guests were told so.
    """
    with storage.installed():
        from booking_core import departures

    _change(ctx, departure_id, org, lambda tx, actor, pending, wanted: departures.reopen(tx, actor, pending, wanted))


@command(
    app,
    "seats",
    f"booking departures seats {_ID} 16",
    f"booking departures seats {_ID} 8 --force",
    shape="staff_departure",
    changes=True,
)
def seats(
    ctx: typer.Context,
    departure_id: DepartureId,
    total: Annotated[int, typer.Argument(metavar="N", min=0, help="How many in all.")],
    org: Whose = None,
    force: Annotated[bool, typer.Option("--force", help="Also fewer than are sold.")] = False,
) -> None:
    """Sets the number of seats of a departure.

    Fewer than are sold is refused without --force. With it nobody loses a seat, and none is for sale until so many
    bookings are cancelled that there is one left.
    """
    with storage.installed():
        from booking_core import departures

    def verb(tx: "Tx", actor: "Actor", pending: "Writes", wanted: str) -> bytes:
        return departures.set_seats(tx, actor, pending, wanted, total, allow_oversold=force)

    _change(ctx, departure_id, org, verb)


def _change(
    ctx: typer.Context,
    departure_id: str,
    org: str | None,
    verb: "Callable[[Tx, Actor, Writes, str], bytes]",
) -> None:
    """Carry out one verb in a transaction of its own, and show the departure as it is then."""
    with storage.installed():
        from booking_core import bookings

    cli, wanted = context.of(ctx), transactions.stored_id(departure_id, "departure")
    changed = transactions.act(
        cli,
        _owner(departure_id, org),
        lambda tx, actor, pending: verb(tx, actor, pending, wanted),
        then=lambda tx, actor, _: bookings.get_departure(tx, actor, wanted),
    )
    cli.render.one(changed)


# Cancelling ------------------------------------------------------------------------------------------------------


@command(
    app,
    "cancel",
    f"booking departures cancel {_ID} --dry-run",
    f"booking departures cancel {_ID} --reason-code agent --yes",
    shape="booking",
    changes=True,
)
def cancel(
    ctx: typer.Context,
    departure_id: DepartureId,
    org: Whose = None,
    reason_code: Annotated[
        str,
        typer.Option(
            "--reason-code", metavar="|".join(REASON_CODES), parser=one_of(*REASON_CODES), help="Who cancels it."
        ),
    ] = "admin",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the bookings and the money.")] = False,
) -> None:
    """Cancels a departure and all of its bookings: what was paid by card goes back in full, and guests are told.

    Bookings are cancelled in batches. Interrupted, the departure is cancelled already: the same command completes it,
    and so does a worker. A departure that a catalogue cancelled keeps its bookings until this is run.
    """
    cli, owner, wanted = context.of(ctx), _owner(departure_id, org), transactions.stored_id(departure_id, "departure")
    with transactions.opened(cli) as session:
        departure, found = _plan(session, owner, wanted)
        if not dry_run:
            cli.confirm(_question(departure, found))
            found = cancel_all(cli, session, owner, wanted, reason_code, expected=len(found))
            departure, _ = _plan(session, owner, wanted)
    _show_cancelled(cli, departure, found, dry_run=dry_run)


def _plan(session: transactions.Session, owner: transactions.Owner, departure_id: str) -> tuple[Shown, list[Shown]]:
    """Return the departure and its live bookings, each with the refund that it would be owed."""

    def verb(tx: "Tx", actor: "Actor") -> tuple[Shown, list[Shown]]:
        from booking_core import bookings

        departure = bookings.get_departure(tx, actor, departure_id)
        live = bookings.live_bookings(tx, actor, departure_id)
        refunds = refund_summaries.in_full(tx, actor.organization.id, [each["id"] for each in live])
        return departure, [each | {"refund": refunds.get(each["id"])} for each in live]

    return session.look(owner, verb)


def _question(departure: Mapping[str, Any], found: Sequence[Shown]) -> str:
    start = departure["starts_at"][:16].replace("T", " ")
    what = f"{departure['experience']['title']}, {start}"
    back = refund_summaries.amounts(refund_summaries.total(each["refund"] for each in found if each["refund"]))
    return f"Cancel the departure ({what}) and its {counted(len(found))}, and give back {back}? It cannot be undone."


def counted(bookings: int) -> str:
    """Return a number of bookings as text."""
    return f"{bookings} booking{'' if bookings == 1 else 's'}"


def cancel_all(
    cli: Cli,
    session: transactions.Session,
    owner: transactions.Owner,
    departure_id: str,
    reason_code: str = "admin",
    *,
    expected: int,
) -> list[Shown]:
    """Cancel the departure and its bookings, batch by batch, each in a transaction of its own, and return the bookings
    that were cancelled, each with its refund.

    Raises:
        CliError: it was interrupted, or the database failed in between; the same again completes it.
    """
    from booking_core.errors import BookingError

    cancelled: list[Shown] = []
    stopped = f"{counted(expected)} of the departure {departure_id}"
    hint = f"booking departures cancel {departure_id} completes it; so does a worker, once the departure is cancelled"
    try:
        with cli.render.progress("cancelling bookings") as advance:
            remaining = 1
            while remaining:
                done, remaining = _cancel_batch(session, owner, departure_id, reason_code)
                cancelled += done
                advance(len(cancelled), len(cancelled) + remaining)
                cli.render.detail(f"{counted(len(cancelled))} cancelled, {remaining} to go")
    except KeyboardInterrupt:
        message = f"Interrupted when {len(cancelled)} of {stopped} were cancelled."
        raise CliError(message, ExitCode.INTERRUPTED, code="interrupted", hint=hint) from None
    except BookingError as error:
        if not cancelled:
            raise
        message = f"Stopped when {len(cancelled)} of {stopped} were cancelled: {error}"
        raise CliError(message, ExitCode.PARTIAL, code=error.code, hint=hint) from error
    return cancelled


def _cancel_batch(
    session: transactions.Session, owner: transactions.Owner, departure_id: str, reason_code: str
) -> tuple[list[Shown], int]:
    from booking_core import bookings
    from booking_core.models.bookings import CancelReason

    def verb(tx: "Tx", actor: "Actor", pending: "Writes") -> "CancelledBatch":
        reason = CancelReason(reason_code)
        return bookings.cancel_departure_batch(tx, actor, pending, departure_id, reason=reason)

    def then(tx: "Tx", actor: "Actor", batch: "CancelledBatch") -> tuple[list[Shown], int]:
        done = [json.loads(each) for each in batch.bookings]
        refunds = refund_summaries.of_bookings(tx, actor.organization.id, [each["id"] for each in done])
        return [each | {"refund": refunds.get(each["id"])} for each in done], batch.remaining

    batch: tuple[list[Shown], int] = session.act(owner, verb, then=then)
    return batch


def _booking_for_table(booking: Shown) -> Shown:
    refund = booking["refund"]
    return booking | {
        "number": booking["booking_number"],
        "payment": booking["payment"]["status"],
        "refund": refund["amount"] if refund else None,
    }


def _show_cancelled(cli: Cli, departure: Shown, found: Sequence[Shown], *, dry_run: bool) -> None:
    """Show the bookings with their refunds; in the json modes the departure stands beside them."""
    refunds = refund_summaries.total(each["refund"] for each in found if each["refund"])
    beside = {"departure": departure, "refunds": refunds, "dry_run": dry_run}
    bookings = sorted(found, key=lambda each: each["booking_number"] or 0)
    columns: Sequence[str] = BOOKINGS
    if _is_table(cli):
        columns, bookings = BOOKINGS_TABLE, [_booking_for_table(each) for each in bookings]
    cli.render.many(bookings, columns, empty="It has no booking.", clipped=CLIPPED, beside=beside)
    is_cancelled = departure["status"] == "cancelled"
    would, are = ("would be", "would be") if dry_run else ("is", "are" if len(found) != 1 else "is")
    state = "is cancelled already" if dry_run and is_cancelled else f"{would} cancelled"
    back = refund_summaries.amounts(refunds)
    cli.render.note(f"The departure {state}; {counted(len(found))} {are} cancelled; to be given back: {back}.")
    gone = departure["bookings"]["cancelled"] - (0 if dry_run else len(found))
    if gone:
        cli.render.note(f"{counted(gone)} had been cancelled before.")
    tell_dry_run(cli, dry_run)
