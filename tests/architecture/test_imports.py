"""Import rules in addition to the import contracts of `pyproject.toml`, and the list of the reasons of errors."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import grimp
import pytest

from booking_core.models.reasons import ErrorReason

ROOT = Path(__file__).parents[2]
PACKAGES = ("booking_core", "booking_server", "booking_sdk", "booking_cli", "webhook_verify")
PRIVATE = ("store", "rules")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def private_modules(graph: grimp.ImportGraph) -> list[str]:
    """Return the private modules of every domain package: `booking_core.<packages>.store` and `.rules`."""
    names = [module.split(".") for module in graph.modules]
    return sorted(
        ".".join(name) for name in names if len(name) >= 3 and name[0] == "booking_core" and name[-1] in PRIVATE
    )


def test_only_its_package_imports_sql_or_rules(graph: grimp.ImportGraph) -> None:
    modules = private_modules(graph)
    assert {
        "booking_core.bookings.rules",
        "booking_core.bookings.store",
        "booking_core.records.events.store",
    } <= set(modules)
    trespassing = {
        (importer, module)
        for module in modules
        for importer in graph.find_modules_that_directly_import(module)
        if not importer.startswith(module.rpartition(".")[0])
    }
    assert trespassing == set()


DEFINING = {"booking_core.base.languages", "booking_sdk", "booking_sdk.testing"}
"""A module beside the catalogues of its messages; packages that import their parts when they are used."""


def test_a_package_defines_nothing_beside_its_modules() -> None:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")]
    assert len(files) > 40
    defining = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in files
        if any(isinstance(node, definitions) for node in ast.parse(path.read_text(encoding="utf-8")).body)
    }
    assert defining == DEFINING


def test_no_module_imports_itself_through_others(graph: grimp.ImportGraph) -> None:
    """Not even inside functions or under TYPE_CHECKING; a package and its `__init__` are one module."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises a CycleError with the modules


def test_every_model_module_loads_without_storage() -> None:
    modules = [f"booking_core.models.{path.stem}" for path in (ROOT / "booking_core" / "models").glob("[a-z]*.py")]
    assert modules
    assert not loaded_by(f"import {', '.join(modules)}") & {"sqlalchemy", "fastapi", "starlette", "httpx"}


@pytest.mark.exhaustive
def test_importing_the_service_reads_no_environment_and_connects_to_nothing() -> None:
    """Settings are read when the application is created: an import must not depend on them."""
    code = "import os; os.environ.update(BOOKING_DATABASE_URL='nonsense', BOOKING_RATE_LIMIT='nonsense')"
    loaded = loaded_by(f"{code}; import booking_server.app, booking_core.upkeep.doctor")
    assert "psycopg" not in loaded  # an installation with SQLite does not have it
    assert "alembic" not in loaded  # a start compares revisions, and upgrades nothing


def loaded_by(code: str) -> set[str]:
    """Run code in a new interpreter, and return the modules that it has loaded."""
    report = f"{code}; import sys; print('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


# Reasons -------------------------------------------------------------------------------------------------------------


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
    reasons = {reason for node in nodes if isinstance(node, ast.Call) for reason in reasons_of(node)}
    assert reasons <= REASONS
    assert len(reasons) > len(REASONS) / 2


def test_every_reason_in_the_list_is_given_somewhere(nodes: list[ast.AST]) -> None:
    assert {text for node in nodes for text in texts(node)} >= REASONS
