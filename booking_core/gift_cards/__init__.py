"""Gift cards: issued, spent on bookings, given back, switched off and on, read.

A card's balance is its face value and its ledger; what a booking takes and gets back is written with the booking.
"""

from booking_core.gift_cards.rules import GiftCardIssue
from booking_core.gift_cards.service import Redeemed, deactivate, find, get, issue, reactivate, redeem, restore

__all__ = ["GiftCardIssue", "Redeemed", "deactivate", "find", "get", "issue", "reactivate", "redeem", "restore"]
