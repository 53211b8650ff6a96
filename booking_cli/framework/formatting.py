"""Format values for a terminal and for tab-separated lines."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

Item = Mapping[str, Any]

RED, YELLOW, DIM, BOLD, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[1m", "\x1b[0m"
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = (
    {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
    | {code: f"\\u{code:04x}" for code in (*_BIDI, 0x2028, 0x2029)}
    | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
)
"""Escapes for control characters. A name in the database must not move the cursor of the terminal, reorder the text
beside it, or break a line of TSV."""


def wants_color(stream: TextIO, choice: str) -> bool:
    """Return whether to write colors. --color wins over NO_COLOR, that over FORCE_COLOR and CLICOLOR_FORCE, and those
    over the kind of stream."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_path(item: Item, path: str) -> bool:
    """Return whether an item has a field at a dotted path. A null above it counts, since it may be an object in another
    item."""
    value: Any = item
    for part in path.split("."):
        if value is None:
            return True
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def paths_of(items: Sequence[Item], prefix: str = "") -> Iterator[str]:
    """Yield every path of the items."""
    for item in items:
        for name, value in item.items():
            yield f"{prefix}{name}"
            if isinstance(value, Mapping):
                yield from paths_of([value], f"{prefix}{name}.")


def value_at(item: Item, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def picked(item: Item, paths: Sequence[str]) -> dict[str, Any]:
    """Return the item with only these paths, nested as before."""
    result: dict[str, Any] = {}
    for path in paths:
        if any(path.startswith(f"{other}.") for other in paths):
            continue  # it is part of another selected path
        *parents, last = path.split(".")
        place = result
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = value_at(item, path)
    return result


def is_money(value: Any) -> bool:
    """Return whether a value is an amount of money as the API writes it."""
    return isinstance(value, Mapping) and value.keys() == {"amount_minor", "currency"}


def money(amount: Mapping[str, Any], *, separator: str = "") -> str:
    """Return an amount with the digits of its currency: 890.00 NOK, 25000 CLP.

    Args:
        separator: is written between thousands, as in 25,000 CLP. Without one the text is an amount that options take.
    """
    from booking_core.models.currencies import minor_digits

    minor, currency = int(amount["amount_minor"]), str(amount["currency"])
    digits = minor_digits(currency)
    whole, part = divmod(abs(minor), 10**digits)
    text = f"{whole:,}".replace(",", separator) + (f".{part:0{digits}}" if digits else "")
    return f"{'-' if minor < 0 else ''}{text} {currency}"


def grouped_money(amount: Mapping[str, Any]) -> str:
    """Return an amount for tables, with commas between thousands: 5,800.00 NOK."""
    return money(amount, separator=",")


def readable(value: Any) -> str:
    """Return a value for tables: an amount with its thousands apart, a timestamp to the minute."""
    return grouped_money(value) if is_money(value) else shortened(text_of(value))


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar of that width. It is empty only for nothing, and full only for the whole."""
    filled = min(width, max(int(part > 0), int(width * part / whole))) if whole else 0
    full, empty = "█░" if "utf" in (sys.stdout.encoding or "").lower() else "#."
    return full * filled + empty * (width - filled)


def block(part: float, whole: float) -> str:
    """Return a character of that height: a space without a whole or below zero, and full only for the whole."""
    levels = "▁▂▃▄▅▆▇█" if "utf" in (sys.stdout.encoding or "").lower() else ".:-=+*%#"
    return " " if not whole or part < 0 else levels[min(7, int(7 * part / whole))]


def flat(item: Item, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field of an item with its path and its text for tables. A list of objects gives a line for each."""
    for key, value in item.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not is_money(value):
            yield from flat(value, f"{path}.")
        elif isinstance(value, list | tuple) and value and all(isinstance(entry, Mapping) for entry in value):
            for number, entry in enumerate(value):
                yield path if number == 0 else "", ", ".join(_texts(entry))
        elif isinstance(value, list | tuple):
            yield path, ", ".join(map(readable, value))
        else:
            yield path, "" if value == {} else readable(value)


def _texts(item: Item) -> Iterator[str]:
    """Yield the texts of an object within a list. A number says what it counts, since it has no heading."""
    for key, value in item.items():
        if text := readable(value):
            yield f"{key} {text}" if isinstance(value, int | float) else text


def text_of(value: Any) -> str:
    """Return a value on one line: empty for null, commas in a list, JSON for deeper nesting."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_money(value):
        return money(value)
    if isinstance(value, list | tuple) and not any(isinstance(entry, Mapping | list) for entry in value):
        return ",".join(map(text_of, value))
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | list | tuple) else str(value)
    return text.translate(_ESCAPES)


def one_line(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    return " ".join(text.split()).translate(_ESCAPES)


def shortened(text: str) -> str:
    """Return a timestamp to the minute, in the organization's time zone, or with a Z in UTC; any other text stays."""
    is_utc = len(text) == 20 and text[19:] == "Z"
    is_timestamp = (is_utc or (len(text) == 25 and text[22:23] == ":")) and text[10:11] == "T" and text[4:5] == "-"
    return f"{text[:10]} {text[11:16]}{'Z' * is_utc}" if is_timestamp else text


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 booking`, `2 bookings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def booking_text(booking: Mapping[str, Any]) -> str:
    """Return a booking's number, guest, experience and start."""
    title = booking["experience"]["title"]
    start = start_text(booking["departure"])
    return f"booking {booking['booking_number']} of {booking['customer']['name']} ({title}, {start})"


def start_text(departure: Mapping[str, Any]) -> str:
    """Return the start of a departure to the minute, in the organization's time zone."""
    return str(departure["starts_at"])[:16].replace("T", " ")
