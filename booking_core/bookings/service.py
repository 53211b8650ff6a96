"""Reading bookings, and holding one that is about to change."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import orjson

from booking_core import departures
from booking_core.bookings import rules, store
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.store import Locked
from booking_core.clock import Zone
from booking_core.context import Actor, Caller, Organization
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.errors import NotFound
from booking_core.guest_links import ManageLinks
from booking_core.models.bookings import BookingStatus
from booking_core.models.limits import WINDOW_DAYS_MAX
from booking_core.models.scopes import Scope


@dataclass(frozen=True, slots=True)
class Live:
    """A booking that is held: as it is shown, and what else a change of it needs."""

    row: BookingRow
    locked: Locked


def links(actor: Actor) -> Callable[[BookingRow], str | None]:
    """The guest's link of a booking, for keys that may write bookings; null for everybody else."""
    if not (isinstance(actor, Caller) and actor.has(Scope.BOOKINGS_WRITE)):
        return lambda row: None
    made, at = ManageLinks(actor.installation, actor.organization.id), actor.at
    return lambda row: made.of(row, ends_at(row), at)


def ends_at(row: BookingRow) -> int:
    """When the departure ends, as it stands now."""
    return departures.ends_at(row.starts_at, row.ends_at, row.duration_minutes)


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    *,
    status: BookingStatus | None = None,
    experience_id: str | None = None,
    departure_from: date | None = None,
    departure_to: date | None = None,
    updated_since: int | None = None,
) -> Page:
    """A page of bookings.

    Raises:
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    return store.LIST.find(
        tx,
        caller,
        page,
        presenter(caller),
        status=status,
        experience_id=experience_id,
        window=window(caller.organization.zone, departure_from, departure_to),
        updated_since=updated_since,
    )


def presenter(actor: Actor) -> Callable[[Row], dict[str, Any]]:
    """Return a function that shows rows of bookings as the actor may see them."""
    zone, link = actor.organization.zone, links(actor)

    def present(row: Row) -> dict[str, Any]:
        booking = BookingRow._make(row)
        return rules.present(booking, zone, link(booking))

    return present


def window(zone: Zone, first: date | None, last: date | None) -> dict[str, int] | None:
    """The instants that bound a window of local days; a missing end lies 92 days from the other."""
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


def get(tx: Tx, caller: Actor, booking_id: str) -> dict[str, Any]:
    """One booking.

    Raises:
        NotFound: the organization has no such booking.
    """
    row = store.get(tx, caller.organization.id, booking_id)
    if row is None:
        raise NotFound("There is no such booking.")
    return rules.present(row, caller.organization.zone, links(caller)(row))


def lock(tx: Tx, actor: Actor, booking_id: str) -> Live:
    """The booking, held until the transaction ends, for a verb that changes it.

    Raises:
        NotFound: the organization has no such booking.
    """
    locked = store.lock(tx, actor.organization.id, booking_id)
    row = store.get(tx, actor.organization.id, booking_id) if locked else None  # when it is held: then it is the newest
    if locked is None or row is None:
        raise NotFound("There is no such booking.")
    return Live(row, locked)


def owner(tx: Tx, booking_id: str) -> Organization:
    """Whose booking it is. For the operator, who names a booking by its id alone.

    Raises:
        NotFound: there is no such booking.
    """
    found = store.owner(tx, booking_id.lower()) if rules.is_id(booking_id) else None
    if found is None:
        raise NotFound(f"There is no booking {booking_id!r}.")
    return found


def show(actor: Actor, row: BookingRow) -> bytes:
    """The booking as JSON, as the actor may see it."""
    return rules.with_link(render(actor.organization, row), links(actor)(row))


def render(organization: Organization, row: BookingRow) -> bytes:
    """The booking as JSON without its link, as events hold it."""
    return orjson.dumps(rules.present(row, organization.zone))
