"""Makes the half of the SDK that does not await from the half that does.

    python tests/booking_sdk/unasync.py

A module of the SDK that holds both says so in a line, `MARK`. Above it stands what is written by hand: imports, what
the halves share, and the classes whose names begin with Async. Below it stands what this script makes of those.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

MARK = "# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. " + "-" * 31

SDK = Path(__file__).parents[2] / "booking_sdk"

_RULES = [
    (r"\bAsync([A-Z])", r"\1"),
    (r"\basync_(\w)", r"\1"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\ba(close|iter_bytes)\b", r"\1"),
    (r"\btasks\b", "threads"),
]


def modules() -> list[Path]:
    """The modules that hold both halves."""
    return sorted(path for path in SDK.rglob("*.py") if MARK in path.read_text(encoding="utf-8"))


def made(path: Path) -> str:
    """The module as it should be."""
    source = path.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
    lines = source.splitlines()
    halves = [
        "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("Async")
    ]
    return _formatted("\n\n\n".join([source, MARK, *map(_without_await, halves)]) + "\n")


def _first_line(node: ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _without_await(text: str) -> str:
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    return text


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=SDK.parent).stdout


if __name__ == "__main__":
    for module in modules():
        module.write_text(made(module), encoding="utf-8")
