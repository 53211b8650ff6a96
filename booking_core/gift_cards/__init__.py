"""Gift cards: read, and how their codes are kept."""

from booking_core.gift_cards.rules import code_hashes, hash_code, last4, normalise_code, seal_code
from booking_core.gift_cards.service import find, get

__all__ = ["code_hashes", "find", "get", "hash_code", "last4", "normalise_code", "seal_code"]
