"""Gift cards."""

from booking_core.gift_cards.service import find, get

__all__ = ["find", "get"]
