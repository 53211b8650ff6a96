"""Gift cards: issue, redeem, return an amount, deactivate and reactivate, read.

A card's balance is its face value and its ledger; the ledger entries of a booking are written with the booking.
"""

from booking_core.payments.gift_cards.rules import GiftCardIssue
from booking_core.payments.gift_cards.service import (
    Redeemed,
    Redemption,
    deactivate,
    find,
    find_transactions,
    get,
    issue,
    lock_redemption,
    reactivate,
    redeem,
    restore,
)
