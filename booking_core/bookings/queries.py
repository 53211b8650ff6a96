"""Read one booking, or a page of them."""

from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from booking_core import organizations
from booking_core.base.clock import Zone
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import NotFound
from booking_core.bookings import presenting, store, terms
from booking_core.bookings.store import BookingWithPayment, lists
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, PageRequest
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingStatus
from booking_core.models.json import JsonObject
from booking_core.models.limits import WINDOW_DAYS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingConditions:
    """The conditions of a list, combined with AND. Without a condition every booking matches."""

    number: int | None = None
    email: str | None = None
    """The address of the customer's record, in any case."""
    departure_id: str | None = None
    customer_id: str | None = None
    external_reference: str | None = None
    status: BookingStatus | None = None
    experience_id: str | None = None
    departure_from: date | None = None
    departure_to: date | None = None
    updated_since: int | None = None


def find(tx: Tx, actor: Actor, page: PageRequest, filters: BookingConditions) -> JsonPage:
    """Return a page of bookings.

    Raises:
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    applied = applied_filters(actor, filters)
    if filters.email is not None:
        applied["email_key"] = email_key(filters.email.strip())
    return lists.LIST.find(tx, actor, page, presenting.row_presenter(actor), **applied)


def applied_filters(actor: Actor, filters: BookingConditions) -> dict[str, Any]:
    """Return the filters of `lists.LIST` that apply, all but the one of the address."""
    values = asdict(filters)
    bounds = values.pop("departure_from"), values.pop("departure_to")
    values["window"] = _window(actor.organization.zone, *bounds)
    return {name: value for name, value in values.items() if value is not None and name in lists.LIST.filters}


def _window(zone: Zone, first: date | None, last: date | None) -> dict[str, int] | None:
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


def get(tx: Tx, actor: Actor, booking_id: str) -> JsonObject:
    """Return a booking.

    Raises:
        NotFound: the organization has no such booking.
    """
    return presenting.presenter(actor)(_get(tx, actor, booking_id))


def _get(tx: Tx, actor: Actor, booking_id: str) -> BookingWithPayment:
    booking = store.get_with_payment(tx, actor.organization.id, booking_id)
    if booking is None:
        raise NotFound.of("booking")
    return booking


def organization_of(tx: Tx, booking_id: str) -> Organization:
    """Return the organization that a booking belongs to, for operator commands that take only an id.

    Raises:
        NotFound: there is no such booking.
    """
    return organizations.owner(tx, tables.bookings, booking_id, "booking")


def get_refundable(tx: Tx, actor: Actor, booking_id: str) -> terms.Refundable:
    """Return the payment that the guest's cancellation now would refund.

    Raises:
        NotFound: the organization has no such booking.
    """
    return terms.refundable(_get(tx, actor, booking_id), actor.organization, actor.at)
