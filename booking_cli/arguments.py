"""Arguments as they are typed: ids, days, instants, and how many of what."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import typer

from booking_cli.times import length_us

_RELATIVE = re.compile(r"\d{1,9}[smhdw]", re.ASCII)
_KEY_LENGTHS = range(8, 201)


def identifier(text: str) -> str:
    """An id that can stand in a path. Whether there is such a thing is for the service to say.

    Raises:
        BadParameter: it would lead to another path.
    """
    if text in ("", ".", "..") or any(c in text for c in "/\\?#%") or not text.isprintable() or not text.isascii():
        raise typer.BadParameter(f"{text!r} is no id.")
    return text


def day(text: str) -> str:
    """A day of the organization, or the word for one of this machine.

    Raises:
        BadParameter: it is neither YYYY-MM-DD nor today or tomorrow.
    """
    if text in ("today", "tomorrow"):
        found = datetime.now().astimezone().date() + timedelta(days=text == "tomorrow")
        return found.isoformat()
    try:
        if len(text) != len("2026-12-24"):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day; write 2026-12-24, today or tomorrow.") from None


def instant(text: str) -> str:
    """An instant: so long ago (2h, 30m), or ISO 8601; without an offset it is the organization's time.

    Raises:
        BadParameter: it is neither.
    """
    if _RELATIVE.fullmatch(text):
        return (datetime.now(UTC) - timedelta(microseconds=length_us(text))).isoformat(timespec="seconds")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write 2h, 30m or 2026-11-20T09:00:00+01:00.") from None
    return text


def counted(texts: list[str], name: str) -> list[dict[str, Any]]:
    """Lines of `{name, count}` from ID=COUNT.

    Raises:
        BadParameter: one is written in another way.
    """
    return [_counted(text, name) for text in texts]


def _counted(text: str, name: str) -> dict[str, Any]:
    what, equals, count = text.rpartition("=")
    if not (equals and what and count.isascii() and count.isdigit()) or int(count) < 1:
        raise typer.BadParameter(f"{text!r} is not ID=COUNT, such as adult=2.")
    return {name: what, "count": int(count)}


def idempotency_key(text: str) -> str:
    """A key that the service takes.

    Raises:
        BadParameter: it is too short or too long, or holds something that no key holds.
    """
    if len(text) not in _KEY_LENGTHS or not text.isascii() or not text.isprintable() or text != text.strip():
        raise typer.BadParameter(
            "an idempotency key has 8 to 200 printable ASCII characters, and no blank at its ends."
        )
    return text


def one_of(*choices: str) -> Any:
    """A parser for one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(choices)}.")
        return text

    return parse
