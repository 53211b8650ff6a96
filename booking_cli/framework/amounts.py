"""Parse amounts of money: 500.00, 500.00 NOK, or 50000 in minor units."""

import re
from decimal import Decimal

import typer

_AMOUNT = re.compile(r"(?P<number>\d{1,18}|\d{1,18}\.\d{1,6})(?: ?(?P<currency>[A-Za-z]{3}))?", re.ASCII)
_MINOR_MAX = 2**63 - 1


def amount_text(text: str) -> str:
    """Return the text of an amount, stripped. The currency is not known yet.

    Raises:
        BadParameter: the text is not an amount in any currency.
    """
    text = text.strip()
    if not _AMOUNT.fullmatch(text):
        raise typer.BadParameter(_message(text, "NOK", 2))
    return text


def parse_amount(text: str, currency: str) -> int:
    """Return the amount in minor units of the currency (ISO 4217).

    Digits without a decimal point are minor units, as in the API: 50000 is 500.00 NOK. With a decimal point they are
    major units: 500.00. The code of the currency may follow.

    Raises:
        BadParameter: the text is not an amount, is more precise than the currency, or has another currency.
    """
    from booking_core.models.currencies import minor_digits

    digits = minor_digits(currency)
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(_message(text, currency, digits))
    if match["currency"] and match["currency"].upper() != currency:
        raise typer.BadParameter(f"{text!r} is in another currency; this amount is in {currency}.")
    return _minor(text, match["number"], currency, digits)


def _minor(text: str, number: str, currency: str, digits: int) -> int:
    if "." not in number:
        return int(number)
    minor = Decimal(number).scaleb(digits)
    if minor != minor.to_integral_value():
        raise typer.BadParameter(f"{text!r} is more precise than {currency}, which has {_decimals(digits)}.")
    if minor > _MINOR_MAX:
        raise typer.BadParameter(f"{text!r} is larger than an amount can be.")
    return int(minor)


def _decimals(digits: int) -> str:
    return {0: "no decimals", 1: "one decimal"}.get(digits, f"{digits} decimals")


def _message(text: str, currency: str, digits: int) -> str:
    if digits == 0:
        return f"{text!r} is not an amount of {currency}; write 25000, in whole {currency}."
    zeros = "0" * digits
    return f"{text!r} is not an amount; write 500.{zeros}, or minor units: 500{zeros} is 500.{zeros} {currency}."
