"""Cancel departures with all of their bookings in batches, and sum up the refunds of cancelled bookings."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import counted, money, start_text
from booking_cli.operator.transactions import FindOrganization, Session, by_slug, open_session
from booking_core.models.json import JsonObject

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.bookings import CancelledBatch
    from booking_core.db.engine import Tx


EXPECTED = "expected"
"""The state of a refund that a cancellation would create."""


def of_cancelled_booking(tx: "Tx", organization_id: str, booking_id: str) -> dict[str, Any]:
    """Return `refund`, the booking's refund or None, and `sentence`, which describes it to the staff."""
    from booking_core import payments

    outcome = payments.outcome_of(tx, organization_id, booking_id)
    return {"refund": outcome.to_json() if outcome.refund_id else None, "sentence": outcome.sentence}


def totals(bookings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sum of the bookings' refunds in each currency."""
    sums: Counter[str] = Counter()
    for booking in bookings:
        if booking["refund"]:
            amount = booking["refund"]["amount"]
            sums[amount["currency"]] += amount["amount_minor"]
    return [{"amount_minor": minor, "currency": currency} for currency, minor in sums.items()]


def amounts_text(sums: Iterable[Mapping[str, Any]]) -> str:
    """Return amounts in several currencies as text."""
    return ", ".join(map(money, sums)) or "nothing"


def plan(
    session: Session, find_organization: FindOrganization, departure_id: str
) -> tuple[JsonObject, list[JsonObject]]:
    """Return the departure, and its pending and confirmed bookings with the refund that each would get."""
    return session.read(find_organization, lambda tx, actor: _plan(tx, actor, departure_id))


def _plan(tx: "Tx", actor: "Actor", departure_id: str) -> tuple[JsonObject, list[JsonObject]]:
    from booking_core import bookings, payments

    departure = bookings.get_departure(tx, actor, departure_id)
    live = bookings.live_bookings(tx, actor, departure_id)
    amounts = payments.full_refunds(tx, actor.organization.id, [booking["id"] for booking in live])
    refunds = {booking_id: {"state": EXPECTED, "amount": amount} for booking_id, amount in amounts.items()}
    return departure, [booking | {"refund": refunds.get(booking["id"])} for booking in live]


def cancel_all(
    cli: Cli,
    session: Session,
    find_organization: FindOrganization,
    departure_id: str,
    reason_code: str = "admin",
    *,
    expected: int,
) -> list[JsonObject]:
    """Cancel the departure and its bookings, and return the cancelled bookings with their refunds.

    Each batch is a separate transaction.

    Args:
        expected: the number of bookings, for messages.

    Raises:
        CliError: Ctrl-C was pressed, or the database failed after some batches. The same command completes it.
    """
    from booking_core.base.errors import BookingError

    cancelled: list[JsonObject] = []
    total = f"{counted(expected, 'booking')} of the departure {departure_id}"
    hint = f"booking departures cancel {departure_id} completes it; so does a worker"
    try:
        with cli.render.progress("cancelling bookings") as advance:
            remaining = 1
            while remaining:
                batch, remaining = _cancel_batch(session, find_organization, departure_id, reason_code)
                cancelled += batch
                advance(len(cancelled), len(cancelled) + remaining)
                cli.render.detail(f"{counted(len(cancelled), 'booking')} cancelled, {remaining} remaining")
    except KeyboardInterrupt:
        message = f"Interrupted after {len(cancelled)} of {total} were cancelled."
        raise CliError(message, ExitCode.INTERRUPTED, code="interrupted", hint=hint) from None
    except BookingError as error:
        if not cancelled:
            raise
        message = f"Stopped after {len(cancelled)} of {total} were cancelled: {error}"
        raise CliError(message, ExitCode.PARTIAL, code=error.code, hint=hint) from error
    return cancelled


def _cancel_batch(
    session: Session, find_organization: FindOrganization, departure_id: str, reason_code: str
) -> tuple[list[JsonObject], int]:
    from booking_core import bookings, payments
    from booking_core.models.bookings import CancelReason

    reason = CancelReason(reason_code)

    def present(tx: "Tx", actor: "Actor", batch: "CancelledBatch") -> tuple[list[JsonObject], int]:
        cancelled = [json.loads(rendered) for rendered in batch.bookings]
        outcomes = payments.outcomes_of(tx, actor.organization.id, [booking["id"] for booking in cancelled])
        refunds = {booking_id: outcome.to_json() for booking_id, outcome in outcomes.items() if outcome.refund_id}
        return [booking | {"refund": refunds.get(booking["id"])} for booking in cancelled], batch.remaining

    batch: tuple[list[JsonObject], int] = session.change(
        find_organization,
        lambda tx, actor: bookings.cancel_departure_batch(tx, actor, departure_id, reason=reason),
        present=present,
    )
    return batch


def cancel_bookings_of(
    cli: Cli, org: str, departure_ids: Sequence[str], *, cancel_bookings: bool, dry_run: bool
) -> list[JsonObject]:
    """Return the departures with pending or confirmed bookings, their number and refunds.

    Args:
        cancel_bookings: cancel these bookings first, unless it is a dry run.

    Raises:
        CliError: Ctrl-C was pressed, or the database failed after some batches.
    """
    if not departure_ids:
        return []
    with open_session(cli) as session:
        departures = session.read(by_slug(org), lambda tx, actor: _find_with_bookings(tx, actor, departure_ids))
        if not cancel_bookings or dry_run:
            return departures
        return [_cancel_bookings(cli, session, org, departure) for departure in departures]


def _find_with_bookings(tx: "Tx", actor: "Actor", departure_ids: Sequence[str]) -> list[JsonObject]:
    from booking_core import bookings

    counts = bookings.count_live_bookings(tx, actor, departure_ids)
    return [_with_bookings(tx, actor, count.departure_id) for count in counts]


def _with_bookings(tx: "Tx", actor: "Actor", departure_id: str) -> JsonObject:
    departure, live = _plan(tx, actor, departure_id)
    return {
        "id": departure["id"],
        "starts_at": departure["starts_at"],
        "title": departure["experience"]["title"],
        "bookings": len(live),
        "bookings_cancelled": 0,
        "refunds": totals(live),
    }


def _cancel_bookings(cli: Cli, session: Session, org: str, departure: JsonObject) -> JsonObject:
    try:
        cancelled = cancel_all(cli, session, by_slug(org), departure["id"], expected=departure["bookings"])
    except CliError as error:
        message = f"The catalogue was imported. {error}"
        hint = "run the same import again to complete it"
        raise CliError(message, error.exit_code, code=error.code, hint=hint) from None
    return departure | {"bookings_cancelled": len(cancelled), "refunds": totals(cancelled)}


def note_departures(cli: Cli, org: str, departures: Sequence[JsonObject], *, dry_run: bool) -> None:
    """Note the departures with bookings, and the command that cancels these."""
    for departure in departures:
        name = f"{departure['title']}, {start_text(departure)}"
        refunds = f"refunds: {amounts_text(departure['refunds'])}"
        if departure["bookings_cancelled"]:
            count = counted(departure["bookings_cancelled"], "booking")
            cli.render.note(f"note: {count} of {name} cancelled; {refunds}")
            continue
        state = "would be cancelled, and has" if dry_run else "is cancelled, and has"
        cli.render.warn(f"{name} {state} {counted(departure['bookings'], 'booking')}. To cancel them too ({refunds}):")
        cli.render.warn(f"  booking departures cancel {departure['id']} --org {org}")
