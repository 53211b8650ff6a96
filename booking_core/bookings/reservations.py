"""Reservations: the orders of resellers, held under their own names until they are booked (decisions/0040).

A reservation names a hold, and later the booking that took it over. Holds and bookings decide about seats, prices and
refusals. The row adds the words of the reseller, since neither has a place for them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import and_, literal_column, null, select, union_all

from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, IdempotencyInProgress, IdempotencyKeyReused
from booking_core.bookings import storefront
from booking_core.bookings.storefront import CheckoutRequest
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, ROW_ID, Statement, as_ids, columns_of, in_rows
from booking_core.db.tables import bookings, reservations
from booking_core.due_work.rows import DueRows
from booking_core.models.holds import HoldCreate
from booking_core.models.json import JsonObject
from booking_core.records import idempotency


class Reservation(NamedTuple):
    """The columns of a reservation, in the order of every query."""

    id: str
    hold_id: str
    booking_id: str | None
    fingerprint: str
    details: str | None
    """A JSON object; None after an erasure."""
    cancelled_at: int | None
    created_at: int
    updated_at: int

    @property
    def words(self) -> JsonObject:
        """Return the details."""
        details: JsonObject = orjson.loads(self.details or "{}")
        return details


class Instants(NamedTuple):
    """The instants of a booking that it does not show, and the reason of its cancellation."""

    confirmed_at: int | None
    cancelled_at: int | None
    cancel_note: str | None


def claim(tx: Tx, actor: Actor, reservation_id: str, fingerprint: str) -> Reservation | None:
    """Lock the id of a new reservation until the transaction ends, or return the reservation that the order has.

    Raises:
        IdempotencyInProgress: a request with this id is still running.
        IdempotencyKeyReused: another order, or a booking of another channel, has this id.
    """
    organization_id = actor.organization.id
    if not all(idempotency.try_locks(tx, [(organization_id, f"reservation:{reservation_id}")])):
        raise IdempotencyInProgress
    reservation = tx.first_as(
        Reservation._make, _RESERVATION_OR_BOOKING, organization_id=organization_id, id=reservation_id
    )
    if reservation is not None and reservation.fingerprint != fingerprint:
        raise IdempotencyKeyReused
    return reservation


def reserve(
    tx: Tx, actor: Actor, reservation_id: str, fingerprint: str, request: HoldCreate, details: Mapping[str, Any]
) -> tuple[Reservation, JsonObject]:
    """Hold the seats of an order under its claimed id, and return the reservation and the hold.

    Raises:
        BookingError: as `storefront.create_hold`.
    """
    hold = storefront.create_hold(tx, actor, request)
    words = orjson.dumps(details).decode()
    at = actor.at
    reservation = Reservation(reservation_id, hold["id"], None, fingerprint, words, None, at, at)
    tx.insert(reservations, organization_id=actor.organization.id, **reservation._asdict())
    return reservation, hold


def find(tx: Tx, actor: Actor, reservation_id: str) -> Reservation | None:
    """Return a reservation."""
    return tx.first_as(Reservation._make, _FIND, organization_id=actor.organization.id, id=reservation_id)


def lock(tx: Tx, actor: Actor, reservation_id: str) -> Reservation | None:
    """Lock a reservation until the transaction ends, before its hold and its booking."""
    return tx.first_as(Reservation._make, _LOCK, organization_id=actor.organization.id, id=reservation_id)


def change_words(tx: Tx, actor: Actor, reservation: Reservation, details: Mapping[str, Any]) -> Reservation:
    """Write other details of a locked reservation, and return it."""
    is_same = orjson.dumps(details).decode() == reservation.details
    return reservation if is_same else _save(tx, actor, reservation, details)


def book(
    tx: Tx, actor: Actor, reservation: Reservation, checkout: CheckoutRequest, details: Mapping[str, Any]
) -> Reservation:
    """Book a locked reservation, whose hold ends, and return it. A booked reservation stays as it is.

    Raises:
        Conflict: `hold_expired`, or what `storefront.check_out` refuses.
        BookingError: as `storefront.check_out`.
    """
    if reservation.booking_id is not None:
        return reservation
    storefront.require_live_hold(tx, actor, reservation.hold_id)
    booking = orjson.loads(storefront.check_out(tx, actor, checkout))
    return _save(tx, actor, reservation, details, booking_id=booking["id"])


def release(tx: Tx, actor: Actor, reservation: Reservation, details: Mapping[str, Any]) -> Reservation:
    """Release the seats of a locked reservation that is not booked, and return it.

    Raises:
        Conflict: `hold_booked`.
    """
    if reservation.booking_id is not None:
        raise Conflict("hold_booked", "A booking has taken over the hold.")
    if reservation.cancelled_at is not None:
        return reservation
    storefront.delete_hold(tx, actor, reservation.hold_id)
    return _save(tx, actor, reservation, details, cancelled_at=actor.at)


def of_bookings(tx: Tx, actor: Actor, booking_ids: Collection[str]) -> dict[str, tuple[Instants, Reservation | None]]:
    """Return the instants of bookings, and their reservations, by the ids of the bookings."""
    rows = tx.all(_OF_BOOKINGS, organization_id=actor.organization.id, wanted=as_ids(booking_ids))
    return {row[0]: (Instants._make(row[1:4]), _joined(row[4:])) for row in rows}


def _joined(columns: Sequence[Any]) -> Reservation | None:
    return None if columns[0] is None else Reservation._make(columns)


def _save(tx: Tx, actor: Actor, reservation: Reservation, details: Mapping[str, Any], **changed: Any) -> Reservation:
    changed |= {"details": orjson.dumps(details).decode(), "updated_at": max(actor.at, reservation.updated_at)}
    tx.update(reservations, organization_id=actor.organization.id, id=reservation.id, **changed)
    return reservation._replace(**changed)


# Statements ----------------------------------------------------------------------------------------------------------

_COLUMNS = columns_of(Reservation._fields, reservations)
_ONE = select(*_COLUMNS).where(reservations.c.organization_id == OWNER, reservations.c.id == ROW_ID)
_FIND = Statement(_ONE)
_NO_ORDER = {"hold_id": bookings.c.id, "booking_id": bookings.c.id, "fingerprint": literal_column("''")}
_BOOKING = select(
    *(_NO_ORDER.get(name, bookings.c[name] if name in bookings.c else null()) for name in Reservation._fields)
)
_IS_BOOKING = and_(bookings.c.organization_id == OWNER, bookings.c.id == ROW_ID)
_RESERVATION_OR_BOOKING = Statement(union_all(_ONE, _BOOKING.where(_IS_BOOKING)))
"""The reservation with an id, or as one the booking that has it."""
_LOCK = Statement(_ONE.with_for_update(key_share=True))


_OF_BOOKINGS = Statement(
    select(bookings.c.id, *columns_of(Instants._fields, bookings), *_COLUMNS)
    .join_from(bookings, reservations, isouter=True)
    .where(bookings.c.organization_id == OWNER, in_rows(bookings.c.id, "wanted", "id"))
)

# Not booked ----------------------------------------------------------------------------------------------------------

UNBOOKED = DueRows(reservations, reservations.c.created_at, reservations.c.id, (reservations.c.booking_id.is_(None),))
"""The reservations that were not booked, due at their creation: a purge deletes earlier ones."""
