"""Cancelling: one booking, those that nobody paid for, and all of a departure.

However it comes about, a booking gives its seats back once, its gift card once, its refund is owed once, and
`booking.cancelled` is told once (decision B11). Departures and checkouts are worked off in bounded batches, each a
transaction of its own, so that no rush of guests holds a lock for long.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from booking_core import departures, events, gift_cards, outbox, payments, timeline
from booking_core.bookings import service, store
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.service import Live
from booking_core.bookings.store import Locked
from booking_core.clock import HOUR
from booking_core.context import Actor, Installation
from booking_core.db.engine import Tx
from booking_core.departures import DepartureRow
from booking_core.errors import Conflict
from booking_core.events import NewEvent
from booking_core.gift_cards import Redemption
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentSource, PaymentStatus, RefundMode
from booking_core.models.departures import DepartureStatus
from booking_core.models.events import EventType
from booking_core.outbox import OutboxKind
from booking_core.payments import PaymentRow
from booking_core.timeline import TimelineKind

BATCH = 50
"""Bookings of one departure that are cancelled in one transaction."""
MINIMUM_GRACE = HOUR
"""A departure that began longer ago than this has run, however few came: no sweep cancels it any more."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why bookings are cancelled, and what becomes of their money."""

    reason: CancelReason
    note: str | None = None
    """What the caller gave as reason, for staff."""
    refund: RefundMode = RefundMode.AUTO
    in_full: bool = False
    """All that was paid goes back, whatever the policy says: staff decides so, or it is the departure that is
    cancelled, whose guests would have come (decisions/0014)."""


def cancel(
    tx: Tx,
    actor: Actor,
    booking_id: str,
    *,
    reason: CancelReason,
    note: str | None = None,
    refund: RefundMode = RefundMode.AUTO,
    in_full: bool = False,
) -> bytes:
    """The cancelled booking as JSON; one that is cancelled already is given unchanged, and nothing is written.

    Args:
        refund: auto follows the organization's policy for what was paid by card; none keeps the money.
        in_full: give back all that was paid by card instead of what the policy says.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_confirmed`: one that was confirmed is not abandoned.
    """
    live = service.lock(tx, actor, booking_id)
    if live.row.status == BookingStatus.CANCELLED:
        return service.show(actor, live.row)
    if reason is CancelReason.ABANDONED and live.row.status == BookingStatus.CONFIRMED:
        raise Conflict("booking_confirmed", "The booking was confirmed, so nobody abandoned it.")
    (row,) = _cancel_held(tx, actor, [live], Cause(reason, note, refund, in_full))
    return service.show(actor, row)


def _cancel_held(tx: Tx, actor: Actor, lives: Sequence[Live], cause: Cause) -> list[BookingRow]:
    """Cancel locked bookings and give back their seats, after locking their departures."""
    organization_id = actor.organization.id
    departure_ids = dict.fromkeys(live.row.departure_id for live in lives)
    store.lock_departures(tx, [(organization_id, departure_id) for departure_id in departure_ids])
    rows = _cancel(tx, actor, lives, cause)
    _give_seats_back(tx, actor, lives)
    return rows


def _give_seats_back(tx: Tx, actor: Actor, lives: Sequence[Live]) -> None:
    seats: Counter[str] = Counter()
    for live in lives:
        seats[live.row.departure_id] += live.locked.seats
    organization_id, at = actor.organization.id, _instant(actor, lives)
    for departure_id, count in seats.items():
        change = {"organization_id": organization_id, "id": departure_id, "updated_at": at, "seats_taken": -count}
        tx.update(store.TAKE_SEATS, **change)


def _instant(actor: Actor, lives: Sequence[Live]) -> int:
    """A clock that steps back must not take updated_at with it."""
    return max(actor.at, *(live.row.updated_at for live in lives)) if lives else actor.at


def _cancel(tx: Tx, actor: Actor, lives: Sequence[Live], cause: Cause) -> list[BookingRow]:
    """Cancel locked bookings whose departures are locked too. Their seats are given back by the caller.

    Everything is locked and read before the first row is collected, so that one statement writes all of it.
    """
    at = _instant(actor, lives)
    money = [_lock_money(tx, actor, live, cause) for live in lives]
    rows = [_cancel_one(tx, actor, live, each, cause, at) for live, each in zip(lives, money, strict=True)]
    told = [
        NewEvent(EventType.BOOKING_CANCELLED, row.id, service.render(actor.organization, row), {"reason": cause.reason})
        for row in rows
    ]
    if told:
        events.publish(tx, actor.organization, told, at=at)
    return rows


@dataclass(frozen=True, slots=True)
class _Money:
    """The locked gift card and payment of a booking, each none when nothing of it is given back."""

    redemption: Redemption | None
    payment: PaymentRow | None


def _lock_money(tx: Tx, actor: Actor, live: Live, cause: Cause) -> _Money:
    row = live.row
    redemption = gift_cards.lock_redemption(tx, actor, row.id) if row.gift_card_minor else None
    is_owed = cause.refund is RefundMode.AUTO and (_is_paid_by_card(live) or live.locked.recorded_minor)
    return _Money(redemption, payments.lock(tx, actor, row.id) if is_owed else None)


def _is_paid_by_card(live: Live) -> bool:
    return live.row.payment_source == PaymentSource.STRIPE and live.row.payment_status == PaymentStatus.PAID


def _cancel_one(tx: Tx, actor: Actor, live: Live, money: _Money, cause: Cause, at: int) -> BookingRow:
    """Cancel one booking and settle its money. Its event and its seats are written by the caller."""
    row = live.row
    if money.redemption:
        gift_cards.restore(tx, actor, money.redemption, customer_id=live.locked.customer_id)
    row = row._replace(
        status=BookingStatus.CANCELLED, payment_status=_settle(tx, actor, live, money.payment, cause, at), updated_at=at
    )
    tx.update(
        store.CANCEL,
        organization_id=actor.organization.id,
        id=row.id,
        status=row.status,
        payment_status=row.payment_status,
        cancelled_at=at,
        cancel_reason=cause.reason,
        cancel_note=cause.note or None,
        expires_at=None,
        updated_at=at,
    )
    _enqueue_mails(tx, actor, live, cause, at)
    return row


def _settle(tx: Tx, actor: Actor, live: Live, payment: PaymentRow | None, cause: Cause, at: int) -> str:
    """The payment's status from now on: what was never paid by card has failed; what was is owed back, and stays paid
    until the gateway has answered. What staff took by hand is owed by hand; money that somebody else holds is nobody's
    business here."""
    row = live.row
    if row.payment_source == PaymentSource.STRIPE and row.payment_status == PaymentStatus.PENDING:
        payments.drop(tx, actor.organization.id, booking_id=row.id, at=at)
        return PaymentStatus.FAILED
    if payment is not None:
        owe = payments.request_refund if _is_paid_by_card(live) else payments.request_manual_refund
        owe(
            tx,
            actor,
            payment,
            booking_id=row.id,
            starts_at=row.starts_at,
            customer_id=live.locked.customer_id,
            in_full=cause.in_full,
        )
    return row.payment_status


def _enqueue_mails(tx: Tx, actor: Actor, live: Live, cause: Cause, at: int) -> None:
    """The mails and the timeline entry. Who walked away from a checkout is not written to, and staff neither."""
    organization, row = actor.organization, live.row
    if cause.reason is not CancelReason.ABANDONED:
        outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CANCELLATION_MAIL, row.id, at=at)
        if organization.notify_staff:  # whatever the booking says: that is about its creation alone (decision B17)
            outbox.enqueue(tx, organization.id, OutboxKind.STAFF_CANCELLATION_MAIL, row.id, at=at)
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_CANCELLED,
        at=at,
        customer_id=live.locked.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        reason=cause.reason,
        # The booking does not say whether staff kept the money, or returned all of it.
        refund="full" if cause.in_full and cause.refund is RefundMode.AUTO else cause.refund,
    )


# Batches ---------------------------------------------------------------------------------------------------------


def _read(tx: Tx, organization_id: str, held: Sequence[Locked]) -> list[Live]:
    """Bookings that are held, as they are shown; cut before the second one that a gift card paid for.

    What goes back to one card twice would be two changes of one row, and a transaction writes a row once.
    """
    found = store.get_many(tx, organization_id, [each.id for each in held])
    lives: list[Live] = []
    by_gift_card = 0
    for each in held:
        by_gift_card += found[each.id].gift_card_minor > 0
        if by_gift_card > 1:
            break
        lives.append(Live(found[each.id], each))
    return lives


def abandon_due(tx: Tx, installation: Installation, *, limit: int = BATCH) -> int:
    """Cancels pending bookings whose time to pay is over, of one organization, and gives how many; 0 when none is
    due."""
    organization = store.next_abandoned(tx)
    if organization is None:
        return 0
    actor = Actor(installation=installation, organization=organization, at=tx.now())
    lives = _read(tx, organization.id, store.lock_abandoned(tx, organization.id, limit))
    if lives:
        _cancel_held(tx, actor, lives, Cause(CancelReason.ABANDONED))
    return len(lives)


def cancel_departure(tx: Tx, actor: Actor, departure_id: str, *, reason: CancelReason = CancelReason.ADMIN) -> bytes:
    """The departure as JSON, cancelled: nothing of it can be booked any more, and the bookings it has are cancelled.

    The first of them here, the others in batches by `cancel_on`. One that is cancelled already is given unchanged,
    unless a catalogue cancelled it, which leaves its bookings alone: they are cancelled now.

    Raises:
        NotFound: the organization has no such departure.
    """
    organization_id = actor.organization.id
    lives = _read(tx, organization_id, store.lock_live(tx, organization_id, departure_id, BATCH))
    row = departures.lock(tx, actor, departure_id)
    is_cancelled = row.status == DepartureStatus.CANCELLED
    if is_cancelled and (not lives or store.cancelling_reason(tx, organization_id, departure_id)):
        return departures.render(actor, row)
    _cancel_batch(tx, actor, row, lives, reason)
    seats = sum(live.locked.seats for live in lives)
    cancelled = row._replace(status=DepartureStatus.CANCELLED.value, seats_taken=row.seats_taken - seats)
    return departures.render(actor, cancelled)


@dataclass(frozen=True, slots=True)
class CancelledBatch:
    """Bookings of a cancelled departure that one transaction cancelled."""

    bookings: Sequence[bytes]
    """As JSON, by their ids."""
    remaining: int
    """So many are still to be cancelled."""


def cancel_departure_batch(
    tx: Tx, actor: Actor, departure_id: str, *, reason: CancelReason = CancelReason.ADMIN
) -> CancelledBatch:
    """Cancel the departure, if it is not yet, and the next of its bookings.

    Called until none remains, each time in a transaction of its own, it cancels them all. Whoever stops in between
    leaves a cancelled departure that says why: the worker goes on with it, and so does whoever calls again. The reason
    that was given first holds for all of them.

    Raises:
        NotFound: the organization has no such departure.
    """
    organization_id = actor.organization.id
    lives = _read(tx, organization_id, store.lock_live(tx, organization_id, departure_id, BATCH))
    row = departures.lock(tx, actor, departure_id)
    first = store.cancelling_reason(tx, organization_id, departure_id)
    if row.status == DepartureStatus.CANCELLED and not lives and first is None:
        return CancelledBatch([], 0)
    rows, remaining = _cancel_batch(tx, actor, row, lives, CancelReason(first or reason))
    return CancelledBatch([service.render(actor.organization, each) for each in rows], remaining)


def _cancel_batch(
    tx: Tx, actor: Actor, row: DepartureRow, lives: Sequence[Live], reason: CancelReason
) -> tuple[list[BookingRow], int]:
    """Cancel the departure with these of its bookings, and return them and how many it still has: while it has some
    the reason is kept for the next batch."""
    organization_id, seats = actor.organization.id, sum(live.locked.seats for live in lives)
    remaining = store.count_live(tx, organization_id, row.id) - len(lives)
    rows = _cancel(tx, actor, lives, Cause(reason, in_full=True))
    tx.update(
        store.CANCEL_DEPARTURE,
        organization_id=organization_id,
        id=row.id,
        status=DepartureStatus.CANCELLED.value,
        cancelling=reason if remaining else None,
        updated_at=_instant(actor, lives),
        seats_taken=-seats,
    )
    return rows, remaining


def cancel_on(tx: Tx, installation: Installation) -> int:
    """Cancels the next bookings of a cancelled departure that still has some, and gives 1; 0 when there is none."""
    found = store.next_cancelling(tx)
    if found is None:
        return 0
    actor = Actor(installation=installation, organization=found.organization, at=tx.now())
    organization_id = found.organization.id
    lives = _read(tx, organization_id, store.lock_live(tx, organization_id, found.departure_id, BATCH))
    row = departures.lock(tx, actor, found.departure_id)
    if row.status == DepartureStatus.CANCELLED:
        _cancel_batch(tx, actor, row, lives, CancelReason(found.reason))
    return 1


def cancel_under_minimum(tx: Tx, installation: Installation) -> int:
    """Count the confirmed participants of one departure whose booking has closed, and cancel the departure when they
    are too few, for an organization that has that on (decision B16). Return 1; 0 when there is none to count.

    While a booking is pending and too few are confirmed nothing is decided: the departure is found again when none is
    pending. It is decided once: a later cancellation does not cancel it for the others.
    """
    found = store.next_closed(tx, grace=MINIMUM_GRACE)
    if found is None:
        return 0
    actor = Actor(installation=installation, organization=found.organization, at=tx.now())
    organization_id = found.organization.id
    lives = _read(tx, organization_id, store.lock_live(tx, organization_id, found.departure_id, BATCH))
    row = departures.lock(tx, actor, found.departure_id)
    if row.status != DepartureStatus.CANCELLED:  # meanwhile, by somebody else
        counted = store.count_participants(tx, organization_id, row.id)
        if counted.seats_confirmed >= found.min_participants:
            key = {"organization_id": organization_id, "id": row.id}
            tx.update(store.CHECK_MINIMUM, **key, minimum_checked_at=actor.at)
        elif not counted.bookings_pending:
            _cancel_batch(tx, actor, row, lives, CancelReason.MIN_PARTICIPANTS)
    return 1
