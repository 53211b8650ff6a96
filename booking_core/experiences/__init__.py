"""Experiences: queries and prices. The package `catalog` writes them."""

from booking_core.experiences.pricing import Tier, lowest_minor, tiers
from booking_core.experiences.rules import price_tiers
from booking_core.experiences.service import find, get

__all__ = ["Tier", "find", "get", "lowest_minor", "price_tiers", "tiers"]
