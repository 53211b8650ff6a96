"""Experiences: queries, prices and texts. The package `catalog` writes them."""

from booking_core.catalogue.experiences.rules import (
    Tier,
    advertised_minor,
    price_tiers,
    texts_for,
    tiers,
    unknown_names,
)
from booking_core.catalogue.experiences.service import find, get, unit_types
