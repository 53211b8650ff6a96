"""Operations of the storefront: hold seats, check out, pay. Ids are canonical UUIDs in lower case."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from booking_core import bookings
from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings import BookingRequest
from booking_core.bookings.storefront import rules, store
from booking_core.bookings.storefront.rules import HOLD_S_DEFAULT, HoldRow
from booking_core.catalogue import holds
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.base import LanguageTag, Note, is_id
from booking_core.models.bookings import AddOnInput, BookingSource, GuestInput, GuestLineInput, PaymentMethod
from booking_core.models.references import ExternalReference, Metadata, UniqueReference
from booking_core.records import departure_touches

# Holds -----------------------------------------------------------------------------------------------------------


def hold(tx: Tx, actor: Actor, departure_id: str, seats: int, *, for_s: int = HOLD_S_DEFAULT) -> dict[str, Any]:
    """Hold seats for `for_s` seconds, and return id, departure_id, seats and expires_at.

    Raises:
        Malformed: the number of seats or the duration is out of range.
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
        InsufficientCapacity: there are fewer seats.
    """
    rules.check(seats, for_s)
    bookings.lock_seats(tx, actor, departure_id, seats)
    row = HoldRow(tokens.new_id(), departure_id, seats, actor.at + for_s * SECOND, None)
    tx.insert(tables.holds, organization_id=actor.organization.id, **row._asdict(), created_at=actor.at)
    departure_touches.touch(tx, actor.organization.id, [departure_id], at=actor.at)
    return rules.present(row, actor.organization.zone)


def release(tx: Tx, actor: Actor, hold_id: str) -> dict[str, Any]:
    """Release the seats of a hold and return it; a hold that has ended is returned unchanged.

    Raises:
        NotFound: the organization has no such hold.
    """
    departure_touches.lock_of_hold(tx, actor.organization.id, hold_id)
    row = _lock(tx, actor, hold_id)
    if row.ended_at is None:
        _end(tx, actor, row)
        departure_touches.touch(tx, actor.organization.id, [row.departure_id], at=actor.at)
    return rules.present(row, actor.organization.zone)


def organization_of_hold(tx: Tx, hold_id: str) -> Organization:
    """Return the organization of a hold, for commands that take only its id.

    Raises:
        NotFound: there is no such hold.
    """
    found = store.organization_of_hold(tx, hold_id.lower()) if is_id(hold_id) else None
    if found is None:
        raise NotFound(f"There is no hold {hold_id!r}.")
    return found


def _lock(tx: Tx, actor: Actor, hold_id: str) -> HoldRow:
    row = store.lock(tx, actor.organization.id, hold_id)
    if row is None:
        raise NotFound("There is no such hold.")
    return row


def _end(tx: Tx, actor: Actor, row: HoldRow) -> None:
    tx.update(store.END, organization_id=actor.organization.id, id=row.id, ended_at=actor.at)


OLD_HOLDS = store.OLD


def purge_holds(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's holds that ended before that instant, the oldest first, and return how many.

    It finds them by their creation: a hold of the longest duration had expired by then.
    """
    return store.purge(tx, organization_id, before, limit)


# Checkout --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The order of a guest: counts, never amounts."""

    departure_id: str
    guests: Sequence[GuestLineInput]
    customer: GuestInput
    add_ons: Sequence[AddOnInput] = ()
    note: Note | None = None
    discount_minor: int = 0
    gift_card_code: str | None = None
    locale: LanguageTag | None = None
    """The guest's language (BCP 47); None: the organization's."""
    hold_id: str | None = None
    """The hold of this checkout, if it has one: the checkout ends it and takes its seats."""
    external_reference: ExternalReference | None = None
    external_reference_unique: UniqueReference | None = None
    metadata: Metadata | None = None


def check_out(
    tx: Tx, actor: Actor, checkout: Checkout, *, check_due: Callable[[int, str], None] | None = None
) -> bytes:
    """Create the booking of a checkout and return it as JSON.

    It is pending until its card is charged, and confirmed at once when nothing is left to pay. With an expired hold the
    booking takes seats that are free.

    Args:
        check_due: called with the amount in minor units and the currency that are left to pay; it may refuse them.

    Raises:
        NotFound: the organization has no such departure, or no such hold.
        Conflict: `hold_ended` (released, or checked out before), `hold_of_another_departure`, or what `bookings.create`
            refuses.
        Malformed, Unprocessable, InsufficientCapacity: as `bookings.create`.
    """
    held = None if checkout.hold_id is None else _lock_unused(tx, actor, checkout.hold_id, checkout.departure_id)
    draft = BookingRequest(
        departure_id=checkout.departure_id,
        guests=checkout.guests,
        customer=checkout.customer,
        source=BookingSource.ONLINE,
        payment=PaymentMethod.CARD,
        add_ons=checkout.add_ons,
        note=checkout.note,
        discount_minor=checkout.discount_minor,
        gift_card_code=checkout.gift_card_code,
        locale=checkout.locale,
        hold_id=checkout.hold_id,
        external_reference=checkout.external_reference,
        external_reference_unique=checkout.external_reference_unique,
        metadata=checkout.metadata,
        check_due=check_due,
    )
    booking = bookings.create(tx, actor, draft)
    if held:
        holds.take_over(tx, actor.organization.id, held.id, orjson.loads(booking)["id"], at=actor.at)
    return booking


def _lock_unused(tx: Tx, actor: Actor, hold_id: str, departure_id: str) -> HoldRow:
    held = _lock(tx, actor, hold_id)
    if held.departure_id != departure_id:
        raise Conflict("hold_of_another_departure", "The hold is of another departure.", "hold_id")
    if held.ended_at is not None:
        raise Conflict("hold_ended", "The hold was released, or checked out before.", "hold_id")
    return held


def pay(tx: Tx, actor: Actor, booking_id: str, *, payment_intent: str | None = None) -> bytes:
    """Record the payment by card, confirm the booking and return it as JSON. A paid booking is returned unchanged. An
    abandoned one stays cancelled, and a refund of the whole payment is requested.

    Args:
        payment_intent: the gateway's name for the payment, by which it can be refunded.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `not_paid_by_card`; `paid_already`: by another payment, or the intent has paid for another booking.
    """
    return bookings.pay(tx, actor, booking_id, payment_intent=payment_intent)
