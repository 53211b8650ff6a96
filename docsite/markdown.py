"""Markdown for the generated pages."""

import json
import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing if there are no rows."""
    lines = [_row(cells) for cells in rows]
    return "\n".join([_row(head), _row(["---"] * len(head)), *lines]) + "\n" if lines else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """Return a cell on one line; a bar in code is no border, and `<` begins no tag but `<br>`."""
    parts = re.split(r"(`+[^`]*`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return re.sub(r"<(?!br>)", "&lt;", text.replace("|", "\\|"))


def code(text: str) -> str:
    """Return inline code, also of a text with backticks."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def fence(text: str, language: str = "") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def page(title: str, *parts: str, description: str = "") -> str:
    """Return a page: front matter, one heading of the first level, and its parts."""
    head = f"---\ndescription: {json.dumps(description)}\n---\n\n" if description else ""
    return head + "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part.strip())]) + "\n"
