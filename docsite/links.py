"""Links of a page, rewritten when it is copied into the site."""

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path

_CODE_OR_LINK = re.compile(
    r"(?P<code>(?P<ticks>`+)(?:(?!\n\n)[\s\S])*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<image>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"
)
_FENCE = re.compile(r"^ *(```|~~~)")


class BrokenLink(Exception):
    """A link to a page or a file that does not exist."""


def rewritten(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Return the text with each Markdown link replaced, except in code."""
    parts: list[list[str]] = [[]]
    is_code = False
    for line in text.split("\n"):
        is_fence = bool(_FENCE.match(line))
        if is_fence and not is_code:
            parts.append([])
        parts[-1].append(line)
        if is_fence and is_code:
            parts.append([])
        is_code ^= is_fence
    return "\n".join(_linked("\n".join(part), replace) for part in parts if part)


def _linked(part: str, replace: Callable[[re.Match[str]], str]) -> str:
    if _FENCE.match(part):
        return part
    return _CODE_OR_LINK.sub(lambda match: match[0] if match["code"] else replace(match), part)


class Pages:
    """The pages of the site by their source files."""

    def __init__(self, root: Path, moved: Mapping[str, str], generated: frozenset[str]) -> None:
        self.root = root
        self.moved = moved
        """Files outside docs/ with the places of their pages."""
        self.generated = generated

    def place(self, source: str) -> str | None:
        """Return the place in the site of a file of the repository."""
        if source in self.moved:
            return self.moved[source]
        inside = source.removeprefix("docs/")
        if inside != source and (inside in self.generated or (self.root / source).is_file()):
            return inside
        return None

    def copied(self, source: str, page: str, text: str) -> str:
        """Return the text of a file as the text of its page: its links lead to pages.

        Links to other files of the repository become their paths, since the site does not hold them.

        Raises:
            BrokenLink: a link leads nowhere.
        """

        def replace(match: re.Match[str]) -> str:
            image, words, target = match["image"], match["words"], match["target"]
            if re.match(r"[a-z]+:|#", target):
                return match[0]
            path, hash_, anchor = target.partition("#")
            wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            if (self.root / wanted).is_dir() and f"{wanted}/README.md" in self.moved:
                wanted = f"{wanted}/README.md"
            place = self.place(wanted)
            if place is not None:
                return f"{image}[{words}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{hash_}{anchor})"
            if not (self.root / wanted).exists():
                raise BrokenLink(f"{source}: {target}")
            return words if wanted in words else f"{words} (`{wanted}`)"

        return rewritten(text, replace)
