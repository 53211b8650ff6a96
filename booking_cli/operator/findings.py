"""Findings of `booking doctor` on a terminal: sections, and in each the findings of one invariant together.

A table would have no room for what matters most, the remedy: ids alone take half of 80 columns.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from booking_cli.framework.output import Renderer, text_of

if TYPE_CHECKING:
    from booking_core.doctor import Finding

TITLES = {"broken": "Broken", "needs_person": "Waiting for a person"}
_WIDTH_MAX = 120
SHOWN_MAX = 10
"""Findings of one invariant that are shown; the other output formats list all."""
_STEP = re.compile(", (then|or) ")
"""Between the commands of a remedy."""


def show(render: Renderer, found: Sequence["Finding"]) -> None:
    """Write the findings for a person, what is broken first."""
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
    """Return how many findings of each kind there are, in a sentence."""
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
    """Yield the findings of one invariant; a remedy that is the same for several is written once."""
    for remedy, group in groupby(findings, key=lambda each: each.remedy):
        for finding in group:
            yield "    " + "  ".join(filter(None, (text_of(finding.organization), text_of(finding.subject))))
            yield from _wrapped(text_of(finding.message), width, "      ")
        if remedy:
            yield from _remedy(text_of(remedy), width)


def _remedy(remedy: str, width: int) -> Iterator[str]:
    """Yield the remedy. A command stands on a line of its own, whole, so that it can be copied."""
    first, *others = _STEP.split(remedy)
    for word, step in (("then", first), *zip(others[::2], others[1::2], strict=True)):
        mark = "    >  " if word == "then" else "    or "
        if step.startswith("booking "):
            yield f"{mark}{step}"
        else:
            yield from _wrapped(_sentence(step), width, mark, " " * len(mark))


def _wrapped(text: str, width: int, first: str, following: str = "") -> list[str]:
    """Break prose into lines, and never an id."""
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
