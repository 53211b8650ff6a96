"""Payments at Stripe that wait for staff: listed, and resolved."""

from typing import Any

from booking_core import bookings
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, Malformed, NotFound
from booking_core.bookings.checkouts import store
from booking_core.bookings.checkouts.rules import IntentRow, IntentStatus
from booking_core.db.engine import Tx
from booking_core.models.base import multi_line
from booking_core.records import timeline
from booking_core.records.timeline import TimelineKind

NOTE_LENGTH_MAX = 500


def find_intents(tx: Tx, actor: Actor, *, state: str | None = None, limit: int) -> list[dict[str, Any]]:
    """Return payments at Stripe, the last changed first.

    Args:
        state: `needs_review`, `disputed`, or `waiting` for both; by default all.
    """
    return [present(actor, *each) for each in store.find(tx, actor.organization.id, state, limit)]


def present(actor: Actor, row: IntentRow, booking: Any) -> dict[str, Any]:
    """Return a payment at Stripe as JSON-ready values for staff."""
    number, status, payment_status = booking
    dispute = None
    if row.dispute_id is not None:
        dispute = {
            "id": row.dispute_id,
            "status": row.dispute_status,
            "reason": row.dispute_reason,
            "amount": _money(row.disputed_minor, row.currency),
            "is_closed": row.dispute_closed_at is not None,
        }
    return {
        "booking_id": row.booking_id,
        "booking_number": number,
        "booking_status": status,
        "payment_status": payment_status,
        "payment_intent": row.intent_id,
        "status": row.status,
        "reason": row.last_error,
        "amount": _money(row.amount_minor, row.currency),
        "refunded_elsewhere": _money(row.returned_minor, row.currency),
        "dispute": dispute,
        "updated_at": actor.organization.zone.iso(row.updated_at),
    }


def _money(amount_minor: int | None, currency: str) -> dict[str, Any]:
    return {"amount_minor": amount_minor or 0, "currency": currency}


def resolve(tx: Tx, actor: Actor, booking_id: str, *, note: str) -> dict[str, Any]:
    """Close the review of a payment: staff has refunded it at Stripe, or decided otherwise, and says how.

    Raises:
        NotFound: the organization has no such booking, or it has no payment at Stripe.
        Conflict: `not_in_review`.
        Malformed: there is no note, or it is too long or not printable.
    """
    note = _checked(note)
    booking = bookings.lock(tx, actor, booking_id)
    row = store.lock(tx, actor.organization.id, booking_id)
    if row is None:
        raise NotFound("The booking has no payment at Stripe.")
    if row.status != IntentStatus.NEEDS_REVIEW:
        raise Conflict("not_in_review", "The payment waits for no review.")
    changed = row._replace(status=IntentStatus.RESOLVED, updated_at=actor.at)
    store.change(tx, actor.organization.id, changed)
    timeline.note(
        tx,
        actor.organization.id,
        TimelineKind.PAYMENT_REVIEWED,
        at=actor.at,
        customer_id=booking.details.customer_id,
        booking_id=booking_id,
        reason=row.last_error,
        note=note,
    )
    found = booking.row
    return present(actor, changed, (found.booking_number, found.status, found.payment_status))


def _checked(note: str) -> str:
    note = note.strip()
    try:
        multi_line(note)
    except ValueError as error:
        raise Malformed.at("note", str(error), "format") from None
    if not 0 < len(note) <= NOTE_LENGTH_MAX:
        raise Malformed.at("note", f"must have 1 to {NOTE_LENGTH_MAX} characters", "length")
    return note
