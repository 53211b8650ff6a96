"""Report departures that a catalogue import cancelled while they have bookings, or cancel these bookings too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import start_text
from booking_cli.operator import refund_summaries
from booking_cli.operator.departure_cancellation import cancel_all, count_text
from booking_cli.operator.transactions import Session, by_slug, open_session

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

Json = dict[str, Any]


def cancel_bookings_of(
    cli: Cli, org: str, departure_ids: Sequence[str], *, cancel_bookings: bool, dry_run: bool
) -> list[Json]:
    """Return the departures with pending or confirmed bookings, their number and refunds.

    Args:
        cancel_bookings: cancel these bookings first, unless it is a dry run.

    Raises:
        CliError: Ctrl-C was pressed, or the database failed after some batches.
    """
    if not departure_ids:
        return []
    with open_session(cli) as session:
        found = session.read(by_slug(org), lambda tx, actor: _find(tx, actor, departure_ids))
        if not cancel_bookings or dry_run:
            return found
        return [_cancel(cli, session, org, each) for each in found]


def _find(tx: "Tx", actor: "Actor", departure_ids: Sequence[str]) -> list[Json]:
    from booking_core import bookings

    counts = bookings.count_live_bookings(tx, actor, departure_ids)
    return [_with_bookings(tx, actor, each.departure_id) for each in counts]


def _with_bookings(tx: "Tx", actor: "Actor", departure_id: str) -> Json:
    from booking_core import bookings

    departure = bookings.get_departure(tx, actor, departure_id)
    ids = [each["id"] for each in bookings.live_bookings(tx, actor, departure_id)]
    refunds = refund_summaries.full_refunds(tx, actor.organization.id, ids)
    return {
        "id": departure["id"],
        "starts_at": departure["starts_at"],
        "title": departure["experience"]["title"],
        "bookings": len(ids),
        "bookings_cancelled": 0,
        "refunds": refund_summaries.sum_amounts(refunds.values()),
    }


def _cancel(cli: Cli, session: Session, org: str, departure: Json) -> Json:
    try:
        done = cancel_all(cli, session, by_slug(org), departure["id"], expected=departure["bookings"])
    except CliError as error:
        message = f"The catalogue was imported. {error}"
        hint = "run the same import again to complete it"
        raise CliError(message, error.exit_code, code=error.code, hint=hint) from None
    return departure | {"bookings_cancelled": len(done), "refunds": refund_summaries.totals(done)}


def note_departures(cli: Cli, org: str, departures: Sequence[Json], *, dry_run: bool) -> None:
    """Note the departures with bookings, and the command that cancels these."""
    for each in departures:
        name = f"{each['title']}, {start_text(each)}"
        refunds = f"refunds: {refund_summaries.amounts_text(each['refunds'])}"
        if each["bookings_cancelled"]:
            cli.render.note(f"note: {count_text(each['bookings_cancelled'])} of {name} cancelled; {refunds}")
            continue
        state = "would be cancelled, and has" if dry_run else "is cancelled, and has"
        cli.render.warn(f"{name} {state} {count_text(each['bookings'])}. To cancel them too ({refunds}):")
        cli.render.warn(f"  booking departures cancel {each['id']} --org {org}")
