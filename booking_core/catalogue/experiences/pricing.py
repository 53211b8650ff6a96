"""Prices at a departure. Availability shows them and bookings charge them, both from here (decisions/0010)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from booking_core.models.experiences import STANDARD_TIER_ID

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
        own: dict[str, int] = orjson.loads(prices) if prices else {}
        return {
            tier["id"]: Tier(tier["name"], own.get(tier["id"], tier["price"]["amount_minor"]), tier["seats_per_unit"])
            for tier in configured
        }
    amount = price_from_minor if price_minor is None else price_minor
    return {} if amount is None else {STANDARD_TIER_ID: Tier(STANDARD_TIER_ID, amount, 1)}


@lru_cache(_CACHED)
def advertised_minor(
    price_tiers: str, price_from_minor: int | None, price_minor: int | None = None, prices: str | None = None
) -> int | None:
    """Return the price that is shown for a departure or an experience (decision B18); None when nothing is for sale.

    That is `price_from_minor`, unless the departure has prices of its own; else the lowest price of a tier above zero;
    zero only when every tier is free. The arguments are those of `tiers`.
    """
    offered = tiers(price_tiers, price_from_minor, price_minor, prices)
    has_own = offered.keys() & orjson.loads(prices or "{}") if orjson.loads(price_tiers) else price_minor is not None
    if price_from_minor and not has_own:
        return price_from_minor
    amounts = {tier.price_minor for tier in offered.values()}
    return min(amounts - {0} or amounts, default=None)
