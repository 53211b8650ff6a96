"""The recipe "Add a resource" of CONTRIBUTING.md, followed in a copy of the tree."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
FILES_MAX = 14
FAKE = """
import pytest
from booking_sdk import Guide, NotFoundError
from booking_sdk.testing import FakeBookingAPI

def test_the_fake_lists_and_gets_guides():
    api = FakeBookingAPI()
    made = [api.add(Guide, name=name, is_certified=True) for name in ("Ada", "Grace")]
    client = api.client(["guides:read"])
    assert list(client.guides.iterate(order="asc")) == made
    assert client.guides.get(made[0].id).name == "Ada"
    with pytest.raises(NotFoundError):
        client.guides.get(api.add_customer("ada@example.com").id)
"""
TESTS = {
    "tests/contract/test_surface.py": "guide or every_list",
    "tests/contract/test_tenants.py": "guide",
    "tests/contract/test_lists.py": "guides",
    "tests/contract/test_params.py": "limit_within",
    "tests/contract/test_keys_and_scopes.py": "guide",
    "tests/booking_sdk/test_operations.py": "",
    "tests/booking_sdk/test_guides.py": "",
    "tests/booking_server/test_statements.py": "guides",
    "tests/booking_cli/commands/test_resources.py": "list_and_get and guides",
    "tests/booking_cli/framework/test_not_found_hints.py": "guide",
    "tests/booking_server/api/test_openapi.py": "example or schema or one_that_is_served",
    "tests/booking_core/db/test_migrations.py": "make_the_keys",
}
"""The selected tests that take a new resource from the OpenAPI document or from `support.world.resources`, the tests of
the migrations on both databases, and the test `FAKE`."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree, with its cache of mypy."""
    target = tmp_path_factory.mktemp("recipe") / "tree"
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", ".demo", ".hypothesis", ".pytest_cache", ".ruff_cache"
    )
    shutil.copytree(ROOT, target, ignore=ignored)
    return target


@pytest.fixture(scope="module")
def run(copy: Path, postgres_server: str) -> Run:
    """Return a function that runs a Python module in the copy."""
    environment = os.environ | {"PYTHONPATH": str(copy), "BOOKING_TEST_DATABASE_URL": postgres_server}
    environment.pop("PYTEST_XDIST_WORKER", None)

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
        return result.stdout

    return run


@pytest.fixture(scope="module")
def written(run: Run) -> list[str]:
    """Return the files that the command wrote or changed, except generated files."""
    fields = ("name:text", "phone:text?", "tours:integer", "is_certified:boolean")
    return run("-m", "scripts.new_resource", "guides", "--fields", *fields).split()


def test_resource_has_few_files(written: list[str]) -> None:
    assert len(written) == len(set(written)) <= FILES_MAX


def test_every_file_is_named_in_the_recipe(written: list[str]) -> None:
    recipe = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Add a resource")[1].split("\n## ")[0]
    assert [path for path in written if f"`{path}`" not in recipe] == []


def test_resource_passes_the_static_checks(written: list[str], run: Run) -> None:
    modules = [path for path in written if path.endswith(".py")]
    generated = ["booking_sdk/_sync/client.py", "booking_sdk/_sync/resources/guides.py"]
    run("-m", "ruff", "check", *modules, *generated)
    run("-m", "ruff", "format", "--check", *modules, *generated)
    run("-c", "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())")


def test_resource_passes_the_type_checker(written: list[str], run: Run) -> None:
    """mypy checks the files and their imports in strict mode, with a copy of the tree's cache if there is one."""
    cache = ".mypy_cache" if (ROOT / ".mypy_cache").exists() else os.devnull
    modules = [path for path in written if path.startswith("booking_") and path.endswith(".py")]
    run("-m", "mypy", "--cache-dir", cache, *modules)


def test_openapi_document_is_generated(written: list[str], copy: Path) -> None:
    """The tests of the document below compare the file with the served document."""
    assert '"/api/v1/guides/{id}"' in (copy / "openapi.json").read_text(encoding="utf-8")
    assert "is_certified" in (copy / "booking_cli/framework/openapi_parts.json").read_text(encoding="utf-8")


def test_migration_makes_the_table(written: list[str], copy: Path) -> None:
    (migration,) = (copy / "booking_core/db/migrations/versions").glob("*_the_table_of_guides.py")
    assert migration.read_text(encoding="utf-8").count("create_table") == 1


def test_resource_passes_the_contract_tests_and_its_table_is_migrated_to(
    written: list[str], copy: Path, run: Run
) -> None:
    (copy / "tests/booking_sdk/test_guides.py").write_text(FAKE)
    selection = " or ".join(
        f"({Path(path).stem} and ({words}))" if words else Path(path).stem for path, words in TESTS.items()
    )
    passed = run("-m", "pytest", "-q", "-rp", "-p", "no:cacheprovider", *TESTS, "-k", selection)
    assert [path for path in TESTS if f"PASSED {path}::" not in passed] == []
    assert "test_the_committed_description_is_the_one_that_is_served" in passed
    for backend in ("sqlite", "postgresql"):
        assert f"test_migrations_make_the_keys_checks_and_indexes_of_the_tables[{backend}]" in passed
