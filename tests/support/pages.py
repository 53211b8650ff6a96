"""The pages of docs/ and their blocks of code.

A block that cannot run is marked by a comment in front of it: `<!-- not run: the reason -->`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_MARK = r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?"
_BLOCK = re.compile(_MARK + r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code. `reason` is why it is not run; empty for a block that is run."""

    language: str
    text: str
    reason: str


def pages() -> list[str]:
    """Return every page by its path in docs/."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    for match in _BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        yield Block(match["language"], match["text"], match["reason"] or "")


def runnable(page: str, language: str) -> list[str]:
    """Return the blocks of a language that a test has to run."""
    return [block.text for block in blocks(page) if block.language == language and not block.reason]


def commands(page: str) -> list[list[str]]:
    """Return the commands of each shell block that a test has to run; lines that end with a backslash are joined."""
    return [
        re.findall(r"^\$ ((?:[^\n]*\\\n|[^\n']*'[^']*'(?=[^\n]*\n))*[^\n]*)", text, re.MULTILINE)
        for text in runnable(page, "console")
    ]


def lines(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the command lines of all blocks of a page as words, also of blocks that are not run."""
    for block in blocks(page):
        yield from lines_of(block)


def lines_of(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield the command lines of a block as words."""
    if block.language == "console":
        joined = block.text.replace("\\\n", " ")
        for line in re.findall(r"^ *\$ (.*(?:\n(?! *\$ ).*'.*)*)", joined, re.MULTILINE):
            yield line, words(line)


def words(line: str) -> list[str]:
    """Return the words of a command line without the variables that it sets."""
    try:
        split = shlex.split(line, comments=True)
    except ValueError:  # a text of several lines
        split = line.split()
    while split and (re.fullmatch(r"[A-Z_]+=.*", split[0]) or split[0] == "export"):
        split = split[1:]
    return split
