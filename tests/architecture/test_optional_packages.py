"""Only `booking_server/tracing` imports packages of the extra `otel`, and it is imported only with tracing on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import booking_core
import booking_server

TRACING = Path(booking_server.__file__).parent / "tracing"
ALLOWED = {"booking_server.tracing"}
"""The module that other modules import. It imports OpenTelemetry only when it is called."""


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported together with a module, not in functions or only for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.ClassDef | ast.Try | ast.With):
            yield from imported_at_once(node)


def test_nothing_of_opentelemetry_is_imported_where_nothing_is_traced() -> None:
    found = {}
    for package in (booking_core, booking_server):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            if path.parent != TRACING or path.stem in ("setup", "__init__"):
                names = set(imported_at_once(ast.parse(path.read_text()))) - ALLOWED
                found[path.name] = {
                    name for name in names if name.startswith(("opentelemetry", "booking_server.tracing"))
                }
    assert {name: modules for name, modules in found.items() if modules} == {}
    assert len(found) > 100
