"""Parsers for arguments and options: ids, dates, durations, amounts, timestamps, counts, choices, headers, files."""

import contextlib
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import typer

from booking_cli.framework import event_types
from booking_cli.framework.errors import TYPO, bad_file, closest, invalid_choice

_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_MAX_S = 100 * 366 * 86_400
"""A century. A longer duration is a typing mistake."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_KEY_LENGTHS = range(8, 201)
_AMOUNT = re.compile(r"(?P<number>\d{1,18}|\d{1,18}\.\d{1,6})(?: ?(?P<currency>[A-Za-z]{3}))?", re.ASCII)
_MINOR_MAX = 2**63 - 1
_FILE_BYTES_MAX = 64 * 1024 * 1024
OFFERED = "offered"
"""The attribute of a parser that holds the words of completion."""
_NUMBER_DIGITS_MAX = 18
"""The digits that any 64-bit booking number fits into."""


def identifier(text: str) -> str:
    """Return an id that is safe as a segment of a URL path. Whether it exists is checked by the service.

    Raises:
        BadParameter: the id would change the path.
    """
    if text in ("", ".", "..") or any(c in text for c in "/\\?#%") or not text.isprintable() or not text.isascii():
        raise typer.BadParameter(f"{text!r} is not an id.")
    return text


def is_booking_number(text: str) -> bool:
    """Return whether the text is a booking number rather than an id."""
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX


def day(text: str) -> str:
    """Return a date as YYYY-MM-DD; `today` and `tomorrow` are dates of this machine.

    Raises:
        BadParameter: the text is none of these.
    """
    if text in ("today", "tomorrow"):
        return (datetime.now().astimezone().date() + timedelta(days=text == "tomorrow")).isoformat()
    try:
        if len(text) != len("2026-12-24"):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date; write 2026-12-24, today or tomorrow.") from None


def timestamp(text: str) -> str:
    """Return an ISO 8601 timestamp, from one or from an age such as 2h or 30m.

    A timestamp without an offset is in the organization's time zone.

    Raises:
        BadParameter: the text is neither.
    """
    if _DURATION.fullmatch(text):
        return (datetime.now(UTC) - timedelta(microseconds=duration_us(text))).isoformat(timespec="seconds")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; write 2h, 30m or 2026-11-20T09:00:00+01:00.") from None
    return text


def counts(texts: list[str], name: str) -> list[dict[str, Any]]:
    """Return `{name: ID, "count": COUNT}` for each ID=COUNT.

    Raises:
        BadParameter: a text has another form.
    """
    return [_count(text, name) for text in texts]


def _count(text: str, name: str) -> dict[str, Any]:
    item_id, equals, count = text.rpartition("=")
    if not (equals and item_id and count.isascii() and count.isdigit()) or int(count) < 1:
        raise typer.BadParameter(f"{text!r} is not ID=COUNT, such as adult=2.")
    return {name: item_id, "count": int(count)}


def texts_by_name(texts: list[str]) -> dict[str, str]:
    """Return a dict of NAME=TEXT; a text may contain `=`.

    Raises:
        BadParameter: a text has another form, or a name occurs twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not NAME=TEXT, such as channel=acme.")
        if name in values:
            raise typer.BadParameter(f"{name!r} is given twice.")
        values[name] = value
    return values


def idempotency_key(text: str) -> str:
    """Return an idempotency key of 8 to 200 printable ASCII characters.

    Raises:
        BadParameter: the service would refuse the key.
    """
    if len(text) not in _KEY_LENGTHS or not text.isascii() or not text.isprintable() or text != text.strip():
        raise typer.BadParameter(
            "an idempotency key has 8 to 200 printable ASCII characters, and no blank at its ends."
        )
    return text


def header(text: str) -> tuple[str, str]:
    """Return the name and the value of an HTTP header from `Name: value`.

    Raises:
        BadParameter: the text has another form.
    """
    name, colon, value = text.partition(":")
    name = name.strip()
    if not (colon and _HEADER_NAME.fullmatch(name) and text.isascii() and text.isprintable()):
        raise typer.BadParameter(f"{text!r} is not NAME:VALUE, such as 'X-Tenant: fjord'.")
    return name, value.strip()


def offers(*words: str) -> Callable[[Callable[[str], str]], Callable[[str], str]]:
    """Declare the words that completion offers for a parser."""

    def declare(parse: Callable[[str], str]) -> Callable[[str], str]:
        setattr(parse, OFFERED, words)
        return parse

    return declare


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser that takes one of the choices."""

    @offers(*choices)
    def parse(text: str) -> str:
        if text not in choices:
            raise typer.BadParameter(invalid_choice(text, choices))
        return text

    return parse


def one_of_or_newer(*choices: str) -> Callable[[str], str]:
    """Return a parser for words that the service may extend: it refuses only likely typing mistakes."""

    @offers(*choices)
    def parse(text: str) -> str:
        if text not in choices and closest(text, choices, cutoff=TYPO):
            raise typer.BadParameter(invalid_choice(text, choices, cutoff=TYPO))
        return text

    return parse


@offers(*event_types.WORDS)
def event_type(text: str) -> str:
    """Return an event type, a prefix such as `booking.*`, or `*`.

    Raises:
        BadParameter: the text is a likely typing mistake, or a prefix that matches no type.
    """
    if event_types.matching(text):
        return text
    if "*" in text:
        raise typer.BadParameter(invalid_choice(text, event_types.PREFIXES))
    return one_of_or_newer(*event_types.TYPES)(text)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; `-` is stdin.

    Raises:
        CliError: the file cannot be read, or has more than 64 MiB.
    """
    is_stdin = str(path) == "-"
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if is_stdin else path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise bad_file(path, "has more than 64 MiB", code="file_too_large")
    return content


def duration_us(text: str) -> int:
    """Return the duration in microseconds, the unit of instants.

    Raises:
        BadParameter: the text is neither 0 nor a whole number followed by s, m, h, d or w.
    """
    if text == "0":
        return 0
    match = _DURATION.fullmatch(text)
    if not match or int(match[1]) * _SECONDS[match[2]] > _MAX_S:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90d, 24h or 10m.")
    return int(match[1]) * _SECONDS[match[2]] * 1_000_000


def duration_s(text: str) -> int:
    """Return the duration of `duration_us` in seconds."""
    return duration_us(text) // 1_000_000


def aware_datetime(text: str, timezone: str) -> datetime:
    """Return the instant of an ISO 8601 timestamp; one without an offset is in the given time zone."""
    from zoneinfo import ZoneInfo

    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=ZoneInfo(timezone))


def is_there(path: Path) -> bool:
    """Return whether a file exists; False for a path that is too long or leads through a file."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def amount_text(text: str) -> str:
    """Return the text of an amount, stripped. The currency is not known yet.

    Raises:
        BadParameter: the text is not an amount in any currency.
    """
    text = text.strip()
    if not _AMOUNT.fullmatch(text):
        raise typer.BadParameter(_amount_message(text, "NOK", 2))
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
        raise typer.BadParameter(_amount_message(text, currency, digits))
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


def _amount_message(text: str, currency: str, digits: int) -> str:
    if digits == 0:
        return f"{text!r} is not an amount of {currency}; write 25000, in whole {currency}."
    zeros = "0" * digits
    return f"{text!r} is not an amount; write 500.{zeros}, or minor units: 500{zeros} is 500.{zeros} {currency}."
