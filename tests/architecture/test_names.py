"""One name, one meaning: a public class, or an alias of a type, has its name for itself in the product's code."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("booking_core", "booking_server", "booking_sdk", "booking_cli", "webhook_verify")
GENERATED = ROOT / "booking_sdk/_sync"
"""The synchronous half of the SDK has the names of the other half."""

ALLOWED = {
    "Attempt": "of a delivery in the OpenAPI document, of a request in the SDK: both are public",
    "BookingError": "the SDK raises its own, and integrators catch it",
    "Event": "the SDK's events have typed data; an event of the log is a row",
    "Organization": "the API's resource, and the organization that the core works for",
    "Ping": "the OpenAPI document and the SDK name the data of webhooks alike",
    "PingData": "likewise",
    "PreviousDeparture": "likewise",
    "RateLimit": "the setting, and its state in the SDK's responses, which is public",
}


def type_names(tree: ast.Module) -> Iterator[str]:
    """Yield the public classes and aliases of a module.

    An `Annotated` declares a parameter or a field, and no type; a TypeVar has no meaning outside.
    """
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_type(node.value):
            name = node.targets[0].id
        else:
            continue
        if name[0].isupper() and not name.isupper():
            yield name


def is_type(value: ast.expr) -> bool:
    """Return whether a value is a type: `dict[str, int]`, `A | B`, `Union[A, B]` or another name."""
    text = ast.unparse(value)
    return isinstance(value, ast.Subscript | ast.BinOp | ast.Name) and not text.startswith(("Annotated[", "frozenset"))


def definitions() -> dict[str, list[str]]:
    """Return the modules that define each name."""
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            if path.is_relative_to(GENERATED):
                continue
            for name in set(type_names(ast.parse(path.read_text(encoding="utf-8")))):
                places[name].append(place)
    return places


def test_each_type_has_its_name_for_itself() -> None:
    places = definitions()
    assert len(places) > 800
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in ALLOWED} == {}


def test_each_allowed_name_is_defined_twice() -> None:
    places = definitions()
    assert [name for name in ALLOWED if len(places[name]) < 2] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class Row: pass", ["Row"]),
        ("Row = dict[str, int]", ["Row"]),
        ("Row = A | B", ["Row"]),
        ("class _Row: pass", []),
        ("ROW = dict[str, int]", []),
        ("Row = Annotated[str, option()]", []),
        ("Row = TypeVar('Row')", []),
    ],
)
def test_types_are_found(source: str, names: list[str]) -> None:
    assert list(type_names(ast.parse(source))) == names


@pytest.mark.parametrize("row", [object(), (object(),), {"a": [lambda: 0]}], ids=["object", "in tuple", "in dict"])
def test_a_row_of_a_table_that_pytest_would_number_is_refused(pytestconfig: pytest.Config, row: object) -> None:
    with pytest.raises(pytest.UsageError, match="the rows of row need ids"):
        pytestconfig.hook.pytest_make_parametrize_id(config=pytestconfig, val=row, argname="row")
