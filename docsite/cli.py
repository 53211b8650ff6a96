"""The reference of the command line, generated from the help that the commands print."""

import contextlib
import io
import json
import os
from collections.abc import Sequence
from functools import cache

from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.framework.command import GLOBAL_OPTIONS
from booking_cli.main import main
from docsite.markdown import fence, page, table

FOLDER = "docs/reference/cli"


@cache
def printed(*arguments: str) -> str:
    """Return the output of a command on stdout, 80 columns wide, without colour."""
    out = io.StringIO()
    environment = os.environ.copy()
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
    try:
        with contextlib.redirect_stdout(out):
            status = main(list(arguments))
    finally:
        os.environ.clear()
        os.environ.update(environment)
    if status:
        raise RuntimeError(f"booking {' '.join(arguments)} ended with exit code {status}")
    return out.getvalue()


class Reference:
    """The pages of the command line's reference: the printed help of the commands."""

    def __init__(self) -> None:
        self.groups: dict[str, list[tuple[str, ...]]] = {}
        for line in printed("commands", "-o", "jsonl").splitlines():
            words = tuple(json.loads(line)["command"].split()[1:])
            self.groups.setdefault(words[0], []).append(words)

    def pages(self) -> dict[str, str]:
        """Return the text of every page by its path."""
        pages = {f"{FOLDER}/index.md": self._overview()}
        return pages | {f"{FOLDER}/{name}.md": self._group(name, commands) for name, commands in self.groups.items()}

    def _overview(self) -> str:
        parts = []
        listed = [name for names in SECTIONS.values() for name in names]
        rest = [name for name in self.groups if name not in listed]
        for title, names in (*SECTIONS.items(), ("More commands", rest)):
            rows = [(f"[booking {name}]({name}.md)", MODULES[name][1]) for name in names]
            parts += [f"## {title}", table(("command", "purpose"), rows)]
        topics = {"Options of every command": "options", "Output": "output"}
        topics |= {"Exit codes": "exit-codes", "Environment variables": "environment"}
        for title, topic in topics.items():
            parts += [f"## {title}", fence(printed("help", topic), "text")]
        return page(
            "Command line",
            "These pages show the help of the `booking` command.",
            *parts,
            description="Every command of `booking`, with its options and examples.",
        )

    def _group(self, name: str, commands: Sequence[tuple[str, ...]]) -> str:
        parts = []
        for words in commands:
            heading = f"## booking {' '.join(words)} {{ #{'-'.join(words)} }}" if words != (name,) else ""
            parts += [heading, fence(_without_shared(printed("help", *words)), "text")]
        purpose, options = MODULES[name][1].rstrip("."), "index.md#options-of-every-command"
        described = f"{purpose}. Not shown: [the options of every command]({options})."
        return page(f"booking {name}", described, *parts, description=f"The help of `booking {name}`.")


def _without_shared(text: str) -> str:
    """Return a help text without its line on the options of every command."""
    return text.partition(f"\n{GLOBAL_OPTIONS}")[0]
