"""An experience of the catalogue."""

from pydantic import AwareDatetime

from booking_core.models.base import Id, Resource
from booking_core.models.money import Money

STANDARD_TIER_ID = "standard"
"""An experience with no configured tiers reports one tier of this id and this name, built from its advertised price."""


class PriceTier(Resource):
    """A price for seats of an experience."""

    id: str
    """The `tier_id` when booking."""
    name: str
    price: Money
    seats_per_unit: int
    """Seats that one unit takes: 4 for a family ticket."""


class Experience(Resource):
    """Something a guest can book; unpublished ones are returned as well."""

    id: Id
    slug: str
    """Unique within the organization."""
    title: str
    is_published: bool
    excerpt: str | None
    """Teaser text."""
    duration_minutes: int | None
    """A departure with no end of its own runs this long."""
    duration: str | None
    """Display text derived from `duration_minutes`."""
    difficulty: str | None
    address: str | None
    """Meeting point."""
    latitude: float | None
    longitude: float | None
    image_url: str | None
    languages: list[str]
    tags: list[str]
    price_from: Money | None
    """Lowest advertised price: the one that was given, else that of the cheapest tier; null when no amount is
    published."""
    price_tiers: list[PriceTier]
    min_participants: int | None
    """Minimum for a departure to run."""
    hours_before_booking_closes: int | None
    """Lead time in hours; null: the organization's default applies."""
    created_at: AwareDatetime
    updated_at: AwareDatetime
