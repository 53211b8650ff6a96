"""Rules of holds: their status, and the conditions for taking one over. No storage, no clock."""

from typing import Any, NamedTuple

from booking_core.base.clock import Zone
from booking_core.base.errors import Conflict, NotFound
from booking_core.models.errors import ErrorDetail
from booking_core.models.holds import HoldStatus

HoldKey = tuple[str, str]
"""The ids of organization and hold."""

_FIELD = "hold_id"


class Hold(NamedTuple):
    """The columns of a hold, in the order of every query."""

    id: str
    departure_id: str
    seats: int
    created_at: int
    expires_at: int
    ended_at: int | None
    booking_id: str | None


def is_live(hold: Hold, at: int) -> bool:
    """Return whether the hold keeps its seats at an instant."""
    return hold.ended_at is None and hold.expires_at > at


def status(hold: Hold, at: int) -> HoldStatus:
    """Return the status at an instant."""
    if hold.booking_id is not None:
        return HoldStatus.BOOKED
    if hold.ended_at is not None:
        return HoldStatus.RELEASED
    return HoldStatus.LIVE if hold.expires_at > at else HoldStatus.EXPIRED


def require_usable(hold: Hold | None, departure_id: str, at: int) -> Hold:
    """Return the hold if a booking of the departure can take it over at an instant.

    Raises:
        NotFound: the organization has no such hold.
        Conflict: `hold_of_another_departure`, `hold_booked`, `hold_released` or `hold_expired`.
    """
    if hold is None:
        message = "There is no such hold."
        raise NotFound(message, details=[ErrorDetail(field=_FIELD, reason="unknown_hold", message=message)])
    if hold.departure_id != departure_id:
        raise Conflict("hold_of_another_departure", "The hold is of another departure.", _FIELD)
    refusals = {
        HoldStatus.BOOKED: ("hold_booked", "A booking has taken over the hold."),
        HoldStatus.RELEASED: ("hold_released", "The hold was released."),
        HoldStatus.EXPIRED: ("hold_expired", "The hold has expired."),
    }
    refusal = refusals.get(status(hold, at))
    if refusal:
        raise Conflict(*refusal, _FIELD)
    return hold


def present(hold: Hold, zone: Zone, at: int) -> dict[str, Any]:
    """Present a hold as in the API, at an instant."""
    return {
        "id": hold.id,
        "departure_id": hold.departure_id,
        "seats": hold.seats,
        "status": str(status(hold, at)),
        "created_at": zone.iso(hold.created_at),
        "expires_at": zone.iso(hold.expires_at),
        "booking_id": hold.booking_id,
    }
