"""Money: an integer of the currency's minor unit, and arithmetic that refuses to mix currencies."""

from decimal import Decimal

from booking_core.wire.base import Resource

CURRENCIES = frozenset(
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLF "
    "CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG "
    "HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA "
    "MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD "
    "RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX "
    "USD UYU UYW UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG".split()
)
"""ISO 4217 codes that money can be charged in."""

_DIGITS = {
    **dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split(), 0),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
    **dict.fromkeys("CLF UYW".split(), 4),
}


def minor_digits(currency: str) -> int:
    """How many decimal digits the currency's minor unit stands for (ISO 4217): 2 for NOK, 0 for CLP, 3 for KWD."""
    return _DIGITS.get(currency, 2)


class Money(Resource):
    """An amount in the minor unit of its currency: 89000 NOK is 890 kroner, 25000 CLP is 25,000 pesos."""

    amount_minor: int
    """Minor units of the currency."""
    currency: str
    """ISO 4217 code."""

    def to_decimal(self) -> Decimal:
        """The amount in the currency's major unit."""
        return Decimal(self.amount_minor).scaleb(-minor_digits(self.currency))

    def _same(self, other: "Money") -> int:
        if other.currency != self.currency:
            raise ValueError(f"cannot combine {self.currency} with {other.currency}")
        return other.amount_minor

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
