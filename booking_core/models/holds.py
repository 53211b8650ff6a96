"""A hold of seats, and the request that makes one."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from booking_core.models import limits
from booking_core.models.base import Count, Id, OfDeparture, Open, Request, Resource, fault_at
from booking_core.models.bookings import GuestLine, GuestLineInput, Totals
from booking_core.models.reasons import Fault


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
    guests: list[GuestLine] | None = None
    """The party that it was made for, at the prices of then; null: it was made for seats."""
    totals: Totals | None = None
    """The price of the party, as a quote has it. A booking is charged the prices when it is made; null without a
    party."""


HoldSeconds = Annotated[
    int, Field(ge=limits.HOLD_S_MIN, le=limits.HOLD_S_MAX, json_schema_extra={"default": limits.HOLD_S_DEFAULT})
]


class HoldCreate(OfDeparture):
    """Body of `POST /api/v1/holds`."""

    seats: Count | None = None
    """The seats to hold. Send either `seats` or `guests`."""
    guests: Annotated[list[GuestLineInput], Field(min_length=1, max_length=limits.LINES_MAX)] | None = None
    """The party whose seats to hold. The hold then has its price, too."""
    expires_in_seconds: HoldSeconds | None = None
    """Default 600, at most 1,800."""

    @model_validator(mode="after")
    def _has_seats_or_guests(self) -> Self:
        if (self.seats is None) == (self.guests is None):
            raise fault_at(type(self), "seats", Fault("exactly_one", "is needed, or guests: send one of them"))
        return self


class HoldExtend(Request):
    """Body of `POST /api/v1/holds/{id}/extend`; an empty body is fine."""

    expires_in_seconds: HoldSeconds | None = None
    """The seconds from now on, 600 by default. A hold lasts 1,800 seconds in all at most."""
