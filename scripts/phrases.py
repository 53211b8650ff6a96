"""Counts phrases that make sentences hard to read, in the prose of each area, against a ceiling that only falls.

    python -m scripts.phrases                       # fails above a ceiling of scripts/phrases.toml
    python -m scripts.phrases --list booking_core   # shows each place, with the plain form
    python -m scripts.phrases --lower               # writes the present counts where they are lower

Prose is docstrings, comments and texts of four words and more in Python files, and Markdown outside code.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.style import ROOT, tracked

CEILINGS = ROOT / "scripts" / "phrases.toml"
AREAS = {
    "booking_core": ("booking_core/**/*.py", "booking_core/**/*.md"),
    "booking_server": ("booking_server/**/*.py", "booking_server/**/*.md"),
    "booking_sdk": ("booking_sdk/**/*.py", "booking_sdk/**/*.md"),
    "booking_cli": ("booking_cli/**/*.py", "booking_cli/**/*.md"),
    "webhook_verify": ("webhook_verify/**/*.py", "webhook_verify/**/*.md"),
    "tests": ("tests/**/*.py",),
    "docs": ("docs/**/*.md", "*.md", "deploy/**/*.md", "examples/**/*.md", "docsite/**/*.py"),
    "decisions": ("decisions/*.md",),
    "bench": ("bench/**/*.py", "bench/**/*.md", "scripts/*.py"),
}
GENERATED = re.compile(r"/_sync/|docs/api-changelog\.md|scripts/(?:phrases|style)\.py")
PHRASES = {
    "what": (
        r"\bwhat (?!if\b)(?:is|was|are|were|has|have|had|it|they|he|the|a|an|each|every|\w+s)\b",
        "name the thing",
    ),
    "preposition which": (r"\b(?:of|for|by|in|on|at|to|from|with) which\b", "begin a new sentence"),
    "those of": (r"\b(?:those|that) (?:of|in|on|for|with|from) ", "repeat the noun"),
    "one that": (r"\b(?:the )?one that\b", "a noun"),
    "so that": (r", so that\b", "a full stop, or so"),
    "of its own": (r"\bof (?:its|their|his) own\b", "its own X, or a separate X"),
    "asks": (r"\b(?:is|are|was) asked\b", "is called, is queried"),
    "told": (r"\b(?:is|are|was|were|be) told\b|\bhears\b", "receives, is informed"),
    "behind": (r"\bbehind\b", "after, following, through"),
    "whatever": (r"\b(?:whatever|whoever|whichever|whomever)\b", "any, all, or the thing's name"),
    "is gone": (r"\b(?:is|are|was|were) (?:over|gone|away)\b", "has ended, is deleted, is unavailable"),
    "lies": (r"\b(?:stands|lies)\b", "is, applies"),
    "by itself": (r"\bby (?:itself|themselves)\b", "separately, automatically"),
    "left to": (r"\bleft to\b", "is handled by"),
    "anew": (r"\b(?:anew|in vain|for ever|in the place of)\b", "again; without success; instead of"),
    "owed": (r"\b(?:owed|owes)\b", "pending, due"),
    "put off": (r"\b(?:gives back|given back|put off|puts off|put down)\b", "returns, releases; defers; records"),
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, (pattern, _) in PHRASES.items()}
_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_TEXT_WORDS = 4


class Place(NamedTuple):
    """A phrase in a file."""

    path: str
    line: int
    phrase: str
    text: str


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a file, each with its first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _paragraphs(_CODE.sub(lambda code: "\n" * code[0].count("\n"), text))
        return
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and len(node.value.split()) >= _TEXT_WORDS:  # type: ignore[attr-defined]
            yield node.lineno, node.value  # type: ignore[attr-defined]
    yield from _comments(text)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    line = 1
    for paragraph in text.split("\n\n"):
        yield line, paragraph
        line += paragraph.count("\n") + 2


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments; consecutive lines are one text."""
    start, last, lines = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and lines:
            yield start, " ".join(lines)
            lines = []
        start = start if lines else token.start[0]
        lines.append(token.string.lstrip("# "))
        last = token.start[0]
    if lines:
        yield start, " ".join(lines)


def places(area: str) -> Iterator[Place]:
    """Yield every phrase of an area."""
    for path in tracked(*AREAS[area]):
        name = path.relative_to(ROOT).as_posix()
        if GENERATED.search(name):
            continue
        for line, text in prose(path):
            flat = re.sub(r"\s+", " ", text)
            for phrase, pattern in _PATTERNS.items():
                for found in pattern.finditer(flat):
                    yield Place(name, line, phrase, flat[max(found.start() - 70, 0) : found.end() + 60])


def counts() -> dict[str, dict[str, int]]:
    """Return the number of each phrase in each area."""
    found = {area: Counter(place.phrase for place in places(area)) for area in AREAS}
    return {area: {phrase: found[area][phrase] for phrase in PHRASES} for area in AREAS}


def _write(ceilings: dict[str, dict[str, int]]) -> None:
    lines = ["# The most of each phrase in each area; `python -m scripts.phrases --lower` writes it."]
    for area, by_phrase in ceilings.items():
        lines += ["", f"[{area}]", *(f'"{phrase}" = {count}' for phrase, count in by_phrase.items() if count)]
    CEILINGS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Compare with the ceilings, list the places of an area, or lower the ceilings."""
    parser = argparse.ArgumentParser(description="Count phrases that are hard to read.")
    parser.add_argument("--list", choices=AREAS, help="list the places of an area")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to the present counts")
    arguments = parser.parse_args()
    if arguments.list:
        sys.stdout.writelines(
            f"{place.path}:{place.line} [{place.phrase}: {PHRASES[place.phrase][1]}] {place.text}\n"
            for place in places(arguments.list)
        )
        return 0
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
    present = counts()
    above = [
        f"{area}: {count} of “{phrase}”, at most {ceilings.get(area, {}).get(phrase, 0)} ({PHRASES[phrase][1]})"
        for area, by_phrase in present.items()
        for phrase, count in by_phrase.items()
        if count > ceilings.get(area, {}).get(phrase, 0)
    ]
    if arguments.lower:
        known = {
            area: {
                phrase: min(count, (ceilings or present).get(area, {}).get(phrase, 0))
                for phrase, count in found.items()
            }
            for area, found in present.items()
        }
        _write(known)
        return 0
    sys.stdout.writelines(f"{line}\n" for line in above)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
