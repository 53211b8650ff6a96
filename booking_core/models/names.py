"""Comparing names as people type them."""

import re
import unicodedata

_WORD = re.compile(r"[^\s,;]+")


def words(text: str) -> list[str]:
    """Return the words of a search, to be compared by `has_words`."""
    return _WORD.findall(folded(text))


def has_words(name: str | None, words: list[str]) -> bool:
    """Return whether every word occurs in the name, in any order and case, with or without accents."""
    folded_name = folded(name or "")
    return all(word in folded_name for word in words)


def folded(text: str) -> str:
    """Return the text without case and accents: the same on every machine and in both databases."""
    return "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
