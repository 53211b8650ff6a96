"""Amounts of money as they are typed: minor units, or with a decimal point the currency's own unit."""

import re

from booking_cli.context import CliError

_AMOUNT = re.compile(r"(\d{1,18})(?:\.(\d{1,6}))?", re.ASCII)
_MOST = 2**63 - 1


def parse_amount(text: str, currency: str) -> int:
    """Return an amount in minor units: `50000` as it stands, `500.00` by the digits of the currency.

    Raises:
        CliError: it is neither, it has more decimals than the currency, or it is larger than an amount can be.
    """
    from booking_core.wire.currencies import minor_digits

    digits = minor_digits(currency)
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise CliError(f"{text!r} is not an amount.", code="bad_amount", hint=_examples(digits, currency))
    whole, decimals = match[1], match[2]
    if decimals is not None and len(decimals) > digits:
        raise CliError(
            f"{text!r} has more decimals than {currency}.", code="bad_amount", hint=_examples(digits, currency)
        )
    amount = int(whole) if decimals is None else int(whole + decimals.ljust(digits, "0"))
    if amount > _MOST:
        raise CliError(f"{text!r} is more than an amount can be.", code="bad_amount")
    return amount


def _examples(digits: int, currency: str) -> str:
    if not digits:
        return f"write 50000 for 50000 {currency}"
    return f"write 500.{'0' * digits} {currency}, or 500{'0' * digits} in minor units"
