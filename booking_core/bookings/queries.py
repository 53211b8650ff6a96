"""Read bookings, and lock one that is about to change."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import orjson

from booking_core.base.clock import Zone
from booking_core.base.context import Actor, Caller, Organization
from booking_core.base.errors import NotFound
from booking_core.base.guest_links import ManageLinks
from booking_core.bookings import cancellation_terms, rules, store
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.store import BookingDetails, ShownBooking
from booking_core.catalogue import departures
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.models.base import email_key, is_id
from booking_core.models.bookings import BookingStatus
from booking_core.models.limits import WINDOW_DAYS_MAX
from booking_core.models.scopes import Scope
from booking_core.payments import PaymentRow


@dataclass(frozen=True, slots=True)
class LockedBooking:
    """A booking that is about to change: locked until the transaction ends, except for a preview."""

    row: BookingRow
    details: BookingDetails
    payment: PaymentRow | None = None
    """The payment that a cancellation would refund; None where there is none, or where it was not read."""

    def shown(self, row: BookingRow) -> ShownBooking:
        """Return the booking with a changed row, as it is read after a change that leaves its payment."""
        return ShownBooking(row, self.details.recorded_minor, self.payment)


def manage_links(actor: Actor) -> Callable[[BookingRow], str | None]:
    """Return a function that makes the guest's link of a booking, or None without the scope to write bookings."""
    if not (isinstance(actor, Caller) and actor.has(Scope.BOOKINGS_WRITE)):
        return lambda row: None
    links, at = ManageLinks(actor.installation, actor.organization.id), actor.at
    return lambda row: links.of(row, ends_at(row), at)


def _without_link(row: BookingRow) -> None:
    return None


def ends_at(row: BookingRow) -> int:
    """Return the current end of the booked departure."""
    return departures.ends_at(row.starts_at, row.ends_at, row.duration_minutes)


def find(
    tx: Tx,
    actor: Actor,
    page: PageRequest,
    *,
    status: BookingStatus | None = None,
    experience_id: str | None = None,
    departure_from: date | None = None,
    departure_to: date | None = None,
    updated_since: int | None = None,
    departure_id: str | None = None,
    customer_id: str | None = None,
    booking_number: int | None = None,
    email: str | None = None,
    external_reference: str | None = None,
) -> Page:
    """Return a page of bookings.

    Args:
        email: the address of the customer's record, in any case.

    Raises:
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    return store.LIST.find(
        tx,
        actor,
        page,
        presenter(actor),
        status=status,
        experience_id=experience_id,
        window=window(actor.organization.zone, departure_from, departure_to),
        updated_since=updated_since,
        departure_id=departure_id,
        customer_id=customer_id,
        number=booking_number,
        external_reference=external_reference,
        email_key=None if email is None else email_key(email.strip()),
    )


def presenter(actor: Actor) -> Callable[[Row], dict[str, Any]]:
    """Return a function that presents rows of bookings with the links that the actor may see, and with the terms of a
    cancellation now."""
    present = shown_presenter(actor)
    return lambda row: present(store.parse_shown(row))


def shown_presenter(actor: Actor, *, with_links: bool = True) -> Callable[[ShownBooking], dict[str, Any]]:
    """Return a function that presents bookings as `presenter` does.

    Args:
        with_links: False leaves out the guests' links.
    """
    zone, link = actor.organization.zone, manage_links(actor) if with_links else _without_link
    terms = cancellation_terms.renderer(actor.organization, actor.at)

    def present(booking: ShownBooking) -> dict[str, Any]:
        shown = rules.present(booking.row, zone, link(booking.row))
        shown["cancellation"] = orjson.Fragment(terms(booking))
        return shown

    return present


def window(zone: Zone, first: date | None, last: date | None) -> dict[str, int] | None:
    """Return the instants that bound a window of local days. A missing end is set 92 days from the other."""
    if first is None and last is None:
        return None
    span = timedelta(days=WINDOW_DAYS_MAX)
    if first is None:
        assert last is not None
        first = last - span if last - date.min >= span else date.min
    if last is None:
        last = first + span if date.max - first >= span else date.max
    departs_from, departs_before = departures.window(zone, first, last, field="departure_to")
    return {"departs_from": departs_from, "departs_before": departs_before}


def get(tx: Tx, actor: Actor, booking_id: str) -> dict[str, Any]:
    """Return a booking.

    Raises:
        NotFound: the organization has no such booking.
    """
    booking = store.get_shown(tx, actor.organization.id, booking_id)
    if booking is None:
        raise NotFound("There is no such booking.")
    return shown_presenter(actor)(booking)


def read(tx: Tx, actor: Actor, booking_id: str) -> bytes:
    """Return a booking as JSON, with the changes of this transaction."""
    return orjson.dumps(get(tx, actor, booking_id))


def lock(tx: Tx, actor: Actor, booking_id: str) -> LockedBooking:
    """Lock a booking until the transaction ends, and return it.

    Raises:
        NotFound: the organization has no such booking.
    """
    details = store.lock(tx, actor.organization.id, booking_id)
    # Read after the lock: the row has the changes of the previous holder.
    return _with_details(tx, actor, booking_id, details)


def read_unlocked(tx: Tx, actor: Actor, booking_id: str) -> LockedBooking:
    """Return a booking as `lock` does, without a lock, for a preview of its change.

    Raises:
        NotFound: the organization has no such booking.
    """
    return _with_details(tx, actor, booking_id, store.get_details(tx, actor.organization.id, booking_id))


def _with_details(tx: Tx, actor: Actor, booking_id: str, details: BookingDetails | None) -> LockedBooking:
    found = store.get_shown(tx, actor.organization.id, booking_id) if details else None
    if details is None or found is None:
        raise NotFound("There is no such booking.")
    return LockedBooking(found.row, details, found.payment)


def organization_of(tx: Tx, booking_id: str) -> Organization:
    """Return the organization that a booking belongs to, for operator commands that take only an id.

    Raises:
        NotFound: there is no such booking.
    """
    found = store.organization_of(tx, booking_id.lower()) if is_id(booking_id) else None
    if found is None:
        raise NotFound(f"There is no booking {booking_id!r}.")
    return found


def show(actor: Actor, booking: ShownBooking) -> bytes:
    """Render the booking as JSON, as it is read: with the guest's link when the actor may see it, and with the terms of
    a cancellation now."""
    terms = cancellation_terms.renderer(actor.organization, actor.at)(booking)
    return rules.complete(render(actor.organization, booking.row), manage_links(actor)(booking.row), terms)


def render(organization: Organization, row: BookingRow) -> bytes:
    """Render the booking as JSON without the guest's link and the terms of a cancellation, as in events."""
    return orjson.dumps(rules.present(row, organization.zone))
