"""Cancel bookings in batches: expired checkouts, cancelled departures, and departures under their minimum.

Each batch is bounded and has its own transaction. No lock is held for long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from booking_core import organizations
from booking_core.base.clock import HOUR
from booking_core.base.context import Actor, Installation
from booking_core.bookings import changes, presenting, store
from booking_core.bookings.cancel import Cancellation, cancel_locked, cancel_rows
from booking_core.bookings.changes import LockedBooking
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.store import BookingWithPayment, due
from booking_core.catalogue import departures
from booking_core.catalogue.departures import DepartureRow
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.due_work.rows import Processed
from booking_core.models.bookings import CancelReason
from booking_core.models.departures import DepartureStatus

BATCH = 50
"""Bookings of one departure that are cancelled in one transaction."""
MINIMUM_GRACE = HOUR
"""A departure that began longer ago than this has taken place: it is no longer cancelled for too few participants."""


def _up_to_second_gift_card(locked: Sequence[LockedBooking]) -> list[LockedBooking]:
    """Return the bookings before the second booking that was paid by gift card.

    A transaction writes a row once, and two bookings may have been paid by the same card.
    """
    first: list[LockedBooking] = []
    by_gift_card = 0
    for booking in locked:
        by_gift_card += booking.row.gift_card_minor > 0
        if by_gift_card > 1:
            break
        first.append(booking)
    return first


EXPIRED, CANCELLING, CLOSED = due.EXPIRED, due.CANCELLING, due.ClosedDepartures(MINIMUM_GRACE)


def abandon(tx: Tx, installation: Installation, organization_id: str, booking_ids: Sequence[str]) -> Processed[None]:
    """Cancel the bookings that are still pending and expired.

    It passes over bookings that are locked, such as by a payment in progress, and over bookings of locked departures.
    """
    details = due.lock_expired(tx, organization_id, booking_ids)
    rows = store.get_many(tx, organization_id, [detail.id for detail in details])
    free = due.try_lock_departures(tx, organization_id, (row.departure_id for row in rows.values()))
    ready = [LockedBooking(rows[detail.id], detail) for detail in details if rows[detail.id].departure_id in free]
    locked = _up_to_second_gift_card(ready)
    if locked:
        actor = organizations.actor_of(tx, installation, organization_id)
        cancel_locked(tx, actor, locked, Cancellation(CancelReason.ABANDONED))
    ids = [booking.row.id for booking in ready]
    return Processed(ids[: len(locked)], ids[len(locked) :])


@dataclass(frozen=True, slots=True)
class CancelledBatch:
    """Bookings of a cancelled departure that one transaction cancelled."""

    bookings: Sequence[bytes]
    """As JSON, in the order of their ids."""
    remaining: int
    """The number of bookings that are still to be cancelled."""


def cancel_departure_batch(
    tx: Tx, actor: Actor, departure_id: str, *, reason: CancelReason = CancelReason.ADMIN
) -> CancelledBatch:
    """Cancel a departure, if it is not cancelled yet, and the next batch of its bookings.

    The caller repeats it, each time in its own transaction, until no booking remains. If the caller stops early, the
    departure keeps the reason of the cancellation, and the worker or the next call continues. The first reason holds
    for all bookings. An import that cancels a departure leaves its bookings as they are, and this cancels them.

    Raises:
        NotFound: the organization has no such departure.
    """
    organization_id = actor.organization.id
    locked, row = _lock_next(tx, actor, departure_id)
    first = store.cancelling_reason(tx, organization_id, departure_id)
    if row.status == DepartureStatus.CANCELLED and not locked and first is None:
        return CancelledBatch([], 0)
    rows, remaining = _cancel_batch(tx, actor, row, locked, CancelReason(first or reason))
    cancelled = (BookingWithPayment(booking_row, 0, None) for booking_row in rows)
    return CancelledBatch(
        [presenting.render(actor.organization, booking, actor.at) for booking in cancelled], remaining
    )


def _lock_next(tx: Tx, actor: Actor, departure_id: str) -> tuple[list[LockedBooking], DepartureRow]:
    """Lock the next bookings to cancel, as many as one transaction may cancel, and then their departure."""
    organization_id = actor.organization.id
    details = store.lock_live(tx, organization_id, departure_id, BATCH)
    rows = store.get_many(tx, organization_id, [detail.id for detail in details])
    locked = _up_to_second_gift_card([LockedBooking(rows[detail.id], detail) for detail in details])
    return locked, departures.lock(tx, actor, departure_id)


def _cancel_batch(
    tx: Tx, actor: Actor, row: DepartureRow, locked: Sequence[LockedBooking], reason: CancelReason
) -> tuple[list[BookingRow], int]:
    """Cancel the departure and some of its bookings, and return these and the number of the remaining ones.

    The departure keeps the reason for the next batch while bookings remain.
    """
    organization_id, seats = actor.organization.id, sum(booking.details.seats for booking in locked)
    remaining = store.count_live(tx, organization_id, row.id) - len(locked)
    rows = cancel_rows(tx, actor, locked, Cancellation(reason, in_full=True))
    tx.update(
        store.CANCEL_DEPARTURE,
        organization_id=organization_id,
        id=row.id,
        status=DepartureStatus.CANCELLED.value,
        cancelling=reason if remaining else None,
        updated_at=changes.instant(actor, *locked),
        seats_taken=-seats,
        announce_at=actor.at,
    )
    return rows, remaining


def cancel_next_batch(
    tx: Tx, installation: Installation, organization_id: str, departure_ids: Sequence[str]
) -> Processed[None]:
    """Cancel the next bookings of the first of these cancelled departures."""
    departure_id = departure_ids[0]
    actor = organizations.actor_of(tx, installation, organization_id)
    locked, row = _lock_next(tx, actor, departure_id)
    reason = store.cancelling_reason(tx, organization_id, departure_id)
    if row.status != DepartureStatus.CANCELLED or reason is None:
        return Processed((), departure_ids[1:])
    _, remaining = _cancel_batch(tx, actor, row, locked, CancelReason(reason))
    return Processed((), departure_ids) if remaining else Processed(departure_ids[:1], departure_ids[1:])


def cancel_under_minimum(
    tx: Tx, installation: Installation, organization_id: str, departure_ids: Sequence[str]
) -> Processed[None]:
    """Cancel the first of these departures if it closed for booking with too few confirmed participants (decision B16).

    With too few participants and a pending booking nothing is decided yet: the departure is due again when no booking
    is pending. Each departure is decided once: a later cancellation by a guest does not cancel it for the others.
    """
    departure_id = departure_ids[0]
    actor = organizations.actor_of(tx, installation, organization_id)
    locked, row = _lock_next(tx, actor, departure_id)
    minimum = due.unchecked_minimum(tx, organization_id, departure_id)
    if row.status == DepartureStatus.CANCELLED or minimum is None:  # by another transaction, since it was found
        return Processed((), departure_ids[1:])
    seats_confirmed, bookings_pending = store.count_participants(tx, organization_id, row.id)
    if seats_confirmed >= minimum:
        tx.update(tables.departures, organization_id=organization_id, id=row.id, minimum_checked_at=actor.at)
    elif not bookings_pending:
        _cancel_batch(tx, actor, row, locked, CancelReason.MIN_PARTICIPANTS)
    return Processed(departure_ids[:1], departure_ids[1:])
