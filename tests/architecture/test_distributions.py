"""Five distributions, released together."""

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("webhook_verify", "booking_core", "booking_server", "booking_sdk", "booking_cli")
NAMES = {folder.replace("_", "-") for folder in FOLDERS}
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?(?P<version>.*)")


def project(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return found


def requirements(folder: str) -> list[tuple[str, str]]:
    """Return the name and the version of every requirement, including extras."""
    about = project(folder)
    wanted = [*about.get("dependencies", ()), *chain.from_iterable(about.get("optional-dependencies", {}).values())]
    matches = [REQUIREMENT.fullmatch(each.partition(";")[0].strip()) for each in wanted]
    return [(match["name"].lower(), match["version"].strip()) for match in matches if match]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_distribution_is_called_what_its_package_is_called(folder: str) -> None:
    assert project(folder)["name"] == folder.replace("_", "-")
    assert (ROOT / folder / "__init__.py").exists()
    assert (ROOT / folder / "py.typed").exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_siblings_are_pinned_exactly(folder: str) -> None:
    version = project(folder)["version"]
    for name, wanted in requirements(folder):
        if name in NAMES:
            assert wanted == f"=={version}", f"{folder} wants {name}{wanted}"


def test_only_the_receivers_kit_needs_nothing() -> None:
    assert project("webhook_verify").get("dependencies", []) == []
    sdk = project("booking_sdk")
    assert [each for each in sdk["dependencies"] if re.match("sqlalchemy|fastapi|booking-server", each)] == []
    assert list(sdk["optional-dependencies"]) == ["testing"]


def test_every_member_of_the_workspace_is_one_of_them() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]
    assert sorted(workspace["members"]) == sorted(FOLDERS)


UNBOUNDED = {"tzdata"}
"""Packages of data, whose versions are dates."""
INSIDE_IS_USED = {"fastapi", "fastapi-swagger", "httpcore", "httpx", "typer", "uvicorn"}
"""The packages whose private names, or whose classes' insides, the distributions use."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_requirement_has_a_lowest_version(folder: str) -> None:
    assert {name for name, version in requirements(folder) if not version.startswith((">=", "=="))} <= UNBOUNDED


def test_a_package_whose_inside_is_used_has_a_highest_version() -> None:
    bounded = {name for folder in FOLDERS for name, version in requirements(folder) if "<" in version}
    assert bounded == INSIDE_IS_USED


# Locks ---------------------------------------------------------------------------------------------------------------

LOCKS = {path.stem: path.read_text() for path in (ROOT / "locks").glob("*.txt")}
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ]+)(?P<marker> ;.*?)? \\\n(?P<hashes>(?: +--hash=.*\n)+)",
    re.MULTILINE,
)


def pins(lock: str) -> dict[tuple[str, str], str]:
    """Return the hashes by name and version."""
    return {(match["name"], match["version"]): match["hashes"] for match in PIN.finditer(LOCKS[lock])}


def test_each_group_has_a_lock() -> None:
    assert set(LOCKS) == set(GROUPS)


@pytest.mark.parametrize("lock", sorted(LOCKS))
def test_a_lock_has_versions_with_hashes(lock: str) -> None:
    lines = LOCKS[lock].splitlines(keepends=True)
    assert sum(len(match[0].splitlines()) for match in PIN.finditer(LOCKS[lock])) == len(lines) > 0
    assert "://" not in LOCKS[lock]
    assert {name for name, _ in pins(lock)} & NAMES == set()  # the five are installed from the checkout


@pytest.mark.parametrize("lock", sorted(LOCKS))
def test_all_locks_have_the_same_versions(lock: str) -> None:
    assert pins(lock).items() <= pins("mutants").items()


def test_a_lock_has_what_its_group_names() -> None:
    for group, parts in GROUPS.items():
        wanted = {re.split(r"[\[;<>=]", part)[0].strip() for part in parts if isinstance(part, str)}
        assert wanted - NAMES <= {name for name, _ in pins(group)}


def test_no_package_is_named_in_two_groups() -> None:
    named = [re.split(r"[\[;<>=]", part)[0] for parts in GROUPS.values() for part in parts if isinstance(part, str)]
    assert sorted({*named} - NAMES) == sorted(name for name in named if name not in NAMES)


def test_the_demo_needs_neither_a_checker_nor_a_browser() -> None:
    assert {name for name, _ in pins("run")} & {"pyright", "mypy", "selenium", "django", "zensical", "pytest"} == set()
    assert len(pins("run")) < 70
