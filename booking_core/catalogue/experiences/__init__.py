"""Experiences: queries and prices. The package `catalog` writes them."""

from booking_core.catalogue.experiences.pricing import Tier, advertised_minor, tiers
from booking_core.catalogue.experiences.rules import price_tiers
from booking_core.catalogue.experiences.service import find, get
from booking_core.catalogue.experiences.translations import texts_for, unknown_names

__all__ = ["Tier", "advertised_minor", "find", "get", "price_tiers", "texts_for", "tiers", "unknown_names"]
