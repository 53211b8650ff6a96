"""Links: rewritten when a page is copied into the site, and checked in the built HTML."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CODE_OR_LINK = re.compile(
    r"(?P<code>(?P<ticks>`+)(?:(?!\n\n)[\s\S])*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<image>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"
)
_TAG = re.compile(r"<(a|script|img|iframe|source|link)\b([^>]*)>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_ANCHOR = re.compile(r'\s(?:id|name)="([^"]+)"')
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


@dataclass(frozen=True, slots=True)
class _Document:
    """The links and the anchors of a page of the site."""

    anchors: frozenset[str]
    links: list[str]
    loaded: list[str]


def problems(site: Path) -> Iterator[str]:
    """Yield a line for each broken link or anchor of a built site, and for each resource loaded from another site."""
    documents = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, document in documents.items():
        name = path.relative_to(site)
        for target in document.loaded:
            if urlsplit(target).scheme or target.startswith("//"):
                yield f"{name} loads {target}"
            elif not _file(site, path, target).exists():
                yield f"{name} loads {target}, which is not there"
        if path.name != "404.html":
            yield from (f"{name}: {problem}" for problem in _broken(path, document, documents))


def _broken(path: Path, document: _Document, documents: Mapping[Path, _Document]) -> Iterator[str]:
    for link in document.links:
        url = urlsplit(link)
        if url.scheme or link.startswith("//"):
            continue
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        if target.is_dir():
            target = target / "index.html"
        if not target.exists():
            yield f"{link} leads nowhere"
        elif url.fragment and target in documents and unquote(url.fragment) not in documents[target].anchors:
            yield f"{link} has no such anchor"


def _file(site: Path, page: Path, target: str) -> Path:
    """Return the file that a page loads; only the page of error 404 has paths from the root."""
    path = unquote(urlsplit(target).path)
    return site / path.lstrip("/") if path.startswith("/") else page.parent / path


def _read(path: Path) -> _Document:
    """Read the tags of a page. Text and code in it are escaped, so everything that looks like a tag is a tag."""
    text = path.read_text(encoding="utf-8")
    tags = [(match[1], dict(_ATTRIBUTE.findall(match[2]))) for match in _TAG.finditer(text)]
    return _Document(
        anchors=frozenset(_ANCHOR.findall(text)),
        links=[unescape(values["href"]) for tag, values in tags if tag == "a" and "href" in values],
        loaded=[unescape(address) for tag, values in tags if (address := _loaded(tag, values))],
    )


def _loaded(tag: str, values: Mapping[str, str]) -> str:
    """Return the address that a browser fetches for a tag automatically."""
    if tag == "link":
        return "" if values.get("rel") in ("canonical", "next", "prev", "alternate") else values.get("href", "")
    return "" if tag == "a" else values.get("src", "")
