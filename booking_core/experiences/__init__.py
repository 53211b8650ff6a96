"""Experiences: the catalogue, read. Writing it belongs to the room `catalog`."""

from booking_core.experiences.rules import price_tiers
from booking_core.experiences.service import find, get

__all__ = ["find", "get", "price_tiers"]
