"""The reasons of errors: each that the code gives is in the list, and each in the list is given somewhere."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from booking_core.models.reasons import ErrorReason

ROOT = Path(__file__).parents[2]
REASONS = set(get_args(ErrorReason))
LIST = ROOT / "booking_core/models/reasons.py"
POSITIONS = {"Malformed.at": 2, "Unprocessable.at": 2, "Conflict": 0, "Fault": 0}
"""The place of the reason among the arguments of a call."""
LAST_NAMES = {"ErrorDetail", *(name.rpartition(".")[2] for name in POSITIONS)}
"""The last name of each call that may have a reason."""
MODULES = [
    path for package in ("booking_core", "booking_server", "booking_cli") for path in (ROOT / package).rglob("*.py")
]


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts that an expression can be."""
    if isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def reasons_of(call: ast.Call) -> Iterator[str]:
    if getattr(call.func, "attr", getattr(call.func, "id", "")) not in LAST_NAMES:
        return  # most calls, and to write each as text would take a second
    name = ast.unparse(call.func)
    position = next((place for ending, place in POSITIONS.items() if f".{name}".endswith(f".{ending}")), None)
    if position is not None and len(call.args) > position:
        yield from texts(call.args[position])
    for keyword in call.keywords if name.endswith("ErrorDetail") else ():
        if keyword.arg == "reason":
            yield from texts(keyword.value)


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    return [node for path in MODULES if path != LIST for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def test_every_reason_in_the_code_is_in_the_list(nodes: list[ast.AST]) -> None:
    given = {reason for node in nodes if isinstance(node, ast.Call) for reason in reasons_of(node)}
    assert given <= REASONS
    assert len(given) > len(REASONS) / 2


def test_every_reason_in_the_list_is_given_somewhere(nodes: list[ast.AST]) -> None:
    assert {text for node in nodes for text in texts(node)} >= REASONS
