"""The verbs of departures. Ids are canonical UUIDs in lower case, as the border hands them on."""

from datetime import date
from typing import Any

import orjson

from booking_core.context import Actor, Organization
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, envelope
from booking_core.departures import rules, store
from booking_core.departures.rules import DepartureRow
from booking_core.errors import Conflict, Malformed, NotFound
from booking_core.models.departures import DepartureStatus
from booking_core.models.limits import COUNT_MAX


def find_available(
    tx: Tx, caller: Actor, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> Page:
    """The departures that start on the local days from `date_from` to `date_to`, both included, with their seats as
    they are now: by start, then id, all on one page (decision L4). `date_to` is 30 days later unless said.

    Departures of unpublished experiences belong to it; an experience that the organization does not have has none.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    organization = caller.organization
    zone, hours = organization.zone, organization.hours_before_booking_closes
    last = rules.default_last_day(date_from) if date_to is None else date_to
    start, end = rules.window(zone, date_from, last, field="to")
    found = store.available(tx, organization.id, start=start, end=end, experience_id=experience_id, at=caller.at)
    return envelope(list(map(rules.presenter(zone, hours, caller.at), found)), None)


def get(tx: Tx, actor: Actor, departure_id: str) -> dict[str, Any]:
    """Return the departure, as availability shows it.

    Raises:
        NotFound: the organization has no such departure.
    """
    row = store.get(tx, actor.organization.id, departure_id, actor.at)
    if row is None:
        raise NotFound("There is no such departure.")
    return _present(actor, row)


def owners(tx: Tx, departure_id: str) -> list[Organization]:
    """Return the organizations that have a departure of that id. A catalogue that was imported into two gave both
    the same ids."""
    return store.owners(tx, departure_id)


def lock(tx: Tx, actor: Actor, departure_id: str) -> DepartureRow:
    """The departure, held until the transaction ends.

    Raises:
        NotFound: the organization has no such departure.
    """
    row = store.lock(tx, actor.organization.id, departure_id, actor.at)
    if row is None:
        raise NotFound("There is no such departure.")
    return row


def render(actor: Actor, row: DepartureRow) -> bytes:
    """The departure as JSON, as availability shows it."""
    return orjson.dumps(_present(actor, row))


def _present(actor: Actor, row: DepartureRow) -> dict[str, Any]:
    organization = actor.organization
    return rules.presenter(organization.zone, organization.hours_before_booking_closes, actor.at)(row)


def close(tx: Tx, actor: Actor, departure_id: str) -> bytes:
    """The departure as JSON, closed: what is booked stays, and nothing more can be booked.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`.
    """
    return _set_status(tx, actor, departure_id, DepartureStatus.CLOSED)


def reopen(tx: Tx, actor: Actor, departure_id: str) -> bytes:
    """The departure as JSON, for sale again as long as its booking close lies ahead.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`; its guests were told so.
    """
    return _set_status(tx, actor, departure_id, DepartureStatus.OPEN)


def _set_status(tx: Tx, actor: Actor, departure_id: str, status: DepartureStatus) -> bytes:
    row = _lock_running(tx, actor, departure_id)
    if row.status != status:
        key = {"organization_id": actor.organization.id, "id": departure_id}
        tx.update(store.SET_STATUS, **key, status=str(status), updated_at=actor.at)
    return render(actor, row._replace(status=str(status)))


def set_seats(tx: Tx, actor: Actor, departure_id: str, seats_total: int, *, allow_oversold: bool = True) -> bytes:
    """The departure as JSON, with so many seats in all. Under what was sold nobody loses a seat, and none is for sale.

    Args:
        allow_oversold: set the total also when it is lower than what was sold; else that is refused.

    Raises:
        NotFound: the organization has no such departure.
        Malformed: no number of seats.
        Conflict: `departure_cancelled`; `seats_sold`.
    """
    if not 0 <= seats_total <= COUNT_MAX:
        raise Malformed.at("seats_total", f"must be a whole number from 0 to {COUNT_MAX}", "range")
    row = _lock_running(tx, actor, departure_id)
    if seats_total < row.seats_taken and not allow_oversold:
        raise Conflict("seats_sold", f"{row.seats_taken} seats are sold, more than {seats_total}.", "seats_total")
    if row.seats_total != seats_total:
        tx.update(
            store.SET_SEATS,
            organization_id=actor.organization.id,
            id=departure_id,
            seats_total=seats_total,
            seats_ceiling=rules.seats_ceiling(seats_total, row.seats_taken),
            updated_at=actor.at,
        )
    return render(actor, row._replace(seats_total=seats_total))


def _lock_running(tx: Tx, actor: Actor, departure_id: str) -> DepartureRow:
    row = lock(tx, actor, departure_id)
    if row.status == DepartureStatus.CANCELLED:
        raise Conflict("departure_cancelled", "The departure is cancelled.")
    return row
