"""A departure, as availability answers it."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field, NaiveDatetime, WithJsonSchema

from booking_core.models.base import Id, Open, Resource, always_sent
from booking_core.models.experiences import PriceTier
from booking_core.models.money import Money

_LOCAL_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$",
    "description": "The start as wall time of the organization, without an offset.",
}
"""Not of the format date-time, which has an offset."""


class DepartureStatus(StrEnum):
    """Computed when read (decision B1): cancelled, else closed, else sold out, else open. A departure with neither a
    price tier nor a price is closed."""

    OPEN = "open"
    SOLD_OUT = "sold_out"
    CLOSED = "closed"
    CANCELLED = "cancelled"


DepartureStatusName = Literal["open", "sold_out", "closed", "cancelled"]


class Departure(Resource):
    """A departure of an experience at one time, with its current seats."""

    model_config = ConfigDict(json_schema_extra=always_sent("starts_at_local", "timezone", "price_tiers"))

    id: Id
    """The `departure_id` when booking, or `experience_date_id`."""
    experience_id: Id
    starts_at: AwareDatetime
    starts_at_local: Annotated[NaiveDatetime | None, WithJsonSchema(_LOCAL_SCHEMA)] = None
    """The start as wall time of the organization, without an offset; None from a service of an earlier release."""
    timezone: Annotated[str | None, WithJsonSchema({"type": "string"})] = None
    """The organization's time zone by its IANA name; None from a service of an earlier release."""
    ends_at: AwareDatetime
    seats_total: int
    seats_available: int
    """Net of confirmed bookings, pending bookings and seats held in another checkout."""
    price: Money | None
    """The advertised price: the experience's `price_from`, unless the departure has separate prices; else the lowest
    price of a tier above zero. Null when no amount is published."""
    price_tiers: list[PriceTier] = Field(default_factory=list)
    """The tiers that can be booked, at the prices that are charged for this departure."""
    booking_closes_at: AwareDatetime
    status: Open[DepartureStatus, DepartureStatusName]
