"""A departure, as availability answers it."""

from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime

from booking_core.models.base import Id, Open, Resource
from booking_core.models.money import Money


class DepartureStatus(StrEnum):
    """Computed when read (decision B1): cancelled, else closed, else sold out, else open."""

    OPEN = "open"
    SOLD_OUT = "sold_out"
    CLOSED = "closed"
    CANCELLED = "cancelled"


DepartureStatusName = Literal["open", "sold_out", "closed", "cancelled"]


class Departure(Resource):
    """A departure of an experience at one time, with its current seats."""

    id: Id
    """The `experience_date_id` when booking."""
    experience_id: Id
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    seats_total: int
    seats_available: int
    """Net of confirmed bookings, pending bookings and seats held in another checkout."""
    price: Money | None
    """The price of the cheapest tier at this departure, which may differ from the experience's; a booking is charged
    the same. Null when no amount is published."""
    booking_closes_at: AwareDatetime
    status: Open[DepartureStatus, DepartureStatusName]
