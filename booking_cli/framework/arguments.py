"""Arguments as they are typed: ids, days, instants, and how many of what."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import typer

from booking_cli.framework import event_types
from booking_cli.framework.durations import length_us

_RELATIVE = re.compile(r"\d{1,9}[smhdw]", re.ASCII)
_KEY_LENGTHS = range(8, 201)
_LISTED = 6
"""So many choices fit into a line."""
_NEAR = 0.6
_TYPO = 0.85
"""Closer than this is a typing mistake, also where the service may know words that are newer than this command."""


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


def near(word: str, choices: Iterable[str], *, cutoff: float = _NEAR) -> str | None:
    """Return the choice that was probably meant: one that is spelt alike, or the only one that begins so."""
    from difflib import get_close_matches

    by_lower = {choice.lower(): choice for choice in choices}
    if found := get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff):
        return by_lower[found[0]]
    begun = [choice for lower, choice in by_lower.items() if word and lower.startswith(word.lower())]
    return begun[0] if len(begun) == 1 else None


def refusal(word: str, choices: Sequence[str], *, cutoff: float = _NEAR) -> str:
    """Return the sentence that refuses a word: it names what was probably meant, and lists what is taken unless that
    would hide it."""
    meant = near(word, choices, cutoff=cutoff)
    if meant and len(choices) > _LISTED:
        return f"There is no {word!r}. Did you mean {meant!r}?"
    listed = f"{word!r} is not one of {', '.join(choices)}."
    return f"{listed} Did you mean {meant!r}?" if meant else listed


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser for one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise typer.BadParameter(refusal(text, choices))
        return text

    return parse


def open_set(*choices: str) -> Callable[[str], str]:
    """Return a parser for words to which the service may add: only what looks like a typing mistake is refused, the
    rest is for the service to judge."""

    def parse(text: str) -> str:
        if text not in choices and near(text, choices, cutoff=_TYPO):
            raise typer.BadParameter(refusal(text, choices, cutoff=_TYPO))
        return text

    return parse


def event_type(text: str) -> str:
    """Parse an event type, a prefix such as `booking.*`, or `*`.

    Raises:
        BadParameter: it looks like a typing mistake, or it is a prefix of no type.
    """
    if event_types.matching(text):
        return text
    if "*" in text:
        raise typer.BadParameter(refusal(text, event_types.PREFIXES))
    return open_set(*event_types.TYPES)(text)
