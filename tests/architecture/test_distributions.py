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


def test_all_carry_one_version() -> None:
    assert len({project(folder)["version"] for folder in FOLDERS}) == 1


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


def test_the_lock_holds_versions_and_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    pinned = re.findall(r"^[A-Za-z0-9._-]+(?:\[[^]]*\])?==", lock, re.MULTILINE)
    assert len(pinned) > 20
    assert lock.count("--hash=sha256:") >= len(pinned)
    names = {re.split(r"[\[=]", each)[0].lower().replace("_", "-") for each in pinned}
    assert names & NAMES == set()  # the five are installed from the checkout
