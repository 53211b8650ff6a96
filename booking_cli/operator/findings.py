"""Write the findings of `booking doctor` on a terminal, grouped by kind and invariant.

A table would have no space for the remedy, since ids take half of 80 columns.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from booking_cli.framework.formatting import text_of
from booking_cli.framework.output import Renderer

if TYPE_CHECKING:
    from booking_core.upkeep.doctor import Finding

TITLES = {"broken": "Broken", "needs_person": "Waiting for a person"}
_WIDTH_MAX = 120
SHOWN_MAX = 10
"""The number of findings shown for each invariant. The other output formats list all."""
_STEP = re.compile(", (then|or) ")
"""The separator between the commands of a remedy."""


def write(render: Renderer, found: Sequence["Finding"]) -> None:
    """Write the findings as text, broken data first."""
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
    by_kind = groupby(sorted(found, key=lambda each: each.kind), key=lambda each: each.kind)
    for number, (kind, section) in enumerate(by_kind):
        findings = list(section)
        if number:
            render.text("")
        render.heading(f"{TITLES[kind]} ({len(findings)})")
        for line in _section(findings, width):
            render.text(line)


def summary(found: Sequence["Finding"]) -> str:
    """Return the number of findings of each kind as a sentence."""
    broken = sum(each.kind == "broken" for each in found)
    waiting = len(found) - broken
    parts = []
    if broken:
        parts.append(f"{broken} {'finding is' if broken == 1 else 'findings are'} about broken data (exit code 1)")
    if waiting:
        exit_code = "" if broken else " (exit code 13)"
        parts.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} for a person{exit_code}")
    return f"{'; '.join(parts)}."


def _section(findings: Sequence["Finding"], width: int) -> Iterator[str]:
    for invariant, group in groupby(findings, key=lambda each: each.invariant):
        each = list(group)
        yield ""
        yield from _wrapped(_sentence(invariant), width, "  ")
        yield from _group(each[:SHOWN_MAX], width)
        if len(each) > SHOWN_MAX:
            yield f"    and {len(each) - SHOWN_MAX} more: -o json lists all of them"


def _group(findings: Sequence["Finding"], width: int) -> Iterator[str]:
    """Yield the findings of one invariant. A remedy shared by several is written once."""
    for remedy, group in groupby(findings, key=lambda each: each.remedy):
        for finding in group:
            yield "    " + "  ".join(filter(None, (text_of(finding.organization), text_of(finding.subject))))
            yield from _wrapped(text_of(finding.message), width, "      ")
        if remedy:
            yield from _remedy(text_of(remedy), width)


def _remedy(remedy: str, width: int) -> Iterator[str]:
    """Yield the remedy. A command is on a line of its own, unbroken, so that it can be copied."""
    first, *others = _STEP.split(remedy)
    for word, step in (("then", first), *zip(others[::2], others[1::2], strict=True)):
        mark = "    >  " if word == "then" else "    or "
        if step.startswith("booking "):
            yield f"{mark}{step}"
        else:
            yield from _wrapped(_sentence(step), width, mark, " " * len(mark))


def _wrapped(text: str, width: int, first: str, following: str = "") -> list[str]:
    """Wrap text into lines, without breaking ids."""
    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=following or first,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
