"""An experience of the catalogue."""

from pydantic import AwareDatetime, ConfigDict, Field

from booking_core.models.base import Id, Resource, always_sent
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


class AddOn(Resource):
    """Something that is sold beside the seats of an experience, such as a dry suit."""

    id: str
    """The `id` of an add-on line when booking."""
    name: str
    price: Money


class ExperienceTexts(Resource):
    """Texts of an experience in one language; null or left out: shown as in the experience itself."""

    title: str | None = None
    excerpt: str | None = None
    meeting_point: str | None = None
    what_to_bring: list[str] | None = None
    terms: str | None = None
    price_tiers: dict[str, str] = Field(default_factory=dict)
    """Names of price tiers, by the tier's id."""
    add_ons: dict[str, str] = Field(default_factory=dict)
    """Names of add-ons, by the add-on's id."""


class Experience(Resource):
    """Something a guest can book; unpublished ones are returned as well."""

    model_config = ConfigDict(
        json_schema_extra=always_sent("add_ons", "meeting_point", "what_to_bring", "terms", "translations")
    )

    id: Id
    slug: str
    """Unique within the organization."""
    title: str
    is_published: bool
    excerpt: str | None
    """Teaser text."""
    duration_minutes: int | None
    """A departure without an end runs this long."""
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
    """Lowest advertised price: the given price, else the price of the cheapest tier; null when no amount is
    published."""
    price_tiers: list[PriceTier]
    add_ons: list[AddOn] = Field(default=[])
    """The add-ons that can be booked; empty while the Add-ons app is off."""
    min_participants: int | None
    """Minimum for a departure to run."""
    hours_before_booking_closes: int | None
    """Lead time in hours; null: the organization's default applies."""
    meeting_point: str | None = None
    """The way to the start, in one or several lines."""
    what_to_bring: list[str] = Field(default=[])
    """Things that guests bring, one in each entry."""
    terms: str | None = None
    """Terms that guests accept; may have several lines."""
    translations: dict[str, ExperienceTexts] = Field(default={})
    """Texts for guests of other languages, by language tag (BCP 47) such as `de`. They are the same for every request:
    `Accept-Language` has no effect."""
    created_at: AwareDatetime
    updated_at: AwareDatetime
