"""Amounts in the unit in which Stripe counts a currency (docs.stripe.com/currencies)."""

from booking_core.models.money import minor_digits

_DIGITS = {"ISK": 2, "UGX": 2, "MGA": 0}
"""Currencies whose minor unit differs from ISO 4217 (special cases): 5 ISK are 500."""


def to_gateway(amount_minor: int, currency: str) -> int:
    """Return the amount in Stripe's unit, rounded half up where that is larger than the minor unit."""
    ours = minor_digits(currency)
    theirs = _DIGITS.get(currency, ours)
    amount: int = (2 * amount_minor * 10**theirs + 10**ours) // (2 * 10**ours)
    return amount


def from_gateway(amount: int, currency: str) -> int | None:
    """Return the amount in minor units; None if it is not a whole number of them, which Stripe was never asked for."""
    ours = minor_digits(currency)
    theirs = _DIGITS.get(currency, ours)
    minor, rest = divmod(amount * 10**ours, 10**theirs)
    return None if rest else minor
