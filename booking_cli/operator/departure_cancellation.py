"""Cancel a departure and all of its bookings, in batches."""

import json
from typing import TYPE_CHECKING, Any

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import refund_summaries
from booking_cli.operator.transactions import FindOrganization, Session

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.bookings import CancelledBatch
    from booking_core.db.engine import Tx

Json = dict[str, Any]


def count_text(bookings: int) -> str:
    """Return a number of bookings as text: `1 booking`, `2 bookings`."""
    return f"{bookings} booking{'' if bookings == 1 else 's'}"


def plan(session: Session, find_organization: FindOrganization, departure_id: str) -> tuple[Json, list[Json]]:
    """Return the departure, and its pending and confirmed bookings with the refund that each would get."""

    def query(tx: "Tx", actor: "Actor") -> tuple[Json, list[Json]]:
        from booking_core import bookings

        departure = bookings.get_departure(tx, actor, departure_id)
        live = bookings.live_bookings(tx, actor, departure_id)
        refunds = refund_summaries.full_refunds(tx, actor.organization.id, [each["id"] for each in live])
        return departure, [each | {"refund": refunds.get(each["id"])} for each in live]

    return session.read(find_organization, query)


def cancel_all(
    cli: Cli,
    session: Session,
    find_organization: FindOrganization,
    departure_id: str,
    reason_code: str = "admin",
    *,
    expected: int,
) -> list[Json]:
    """Cancel the departure and its bookings, and return the cancelled bookings with their refunds.

    Each batch is a transaction of its own.

    Args:
        expected: the number of bookings, for messages.

    Raises:
        CliError: Ctrl-C was pressed, or the database failed after some batches. The same command completes it.
    """
    from booking_core.base.errors import BookingError

    cancelled: list[Json] = []
    total = f"{count_text(expected)} of the departure {departure_id}"
    hint = f"booking departures cancel {departure_id} completes it; so does a worker"
    try:
        with cli.render.progress("cancelling bookings") as advance:
            remaining = 1
            while remaining:
                batch, remaining = _cancel_batch(session, find_organization, departure_id, reason_code)
                cancelled += batch
                advance(len(cancelled), len(cancelled) + remaining)
                cli.render.detail(f"{count_text(len(cancelled))} cancelled, {remaining} remaining")
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
) -> tuple[list[Json], int]:
    from booking_core import bookings
    from booking_core.models.bookings import CancelReason

    def change(tx: "Tx", actor: "Actor") -> "CancelledBatch":
        reason = CancelReason(reason_code)
        return bookings.cancel_departure_batch(tx, actor, departure_id, reason=reason)

    def present(tx: "Tx", actor: "Actor", batch: "CancelledBatch") -> tuple[list[Json], int]:
        cancelled = [json.loads(each) for each in batch.bookings]
        refunds = refund_summaries.of_bookings(tx, actor.organization.id, [each["id"] for each in cancelled])
        return [each | {"refund": refunds.get(each["id"])} for each in cancelled], batch.remaining

    batch: tuple[list[Json], int] = session.change(find_organization, change, present=present)
    return batch
