"""Experiences as the API presents them, and values that are derived from a row. No storage, no clock."""

from typing import Any, NamedTuple

import orjson

from booking_core.base.clock import Zone
from booking_core.catalogue.experiences import translations
from booking_core.catalogue.experiences.pricing import advertised_minor
from booking_core.models.experiences import STANDARD_TIER_ID

_DAY_MINUTES = 24 * 60


class ExperienceRow(NamedTuple):
    """The columns of an experience that are shown, in the order of the query; the first two are its list position."""

    created_at: int
    id: str
    slug: str
    title: str
    is_published: bool
    excerpt: str | None
    duration_minutes: int | None
    difficulty: str | None
    address: str | None
    latitude: float | None
    longitude: float | None
    image_url: str | None
    languages: str
    tags: str
    currency: str
    price_from_minor: int | None
    price_tiers: str
    add_ons: str
    min_participants: int | None
    hours_before_booking_closes: int | None
    meeting_point: str | None
    what_to_bring: str | None
    terms: str | None
    translations: str | None
    """A JSON object of texts by language tag; None: there are none."""
    updated_at: int


def duration_text(minutes: int | None) -> str | None:
    """Format a duration: `45 min`, `2 h 30 min`, `1 day`, `3 days 2 h`."""
    if minutes is None:
        return None
    days, rest = divmod(minutes, _DAY_MINUTES)
    parts = ((days, "day" if days == 1 else "days"), (rest // 60, "h"), (rest % 60, "min"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 min"


def _money(amount_minor: int, currency: str) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": currency}


def price_tiers(stored: str, price_from_minor: int | None, currency: str) -> list[dict[str, Any]]:
    """Return the bookable tiers (API v1 section 2): the configured ones, or a `standard` tier at the advertised price.

    With neither the list is empty.
    """
    tiers: list[dict[str, Any]] = orjson.loads(stored)
    if tiers or price_from_minor is None:
        return tiers
    price = _money(price_from_minor, currency)
    return [{"id": STANDARD_TIER_ID, "name": STANDARD_TIER_ID, "price": price, "seats_per_unit": 1}]


def add_ons(stored: str) -> list[dict[str, Any]]:
    """Return the add-ons of an experience: id, name and price."""
    found: list[dict[str, Any]] = orjson.loads(stored)
    return [{"id": each["id"], "name": each["label"], "price": each["price"]} for each in found]


def present(row: ExperienceRow, zone: Zone, *, has_add_ons: bool = True) -> dict[str, Any]:
    """Present an experience as in API v1 section 2.

    Args:
        has_add_ons: the Add-ons app is on, so that add-ons can be booked.
    """
    advertised = row.price_from_minor
    if advertised is None:
        advertised = advertised_minor(row.price_tiers, None)
    return {
        "id": row.id,
        "slug": row.slug,
        "title": row.title,
        "is_published": bool(row.is_published),
        "excerpt": row.excerpt,
        "duration_minutes": row.duration_minutes,
        "duration": duration_text(row.duration_minutes),
        "difficulty": row.difficulty,
        "address": row.address,
        "latitude": row.latitude,
        "longitude": row.longitude,
        "image_url": row.image_url,
        "languages": orjson.loads(row.languages),
        "tags": orjson.loads(row.tags),
        "price_from": None if advertised is None else _money(advertised, row.currency),
        "price_tiers": price_tiers(row.price_tiers, row.price_from_minor, row.currency),
        "add_ons": add_ons(row.add_ons) if has_add_ons else [],
        "min_participants": row.min_participants,
        "hours_before_booking_closes": row.hours_before_booking_closes,
        "meeting_point": row.meeting_point,
        "what_to_bring": orjson.loads(row.what_to_bring or "[]"),
        "terms": row.terms,
        "translations": translations.present(row.translations, has_add_ons=has_add_ons),
        "created_at": zone.iso(row.created_at),
        "updated_at": zone.iso(row.updated_at),
    }
