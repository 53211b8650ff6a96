"""The storefront: seats held during a checkout, and the checkout itself. Ids are canonical UUIDs in lower case.

The API and the command line hold seats by the same rules. Holds of the API are shorter, and their number is bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import bindparam

from booking_core import bookings, organizations
from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict, Malformed, NotFound
from booking_core.bookings import BookingRequest, capacity, rules, store
from booking_core.bookings.pricing import Charge
from booking_core.catalogue import holds
from booking_core.catalogue.holds import HoldRow
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, purge_before
from booking_core.due_work.rows import DueRows
from booking_core.models import limits
from booking_core.models.bookings import BookingSource, GuestLineInput, PaymentMethod
from booking_core.models.holds import HoldCreate
from booking_core.models.limits import HOLD_S_DEFAULT, LIVE_HOLDS_PER_ORGANIZATION
from booking_core.records import departure_touches

HOLD_S_MAX = 86_400
"""A day: a longer hold would block seats for other guests."""

# Holds of staff ------------------------------------------------------------------------------------------------------


def hold(tx: Tx, actor: Actor, request: HoldCreate, *, for_s: int) -> dict[str, Any]:
    """Hold seats of a departure, or the seats of a party, for `for_s` seconds, and return the hold.

    Raises:
        Malformed: the duration is out of range.
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
        Unprocessable: a tier of the party is not offered, or its sum exceeds 64 bits.
        InsufficientCapacity: there are fewer seats.
    """
    _check(for_s)
    hold = _insert(tx, actor, request.departure_id, for_s, *_lock_seats(tx, actor, request))
    return holds.present(hold, actor.organization.zone, actor.at)


def _check(for_s: int) -> None:
    if not 1 <= for_s <= HOLD_S_MAX:
        raise Malformed.at("for", f"must be from a second to {HOLD_S_MAX // 3600} hours", "out_of_range")


def release(tx: Tx, actor: Actor, hold_id: str) -> dict[str, Any]:
    """Release the seats of a hold and return it; a hold that has ended is returned unchanged.

    Raises:
        NotFound: the organization has no such hold.
    """
    hold = _found(holds.lock(tx, actor.organization.id, hold_id))
    _end(tx, actor, hold)
    return get_hold(tx, actor, hold_id)


def organization_of_hold(tx: Tx, hold_id: str) -> Organization:
    """Return the organization of a hold, for commands that take only its id.

    Raises:
        NotFound: there is no such hold.
    """
    return organizations.owner(tx, tables.holds, hold_id, "hold")


# Holds of the API ----------------------------------------------------------------------------------------------------


def create_hold(tx: Tx, actor: Actor, request: HoldCreate) -> dict[str, Any]:
    """Hold seats of a departure, or the seats of a party, and return the hold in the shape of the API.

    Requests that run at the same moment do not wait for each other, and together may exceed the bound by their number.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed`, `departure_started` or `hold_limit_reached`.
        Unprocessable: a tier of the party is not offered, or its sum exceeds 64 bits.
        InsufficientCapacity: fewer seats are available.
    """
    locked = _lock_seats(tx, actor, request)
    if holds.count_live(tx, actor.organization.id, actor.at) >= LIVE_HOLDS_PER_ORGANIZATION:
        message = f"The organization has {LIVE_HOLDS_PER_ORGANIZATION} live holds, which is the limit."
        raise Conflict("hold_limit_reached", message)
    hold = _insert(tx, actor, request.departure_id, request.expires_in_seconds or HOLD_S_DEFAULT, *locked)
    return holds.present(hold, actor.organization.zone, actor.at)


def get_hold(tx: Tx, actor: Actor, hold_id: str) -> dict[str, Any]:
    """Return a hold in the shape of the API.

    Raises:
        NotFound: the organization has no such hold.
    """
    return holds.present(_found(holds.find(tx, actor.organization.id, hold_id)), actor.organization.zone, actor.at)


def require_live_hold(tx: Tx, actor: Actor, hold_id: str) -> None:
    """Lock a hold, and refuse it if it has ended.

    Raises:
        NotFound: the organization has no such hold.
        Conflict: `hold_booked`, `hold_released` or `hold_expired`.
    """
    holds.require_live(_found(holds.lock(tx, actor.organization.id, hold_id)), actor.at)


def extend_hold(tx: Tx, actor: Actor, hold_id: str, *, for_s: int | None = None) -> dict[str, Any]:
    """Let a hold end later, and return it in the shape of the API.

    It lasts half an hour in all at most, and never ends earlier than before. The departure is locked as for a booking:
    a hold that has just expired must not keep seats that were sold since.

    Args:
        for_s: the duration from now on, in seconds; None: the default.

    Raises:
        NotFound: the organization has no such hold.
        Conflict: `hold_booked`, `hold_released`, `hold_expired`, `departure_cancelled`, `departure_closed` or
            `departure_started`.
    """
    hold = _found(holds.lock(tx, actor.organization.id, hold_id))
    holds.require_live(hold, actor.at)
    _, context = capacity.lock_bookable(tx, actor, hold.departure_id)
    holds.require_live(hold, context.at)
    ends = context.at + (for_s or HOLD_S_DEFAULT) * SECOND, hold.created_at + limits.HOLD_S_MAX * SECOND
    expires_at = max(hold.expires_at, min(ends))
    if expires_at != hold.expires_at:
        hold = holds.change(tx, actor.organization.id, hold, expires_at=expires_at)
    return holds.present(hold, actor.organization.zone, context.at)


def change_hold(
    tx: Tx, actor: Actor, hold_id: str, departure_id: str, guests: Sequence[GuestLineInput]
) -> dict[str, Any]:
    """Hold the seats of another party, or of another departure, until the same instant, and return the hold.

    It keeps its seats if the others are refused. Both departures are locked at once, in the order of all transactions.

    Raises:
        NotFound: the organization has no such hold, or no such departure.
        Conflict: `hold_booked`, `hold_released`, `hold_expired`, `departure_cancelled`, `departure_closed` or
            `departure_started`.
        Unprocessable: a tier is not offered, or the sum exceeds 64 bits.
        InsufficientCapacity: fewer seats are available.
    """
    organization = actor.organization
    hold = _found(holds.lock(tx, organization.id, hold_id))
    holds.require_live(hold, actor.at)
    departure_ids = sorted({hold.departure_id, departure_id})
    store.lock_departures(tx, [(organization.id, row_id) for row_id in departure_ids])
    party = capacity.lock_party(tx, actor, departure_id, guests, hold_id=hold_id)
    holds.require_live(hold, tx.now())
    of_party = {"departure_id": departure_id, "seats": party.seats, "guests": party.guests}
    changed = holds.change(tx, organization.id, hold, **of_party)
    departure_touches.touch(tx, organization.id, departure_ids, at=actor.at)
    return holds.present(changed, organization.zone, actor.at)


def delete_hold(tx: Tx, actor: Actor, hold_id: str) -> None:
    """Release the seats of a hold. A released or expired hold stays as it is.

    Raises:
        NotFound: the organization has no such hold.
        Conflict: `hold_booked`.
    """
    hold = _found(holds.lock(tx, actor.organization.id, hold_id))
    if hold.booking_id is not None:
        raise Conflict("hold_booked", "A booking has taken over the hold.")
    _end(tx, actor, hold)


def _lock_seats(tx: Tx, actor: Actor, request: HoldCreate) -> tuple[int, str | None]:
    """Lock the departure, and return the number of seats and the party as JSON, if there is one."""
    if request.guests is not None:
        party = capacity.lock_party(tx, actor, request.departure_id, request.guests)
        return party.seats, party.guests
    assert request.seats is not None
    departure, context = capacity.lock_bookable(tx, actor, request.departure_id)
    rules.require(capacity.refusals_of_seats(departure, request.seats, seats_held=context.seats_held))
    return request.seats, None


def _insert(tx: Tx, actor: Actor, departure_id: str, for_s: int, seats: int, guests: str | None) -> HoldRow:
    hold = HoldRow(tokens.new_id(), departure_id, seats, actor.at, actor.at + for_s * SECOND, None, None, guests)
    tx.insert(tables.holds, organization_id=actor.organization.id, **hold._asdict())
    departure_touches.touch(tx, actor.organization.id, [departure_id], at=actor.at)
    return hold


def _end(tx: Tx, actor: Actor, hold: HoldRow) -> None:
    if hold.ended_at is None:
        departure_touches.lock(tx, actor.organization.id, hold.departure_id)
        tx.update(tables.holds, organization_id=actor.organization.id, id=hold.id, ended_at=actor.at)
        departure_touches.touch(tx, actor.organization.id, [hold.departure_id], at=actor.at)


def _found(hold: HoldRow | None) -> HoldRow:
    if hold is None:
        raise NotFound.of("hold")
    return hold


# Statements ----------------------------------------------------------------------------------------------------------

OLD_HOLDS = DueRows(tables.holds, tables.holds.c.created_at, tables.holds.c.id, ahead=-HOLD_S_MAX * SECOND)
"""The holds, due when a hold of the longest duration would have expired: a purge looks for an earlier instant."""
_PURGE = purge_before(
    tables.holds,
    tables.holds.c.created_at,
    tables.holds.c.organization_id == OWNER,
    tables.holds.c.expires_at < bindparam("ended_before"),
)


def purge_holds(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's holds that ended before that instant, the oldest first, and return how many.

    It finds them by their creation: a hold of the longest duration had expired by then.
    """
    created_before = before - HOLD_S_MAX * SECOND
    return tx.run(_PURGE, organization_id=organization_id, before=created_before, ended_before=before, limit=limit)


# Checkout ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRequest(BookingRequest):
    """The order of a guest: counts, never amounts."""

    source: BookingSource = BookingSource.ONLINE
    payment: Charge = PaymentMethod.CARD


def check_out(tx: Tx, actor: Actor, checkout: CheckoutRequest) -> bytes:
    """Create the booking of a checkout and return it as JSON.

    It is pending until its card is charged, and confirmed at once when nothing has to be paid. With an expired hold the
    booking takes seats that are free.

    Raises:
        NotFound: the organization has no such departure, or no such hold.
        Conflict: `hold_ended` (released, or checked out before), `hold_of_another_departure`, or what `bookings.create`
            refuses.
        Malformed, Unprocessable, InsufficientCapacity: as `bookings.create`.
    """
    if checkout.hold_id is None:
        return bookings.create(tx, actor, checkout)
    hold = _found(holds.lock(tx, actor.organization.id, checkout.hold_id))
    if hold.departure_id != checkout.departure_id:
        raise Conflict("hold_of_another_departure", "The hold is of another departure.", "hold_id")
    if hold.ended_at is not None:
        raise Conflict("hold_ended", "The hold was released, or checked out before.", "hold_id")
    booking = bookings.create(tx, actor, checkout)
    holds.take_over(tx, actor.organization.id, hold.id, orjson.loads(booking)["id"], at=actor.at)
    return booking
