"""Lengths of time as they are typed: 90d, 24h, 10m."""

import re

import typer

_LENGTH = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_S = 100 * 366 * 86_400
"""A century: longer is a slip of the finger."""


def length_us(text: str) -> int:
    """The length in microseconds, the unit of instants.

    Raises:
        BadParameter: it is not written as a whole number and one of s, m, h, d, w; or 0.
    """
    if text == "0":
        return 0
    match = _LENGTH.fullmatch(text)
    if not match or int(match[1]) * _UNITS[match[2]] > _LONGEST_S:
        raise typer.BadParameter(f"{text!r} is no length of time; write 90d, 24h or 10m.")
    return int(match[1]) * _UNITS[match[2]] * 1_000_000
