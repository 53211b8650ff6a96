"""The package as a whole: its public names, its import cost, its oldest Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import webhook_verify

FOLDER = Path(webhook_verify.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
FRAMEWORKS = {
    "fastapi.py": {"fastapi", "pydantic"},
    "flask.py": {"flask"},
    "django.py": {"django", "asgiref"},
    "pytest.py": {"pytest"},
}
# Each costs more to import than the verifier itself.
TOO_HEAVY = {"asyncio", "base64", "dataclasses", "datetime", "enum", "inspect", "json", "logging", "re", "typing"}


def imported(module: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name} imports relatively"
            names.add(str(node.module).partition(".")[0])
    return names


def run(code: str) -> str:
    """Return the output of code in a new interpreter without site packages."""
    program = f"import sys; sys.path.insert(0, {str(FOLDER.parent)!r}); before = set(sys.modules); {code}"
    result = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout


@pytest.mark.skipif(sys.version_info < (3, 10), reason="sys.stdlib_module_names is younger")
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_module_imports_the_standard_library_itself_and_its_framework(module: Path) -> None:
    allowed = {"webhook_verify", *sys.stdlib_module_names} | FRAMEWORKS.get(module.name, set())
    assert imported(module) <= allowed


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_module_is_written_in_python_3_9(module: Path) -> None:
    ast.parse(module.read_text(encoding="utf-8"), feature_version=(3, 9))


def test_importing_the_package_loads_nothing_heavy_and_no_adapter() -> None:
    loaded = set(run("import webhook_verify; print(*(set(sys.modules) - before))").split())
    assert loaded & TOO_HEAVY == set()
    modules = {name for name in loaded if name.startswith("webhook_verify.")}
    assert modules == {
        f"webhook_verify.{name}" for name in ("errors", "frames", "headers", "receiver", "seen", "signature")
    }


def test_verifying_loads_nothing_more() -> None:
    code = (
        'from webhook_verify import *; body = b\'{"id":"a","type":"b"}\'; secret = generate_secret();'
        "headers = {'Svc-Signature': sign(body, secret), 'Svc-Event-Id': 'a', 'Svc-Event-Type': 'b'};"
        "before = set(sys.modules); Verifier(secret).verify(body, {**headers, 'Svc-Delivery-Id': 'c'});"
        "print(*(set(sys.modules) - before))"
    )
    assert run(code).split() == []


SURFACE = """
DEFAULT_TOLERANCE DELIVERY_ID_HEADER EVENT_ID_HEADER EVENT_TYPE_HEADER SIGNATURE_HEADER DuplicateEvent EventInProgress
HeadersLike MemorySeenStore ParsedSignature PayloadError ProgressStore Reason SeenStore VerifiedDelivery Verifier
WebhookVerificationError generate_secret is_valid parse_header sign standard_headers verify
""".split()
CONSTANTS = {
    "SIGNATURE_HEADER": "Svc-Signature",
    "EVENT_ID_HEADER": "Svc-Event-Id",
    "EVENT_TYPE_HEADER": "Svc-Event-Type",
    "DELIVERY_ID_HEADER": "Svc-Delivery-Id",
    "DEFAULT_TOLERANCE": 300,
}


def test_the_surface_and_its_constants_are_these() -> None:
    assert webhook_verify.__all__ == SURFACE
    assert all(hasattr(webhook_verify, name) for name in webhook_verify.__all__)
    assert {name: getattr(webhook_verify, name) for name in CONSTANTS} == CONSTANTS


def test_types_vectors_and_guide_travel_with_the_package() -> None:
    for name in ("py.typed", "vectors.json", "README.md"):
        assert (FOLDER / name).is_file()
