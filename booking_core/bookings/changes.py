"""Changes of a booking: lock, check, write, note in the timeline, publish, and preview.

A preview and the change itself decide by the same refusals, and present their result in the same shape. The preview
locks nothing and lists every refusal; the change raises the first.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, InsufficientCapacity, NotFound
from booking_core.bookings import presenting, rules, store
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.store import BookingDetails, BookingWithPayment
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.bookings import ChangeSettlement
from booking_core.models.events import EventType
from booking_core.models.money import money_json
from booking_core.payments import PaymentRow
from booking_core.records import events, timeline
from booking_core.records.events import NewEvent
from booking_core.records.timeline import TimelineKind


@dataclass(frozen=True, slots=True)
class LockedBooking:
    """A booking that is about to change: locked until the transaction ends, except for a preview."""

    row: BookingRow
    details: BookingDetails
    payment: PaymentRow | None = None
    """The payment that a cancellation would refund; None where there is none, or where it was not read."""

    @property
    def unpaid_minor(self) -> int:
        return rules.unpaid_minor(self.row, self.details.recorded_minor)

    @property
    def as_read(self) -> BookingWithPayment:
        """Return the booking as it is read, without a change."""
        return self.with_row(self.row)

    def with_row(self, row: BookingRow) -> BookingWithPayment:
        """Return the booking with a changed row, as it is read after a change that leaves its payment."""
        return BookingWithPayment(row, self.details.recorded_minor, self.payment)


def lock(tx: Tx, actor: Actor, booking_id: str) -> LockedBooking:
    """Lock a booking until the transaction ends, and return it.

    Raises:
        NotFound: the organization has no such booking.
    """
    return read(tx, actor, booking_id, is_locked=True)


def lock_for_changes(tx: Tx, actor: Actor, booking_id: str, departure_ids: Collection[str]) -> None:
    """Lock a booking and the departures that several changes of it need, before the first of them.

    Raises:
        NotFound: the organization has no such booking.
    """
    lock(tx, actor, booking_id)
    store.lock_departures(tx, [(actor.organization.id, departure_id) for departure_id in departure_ids])


def read(tx: Tx, actor: Actor, booking_id: str, *, is_locked: bool = False) -> LockedBooking:
    """Return a booking as `lock` does, without a lock, for a preview of its change.

    Raises:
        NotFound: the organization has no such booking.
    """
    details = store.get_details(tx, actor.organization.id, booking_id, lock=is_locked)
    # Read after the lock: the row has the changes of the previous holder.
    booking = store.get_with_payment(tx, actor.organization.id, booking_id) if details else None
    if details is None or booking is None:
        raise NotFound.of("booking")
    return LockedBooking(booking.row, details, booking.payment)


def reread(tx: Tx, actor: Actor, booking_id: str) -> BookingWithPayment:
    """Return a booking with the changes of this transaction, also the changes of its payment."""
    booking = store.get_with_payment(tx, actor.organization.id, booking_id)
    assert booking is not None
    return booking


def instant(actor: Actor, *locked: LockedBooking) -> int:
    """Return the instant of a change, never before an earlier change: the clock may have stepped back."""
    return max(actor.at, *(booking.row.updated_at for booking in locked)) if locked else actor.at


def write(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow, **others: object) -> None:
    """Collect an update of a booking: the columns that its changed row has another value for, and `others`, which are
    not shown."""
    values = {name: getattr(row, name) for name in store.COLUMNS}
    changed = {name: value for name, value in values.items() if value != getattr(booking.row, name)}
    tx.update(tables.bookings, organization_id=actor.organization.id, id=row.id, **changed, **others)


def note(tx: Tx, actor: Actor, booking: LockedBooking, kind: TimelineKind, *, at: int, **data: object) -> None:
    """Insert an entry in the timeline of a booking and its customer."""
    timeline.note(
        tx,
        actor.organization.id,
        kind,
        at=at,
        customer_id=booking.details.customer_id,
        booking_id=booking.row.id,
        booking_number=booking.row.booking_number,
        **data,
    )


def publish(
    tx: Tx, actor: Actor, before: BookingWithPayment, after: BookingWithPayment, also: Sequence[NewEvent] = ()
) -> None:
    """Publish `booking.updated` with the former values, if a field that the API shows is different.

    It takes the last lock of the transaction, as `events.publish` does.

    Args:
        also: events of the same transaction, which come after it.
    """
    at = after.row.updated_at
    former, current = (presenting.render(actor.organization, booking, at) for booking in (before, after))
    updated = events.updated(EventType.BOOKING_UPDATED, after.row.id, before=former, after=current)
    new_events = [*([updated] if updated.extra["changes"] else []), *also]
    if new_events:
        events.publish(tx, actor.organization, new_events, at=at)


# Previews ------------------------------------------------------------------------------------------------------------


class ChangedMoney(NamedTuple):
    """The effect of a change on the money of a booking, in minor units of its currency."""

    settlement: ChangeSettlement
    price_difference: int = 0
    """The new price less the former one, after the discount."""
    list_price: int | None = None
    """The price of the same lines by today's prices; None where one of them is not offered any more."""
    refund: int = 0
    gift_card_refund: int = 0
    kept: int = 0
    balance_due: int = 0


class Change(NamedTuple):
    """A booking after a change, or before a change that is refused."""

    booking: BookingWithPayment
    seats: int
    money: ChangedMoney | None
    refusals: Sequence[BookingError] = ()


def render(actor: Actor, change: Change) -> bytes:
    """Render a change as JSON, with the guest's link in the booking when the actor may see it."""
    money = None
    if change.money is not None:
        currency, amounts = change.booking.row.currency, change.money._asdict()
        money = {"settlement": amounts.pop("settlement")}
        money |= {name: None if amount is None else money_json(amount, currency) for name, amount in amounts.items()}
    presented = {
        "allowed": not change.refusals,
        "refusals": present_refusals(change.refusals),
        "booking": orjson.Fragment(presenting.render_for(actor, change.booking)),
        "seats": change.seats,
        "money": money,
    }
    return orjson.dumps(presented)


def present_refusals(refusals: Iterable[BookingError]) -> list[dict[str, Any]]:
    """Present each refusal once, though several checks may have it."""
    results: list[dict[str, Any]] = []
    for error in refusals:
        detail = error.details[0] if error.details else None
        presented = {
            "code": error.code,
            "reason": detail.reason if detail else None,
            "field": detail.field if detail else None,
            "message": str(error),
            "seats_available": error.seats_available if isinstance(error, InsufficientCapacity) else None,
        }
        if presented not in results:
            results.append(presented)
    return results
