"""Experiences as the API presents them: their prices, their texts in other languages, and values that are derived from
a row. No storage, no clock."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from booking_core.base.clock import Zone
from booking_core.models.experiences import STANDARD_TIER_ID
from booking_core.models.money import money_json

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
    days, minutes = divmod(minutes, _DAY_MINUTES)
    parts = ((days, "day" if days == 1 else "days"), (minutes // 60, "h"), (minutes % 60, "min"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 min"


UNIT_TYPE = "octo_unit_type"
"""The key of a stored tier with its type in OCTO, which the API does not show."""


def unit_types(stored: str) -> dict[str, str]:
    """Return the OCTO types of the tiers that have one, by the id of the tier."""
    return {tier["id"]: tier[UNIT_TYPE] for tier in orjson.loads(stored) if UNIT_TYPE in tier}


def price_tiers(stored: str, price_from_minor: int | None, currency: str) -> list[dict[str, Any]]:
    """Return the bookable tiers (API v1 section 2): the configured ones, or a `standard` tier at the advertised price.

    With neither the list is empty.
    """
    tiers: list[dict[str, Any]] = orjson.loads(stored)
    for tier in tiers:
        tier.pop(UNIT_TYPE, None)
    if tiers or price_from_minor is None:
        return tiers
    price = money_json(price_from_minor, currency)
    return [{"id": STANDARD_TIER_ID, "name": STANDARD_TIER_ID, "price": price, "seats_per_unit": 1}]


def add_ons(stored: str) -> list[dict[str, Any]]:
    """Return the add-ons of an experience: id, name and price."""
    entries: list[dict[str, Any]] = orjson.loads(stored)
    return [{"id": add_on["id"], "name": add_on["label"], "price": add_on["price"]} for add_on in entries]


def present(row: ExperienceRow, zone: Zone, *, has_add_ons: bool = True) -> dict[str, Any]:
    """Present an experience as in API v1 section 2.

    Args:
        has_add_ons: the Add-ons app is on: add-ons can be booked.
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
        "price_from": None if advertised is None else money_json(advertised, row.currency),
        "price_tiers": price_tiers(row.price_tiers, row.price_from_minor, row.currency),
        "add_ons": add_ons(row.add_ons) if has_add_ons else [],
        "min_participants": row.min_participants,
        "hours_before_booking_closes": row.hours_before_booking_closes,
        "meeting_point": row.meeting_point,
        "what_to_bring": orjson.loads(row.what_to_bring or "[]"),
        "terms": row.terms,
        "translations": present_translations(row.translations, has_add_ons=has_add_ons),
        "created_at": zone.iso(row.created_at),
        "updated_at": zone.iso(row.updated_at),
    }


# Prices at a departure ----------------------------------------------------------------------------------------------
#
# Availability shows them and bookings charge them, both from here (decisions/0010).

_CACHED = 4096


class Tier(NamedTuple):
    """A price tier of a departure."""

    label: str
    price_minor: int
    seats_per_unit: int


@lru_cache(_CACHED)
def tiers(
    price_tiers: str, price_from_minor: int | None, price_minor: int | None = None, prices: str | None = None
) -> Mapping[str, Tier]:
    """Return the tiers that are for sale, by tier id. The result is cached and must not be changed.

    An experience with configured tiers sells them at the departure's price for the tier, or else at the tier's price;
    a single price of the departure is ignored. Without configured tiers the only tier is `standard`, at the
    departure's single price or else the advertised price. With neither price nothing is for sale.

    Args:
        price_tiers: the experience's tiers as they are stored, a JSON list.
        price_from_minor: the experience's advertised price.
        price_minor: the departure's single price.
        prices: the departure's prices by tier id as they are stored, a JSON object; a tier that the experience does
            not have is ignored.
    """
    configured: list[dict[str, Any]] = orjson.loads(price_tiers)
    if configured:
        own_prices: dict[str, int] = orjson.loads(prices) if prices else {}
        return {
            tier["id"]: Tier(
                tier["name"], own_prices.get(tier["id"], tier["price"]["amount_minor"]), tier["seats_per_unit"]
            )
            for tier in configured
        }
    amount = price_from_minor if price_minor is None else price_minor
    return {} if amount is None else {STANDARD_TIER_ID: Tier(STANDARD_TIER_ID, amount, 1)}


@lru_cache(_CACHED)
def advertised_minor(
    price_tiers: str, price_from_minor: int | None, price_minor: int | None = None, prices: str | None = None
) -> int | None:
    """Return the price that is shown for a departure or an experience (decision B18); None when nothing is for sale.

    That is `price_from_minor`, unless the departure has separate prices; else the lowest price of a tier above zero;
    zero only when every tier is free. The arguments are the same as for `tiers`.
    """
    offered = tiers(price_tiers, price_from_minor, price_minor, prices)
    has_own = offered.keys() & orjson.loads(prices or "{}") if orjson.loads(price_tiers) else price_minor is not None
    if price_from_minor and not has_own:
        return price_from_minor
    amounts = {tier.price_minor for tier in offered.values()}
    return min(amounts - {0} or amounts, default=None)


# Texts in other languages -------------------------------------------------------------------------------------------
#
# They are stored as a JSON object by language tag; each has the texts and names that are translated, and no others.

_UNTRANSLATED: dict[str, Any] = {
    **dict.fromkeys(("title", "excerpt", "meeting_point", "what_to_bring", "terms")),
    "price_tiers": {},
    "add_ons": {},
}
NAMES = ("price_tiers", "add_ons")
"""Keys of the names that are translated, each an object by id."""

TranslatedTexts = Mapping[str, Any]
"""Texts by field; the names of price tiers and add-ons by id."""


def present_translations(stored: str | None, *, has_add_ons: bool) -> dict[str, dict[str, Any]]:
    """Present translations as in the API.

    Args:
        has_add_ons: the Add-ons app is on: add-ons can be booked.
    """
    translations: dict[str, dict[str, Any]] = orjson.loads(stored) if stored else {}
    hidden: dict[str, Any] = {} if has_add_ons else {"add_ons": {}}
    return {tag: _UNTRANSLATED | texts | hidden for tag, texts in translations.items()}


def closest(tags: Iterable[str], language: str) -> str | None:
    """Return the tag that serves a wanted language: the same tag, else the tag without its last parts (`de` for
    `de-AT`, RFC 4647), else another tag of the same language. Case does not matter."""
    lowered_tags = {tag.lower(): tag for tag in tags}
    prefix = language.lower()
    while prefix:
        if prefix in lowered_tags:
            return lowered_tags[prefix]
        prefix = prefix.rpartition("-")[0]
    primary = language.lower().partition("-")[0]
    return next((tag for lowered, tag in lowered_tags.items() if lowered.partition("-")[0] == primary), None)


def texts_for(stored: str | None, languages: Iterable[str | None]) -> TranslatedTexts:
    """Return the texts for a guest, each in the first of the languages that has it; none without a translation.

    Args:
        languages: language tags, the preferred one first.
    """
    translations: dict[str, dict[str, Any]] = orjson.loads(stored) if stored else {}
    merged: dict[str, Any] = {}
    for language in filter(None, languages):
        tag = closest(translations, language)
        for key, value in translations.get(tag or "", {}).items():
            if key in NAMES:
                merged[key] = value | merged.get(key, {})
            elif value:
                merged.setdefault(key, value)
    return merged


def unknown_names(
    translations: object, tiers: Iterable[str] | None, add_ons: Iterable[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (language tag, key, id) of translated names of price tiers and add-ons that the experience does not have.

    Args:
        translations: by language tag; parts of another shape are left out.
        tiers, add_ons: the ids that the experience has; None: not known.
    """
    known_ids = {"price_tiers": tiers, "add_ons": add_ons}
    for tag, texts in translations.items() if isinstance(translations, dict) else ():
        for key, ids in known_ids.items():
            names = texts.get(key) if isinstance(texts, dict) else None
            if ids is not None and isinstance(names, dict):
                yield from ((tag, key, name_id) for name_id in names if name_id not in set(ids))
