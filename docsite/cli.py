"""The reference of the command line, generated from the help that the commands print."""

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.main import main
from docsite.markdown import code, fence, page, table

FOLDER = "reference/cli"
_SECTION = re.compile(r"^(\w[\w ]*):$", re.MULTILINE)
_SHARED = "Global options"


@dataclass(frozen=True, slots=True)
class Help:
    """The parts of a help page."""

    usage: str
    prose: str
    sections: Mapping[str, str]


@cache
def printed(*arguments: str) -> str:
    """Return what a command writes to stdout, 80 columns wide, without colour."""
    out = io.StringIO()
    kept = os.environ.copy()
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
    try:
        with contextlib.redirect_stdout(out):
            status = main(list(arguments))
    finally:
        os.environ.clear()
        os.environ.update(kept)
    if status:
        raise RuntimeError(f"booking {' '.join(arguments)} ended with exit code {status}")
    return out.getvalue()


def parsed(text: str) -> Help:
    """Return the parts of a help page."""
    usage, _, rest = text.partition("\n\n")
    head, *pieces = _SECTION.split(rest)
    sections = {name: body.strip("\n") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
    return Help(" ".join(usage.split()).removeprefix("Usage: "), head, sections)


def prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; one that is set in columns stays as it is."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line.removeprefix("  ") for line in paragraph.splitlines()]
        if any(re.search(r"\S {2,}\S|^ {2,}", line) for line in lines):
            yield fence("\n".join(lines), "text")
        elif any(lines):
            yield _plain(" ".join(lines))


def _plain(text: str) -> str:
    """Return prose of a terminal as Markdown: options and placeholders are no markup."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", text) if "`" not in text else re.sub(r"([*<>])", r"\\\1", text)


def definitions(text: str) -> list[tuple[str, str]]:
    """Return terms and explanations of a list in two columns, whose explanations may go over several lines."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if re.match(r" {2}\S", line):
            term, _, explanation = re.sub(r" {2,}", "\0", line.strip(), count=1).partition("\0")
            found.append((term, explanation))
        elif found and line.strip():
            term, explanation = found[-1]
            found[-1] = (term, f"{explanation} {line.strip()}".strip())
    return found


class Reference:
    """The pages of the command line's reference."""

    def __init__(self) -> None:
        listed = json.loads(printed("commands", "-o", "json"))
        entries = listed["data"] if isinstance(listed, dict) else listed
        self.commands: list[tuple[str, ...]] = [tuple(entry["command"].split()[1:]) for entry in entries]
        self.groups: dict[str, list[tuple[str, ...]]] = {}
        for words in self.commands:
            self.groups.setdefault(words[0], []).append(words)
        self.root = parsed(printed("help"))
        self.shared = parsed(printed("help", "whoami")).sections[_SHARED]

    def pages(self) -> dict[str, str]:
        """Return the text of every page by its path."""
        pages = {f"{FOLDER}/index.md": self._overview()}
        return pages | {f"{FOLDER}/{name}.md": self._group(name, commands) for name, commands in self.groups.items()}

    def nav(self) -> list[Any]:
        """Return the navigation of the reference."""
        return [f"{FOLDER}/index.md", *({f"booking {name}": f"{FOLDER}/{name}.md"} for name in self.groups)]

    def _overview(self) -> str:
        parts = [_plain(" ".join(self.root.prose.split()))]
        listed = [name for names in SECTIONS.values() for name in names]
        rest = [name for name in self.groups if name not in listed]
        for title, names in (*SECTIONS.items(), ("More commands", rest)):
            rows = [(f"[booking {name}]({name}.md)", _plain(MODULES[name][1])) for name in names]
            parts += [f"## {title}", table(("command", "purpose"), rows)]
        exit_codes = [line.split("\t", 1) for line in printed("help", "exit-codes", "-o", "tsv").splitlines()]
        variables = [line.split("\t", 2) for line in printed("help", "environment", "-o", "tsv").splitlines()]
        return page(
            "Command line",
            "These pages are generated from the help of the `booking` command.",
            *parts,
            "## Options of every command",
            _options(self.shared),
            "## Output",
            fence(printed("help", "output"), "text"),
            "## Exit codes",
            table(("exit code", "meaning"), [(code(number), meaning) for number, meaning in exit_codes]),
            "## Environment variables",
            table(
                ("variable", "read by", "meaning"),
                [(", ".join(map(code, name.split(", "))), mode, _plain(text)) for name, mode, text in variables],
            ),
            description="Every command of `booking`, with its options and examples.",
        )

    def _group(self, name: str, commands: Sequence[tuple[str, ...]]) -> str:
        if commands == [(name,)]:
            return page(f"booking {name}", *self._command(commands[0]), description=f"The command `booking {name}`.")
        top = parsed(printed("help", name))
        parts = [*prose(top.prose)]
        rows = [
            (f"[booking {' '.join(words)}](#{'-'.join(words)})", _summary(parsed(printed("help", *words))))
            for words in commands
        ]
        parts.append(table(("command", "purpose"), rows))
        for words in commands:
            parts.append(f"## booking {' '.join(words)} {{ #{'-'.join(words)} }}")
            parts += self._command(words)
        return page(f"booking {name}", *parts, description=f"The commands of `booking {name}`.")

    def _command(self, words: Sequence[str]) -> list[str]:
        found = parsed(printed("help", *words))
        parts = [*prose(found.prose), fence(found.usage, "text")]
        for name, text in found.sections.items():
            if name == _SHARED:
                continue
            if name == "Examples":
                lines = "\n".join(line.removeprefix("  ") for line in text.splitlines())
                parts.append("**Examples**\n\n" + fence(lines, "sh"))
            else:
                parts.append(f"**{name}**\n\n" + _options(text))
        return parts


def _summary(found: Help) -> str:
    return next(prose(found.prose), "")


def _options(text: str) -> str:
    return table(("name", "meaning"), [(code(term), _plain(words)) for term, words in definitions(text)])
