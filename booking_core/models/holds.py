"""A hold of seats, and the request that makes one."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from booking_core.models import limits
from booking_core.models.base import Count, Id, OfDeparture, Open, Resource


class HoldStatus(StrEnum):
    """live: its seats are kept; booked: a booking has taken them over; released: by request; expired: its time has
    ended. Only a live hold keeps seats."""

    LIVE = "live"
    BOOKED = "booked"
    RELEASED = "released"
    EXPIRED = "expired"


HoldStatusName = Literal["live", "booked", "released", "expired"]


class Hold(Resource):
    """Seats of a departure that are kept until an instant, unless they are booked or released before."""

    id: Id
    departure_id: Id
    seats: int
    status: Open[HoldStatus, HoldStatusName]
    created_at: AwareDatetime
    expires_at: AwareDatetime
    """From this instant on its seats are available again."""
    booking_id: Id | None
    """The booking that took the seats over."""


class HoldCreate(OfDeparture):
    """Body of `POST /api/v1/holds`."""

    seats: Count
    """The seats to hold. `POST /bookings/quote` answers how many a party needs."""
    expires_in_seconds: (
        Annotated[
            int, Field(ge=limits.HOLD_S_MIN, le=limits.HOLD_S_MAX, json_schema_extra={"default": limits.HOLD_S_DEFAULT})
        ]
        | None
    ) = None
    """Default 600, at most 1,800."""
