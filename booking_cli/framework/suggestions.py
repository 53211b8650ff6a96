"""Find the word that a mistyped one was probably meant to be."""

from collections.abc import Iterable, Sequence

_MAX_LISTED = 6
"""The number of choices that fit into a line."""
SIMILAR = 0.6
TYPO = 0.85
"""A similarity that only a typing mistake has. It is used where the service may know newer words than this command."""


def closest(word: str, choices: Iterable[str], *, cutoff: float = SIMILAR) -> str | None:
    """Return the choice that is spelt most like the word, or the only one that begins with it."""
    from difflib import get_close_matches

    by_lower = {choice.lower(): choice for choice in choices}
    if matches := get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff):
        return by_lower[matches[0]]
    starting = [choice for lower, choice in by_lower.items() if word and lower.startswith(word.lower())]
    return starting[0] if len(starting) == 1 else None


def invalid_choice(word: str, choices: Sequence[str], *, cutoff: float = SIMILAR) -> str:
    """Return the error message for a word that is none of the choices.

    It suggests the closest choice, and lists all choices when they fit into a line.
    """
    suggestion = closest(word, choices, cutoff=cutoff)
    if suggestion and len(choices) > _MAX_LISTED:
        return f"There is no {word!r}. Did you mean {suggestion!r}?"
    message = f"{word!r} is not one of {', '.join(choices)}."
    return f"{message} Did you mean {suggestion!r}?" if suggestion else message
