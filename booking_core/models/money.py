"""Money: an integer of the currency's minor unit, and arithmetic that refuses to mix currencies."""

from decimal import Decimal
from typing import Any

from booking_core.models.base import Resource
from booking_core.models.currencies import CURRENCIES, minor_digits

__all__ = ["CURRENCIES", "Money", "formatted", "minor_digits", "money_json", "totals_json"]


def formatted(amount_minor: int, currency: str) -> str:
    """Return the amount for people: `1,780.00 NOK`, `25,000 CLP`, `12.345 KWD`."""
    digits = minor_digits(currency)
    return f"{Decimal(amount_minor).scaleb(-digits):,.{digits}f} {currency}"


def money_json(amount_minor: int, currency: str) -> dict[str, Any]:
    """Return the amount as Money in JSON, without the cost of a model."""
    return {"amount_minor": amount_minor, "currency": currency}


def totals_json(subtotal_minor: int, currency: str) -> dict[str, Any]:
    """Present the totals of an order without a discount and a gift card."""
    subtotal, nothing = money_json(subtotal_minor, currency), money_json(0, currency)
    return {"subtotal": subtotal, "discount": nothing, "gift_card": nothing, "total": subtotal}


class Money(Resource):
    """An amount in the minor unit of its currency: 89000 NOK is 890 kroner, 25000 CLP is 25,000 pesos."""

    amount_minor: int
    """Minor units of the currency."""
    currency: str
    """ISO 4217 code."""

    def to_decimal(self) -> Decimal:
        """Return the amount in the currency's major unit."""
        return Decimal(self.amount_minor).scaleb(-minor_digits(self.currency))

    def _same(self, other: "Money") -> int:
        if other.currency != self.currency:
            raise ValueError(f"cannot combine {self.currency} with {other.currency}")
        return other.amount_minor

    def __radd__(self, other: object) -> "Money":
        """Add to the 0 that `sum` begins with."""
        return self if other == 0 and isinstance(other, int) else NotImplemented

    def __add__(self, other: "Money") -> "Money":
        return Money(amount_minor=self.amount_minor + self._same(other), currency=self.currency)

    def __sub__(self, other: "Money") -> "Money":
        return Money(amount_minor=self.amount_minor - self._same(other), currency=self.currency)

    def __mul__(self, count: int) -> "Money":
        return Money(amount_minor=self.amount_minor * count, currency=self.currency)

    def __neg__(self) -> "Money":
        return self * -1

    def __lt__(self, other: "Money") -> bool:
        return self.amount_minor < self._same(other)

    def __le__(self, other: "Money") -> bool:
        return self.amount_minor <= self._same(other)

    def __gt__(self, other: "Money") -> bool:
        return self.amount_minor > self._same(other)

    def __ge__(self, other: "Money") -> bool:
        return self.amount_minor >= self._same(other)

    def __str__(self) -> str:
        return f"{self.to_decimal()} {self.currency}"
