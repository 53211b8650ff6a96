"""Ask about an amount that was probably meant in the major unit, and report the recorded amount with the rest."""

from typing import Any

from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import Item, grouped_money

_UNLIKELY = 100
"""An amount below this part of the open amount was probably meant in the major unit."""


def require_intended(cli: Cli, text: str, minor: int, open_minor: int, currency: str) -> None:
    """Require a confirmation of an amount whose other reading is more likely.

    An amount without a decimal point is in minor units: 290 is 2.90 NOK. It needs a confirmation if it is the open
    amount in the major unit, or below 1 % of the open amount. Call this after the change: then each refusal comes
    first, and the question rolls the change back.

    Args:
        text: the amount as it was typed.

    Raises:
        Question: it needs a confirmation.
    """
    from booking_core.models.currencies import minor_digits

    factor = 10 ** minor_digits(currency)
    if "." in text or factor == 1 or not minor:
        return
    if minor * factor == open_minor or minor * _UNLIKELY < open_minor:
        read, other, open_ = (grouped_money(_amount(value, currency)) for value in (minor, minor * factor, open_minor))
        written = f"{minor}.{str(factor)[1:]}"
        cli.require_answer(
            f"{text} has no decimal point, so it is {read}; {other} is written {written}. Record {read} of {open_}?"
        )


def with_rest(item: Item, minor: int, open_minor: int, currency: str) -> dict[str, Any]:
    """Return the output of a change with the amount that it recorded, and the rest of the open amount."""
    left_minor = max(0, open_minor - minor)
    return {**item, "recorded": _amount(minor, currency), "left": _amount(left_minor, currency)}


def write_with_rest(cli: Cli, item: Item, *, of: str = "") -> None:
    """Write the output of `with_rest`, and its two amounts in a sentence.

    Args:
        of: the whole, as in " of the refund".
    """
    cli.render.one(item)
    cli.render.receipt(f"recorded {grouped_money(item['recorded'])}; {grouped_money(item['left'])}{of} left")


def _amount(minor: int, currency: str) -> dict[str, Any]:
    return {"amount_minor": minor, "currency": currency}
