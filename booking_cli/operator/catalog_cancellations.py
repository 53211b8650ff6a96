"""Departures that a catalogue cancels and that still have bookings: told, or cancelled with all of their bookings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.commands import departures
from booking_cli.framework.context import Cli, CliError
from booking_cli.operator import refund_summaries, transactions

if TYPE_CHECKING:
    from booking_core.context import Actor
    from booking_core.db.engine import Tx

Shown = dict[str, Any]


def settle(cli: Cli, org: str, departure_ids: Sequence[str], *, cancel_bookings: bool, dry_run: bool) -> list[Shown]:
    """Return those of the departures that have pending or confirmed bookings, how many and what goes back, after those
    were cancelled when that was asked for.

    Raises:
        CliError: it was interrupted, or the database failed in between.
    """
    if not departure_ids:
        return []
    with transactions.opened(cli) as session:
        found = session.look(transactions.of(org), lambda tx, actor: _find(tx, actor, departure_ids))
        if not cancel_bookings or dry_run:
            return found
        return [_cancelled(cli, session, org, each) for each in found]


def _find(tx: "Tx", actor: "Actor", departure_ids: Sequence[str]) -> list[Shown]:
    from booking_core import bookings

    return [
        _with_bookings(tx, actor, each.departure_id) for each in bookings.count_live_bookings(tx, actor, departure_ids)
    ]


def _with_bookings(tx: "Tx", actor: "Actor", departure_id: str) -> Shown:
    from booking_core import bookings

    departure = bookings.get_departure(tx, actor, departure_id)
    ids = [each["id"] for each in bookings.live_bookings(tx, actor, departure_id)]
    return {
        "id": departure["id"],
        "starts_at": departure["starts_at"],
        "title": departure["experience"]["title"],
        "bookings": len(ids),
        "bookings_cancelled": 0,
        "refunds": refund_summaries.total(refund_summaries.in_full(tx, actor.organization.id, ids).values()),
    }


def _cancelled(cli: Cli, session: transactions.Session, org: str, each: Shown) -> Shown:
    try:
        done = departures.cancel_all(cli, session, transactions.of(org), each["id"], expected=each["bookings"])
    except CliError as error:
        message = f"The catalogue was imported. {error}"
        hint = "the same import completes it"
        raise CliError(message, error.exit_code, code=error.code, hint=hint) from None
    refunds = refund_summaries.total(booking["refund"] for booking in done if booking["refund"])
    return each | {"bookings_cancelled": len(done), "refunds": refunds}


def tell(cli: Cli, org: str, found: Sequence[Shown], *, dry_run: bool) -> None:
    """Say which departures have bookings, and what was or can be done about them."""
    for each in found:
        what = f"{each['title']}, {each['starts_at'][:16].replace('T', ' ')}"
        back = f"to be given back: {refund_summaries.amounts(each['refunds'])}"
        if each["bookings_cancelled"]:
            cli.render.note(f"note: {departures.counted(each['bookings_cancelled'])} of {what} cancelled; {back}")
            continue
        has = "would be cancelled, and has" if dry_run else "is cancelled, and has"
        cli.render.warn(f"{what} {has} {departures.counted(each['bookings'])}. To cancel them too ({back}):")
        cli.render.warn(f"  booking departures cancel {each['id']} --org {org}")
