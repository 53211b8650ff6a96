"""Five distributions, released together."""

import hashlib
import re
import shutil
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from scripts import release

ROOT = Path(__file__).parents[2]
FOLDERS = ("webhook_verify", "booking_core", "booking_server", "booking_sdk", "booking_cli")
NAMES = {folder.replace("_", "-") for folder in FOLDERS}
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?(?P<version>.*)")


def project(folder: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return project


def requirements(folder: str) -> list[tuple[str, str]]:
    """Return the name and the version of every requirement, including extras."""
    about = project(folder)
    texts = [*about.get("dependencies", ()), *chain.from_iterable(about.get("optional-dependencies", {}).values())]
    matches = [REQUIREMENT.fullmatch(text.partition(";")[0].strip()) for text in texts]
    return [(match["name"].lower(), match["version"].strip()) for match in matches if match]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_distribution_is_called_what_its_package_is_called(folder: str) -> None:
    assert project(folder)["name"] == folder.replace("_", "-")
    assert (ROOT / folder / "__init__.py").exists()
    assert (ROOT / folder / "py.typed").exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_siblings_are_pinned_exactly(folder: str) -> None:
    version = project(folder)["version"]
    for name, specifier in requirements(folder):
        if name in NAMES:
            assert specifier == f"=={version}", f"{folder} wants {name}{specifier}"


def test_only_the_receivers_kit_needs_nothing() -> None:
    assert project("webhook_verify").get("dependencies", []) == []
    sdk = project("booking_sdk")
    assert [text for text in sdk["dependencies"] if re.match("sqlalchemy|fastapi|booking-server", text)] == []
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
        names = {re.split(r"[\[;<>=]", part)[0].strip() for part in parts if isinstance(part, str)}
        assert names - NAMES <= {name for name, _ in pins(group)}


def test_no_package_is_named_in_two_groups() -> None:
    names = [re.split(r"[\[;<>=]", part)[0] for parts in GROUPS.values() for part in parts if isinstance(part, str)]
    assert sorted({*names} - NAMES) == sorted(name for name in names if name not in NAMES)


def test_the_demo_needs_neither_a_checker_nor_a_browser() -> None:
    assert {name for name, _ in pins("run")} & {"pyright", "mypy", "selenium", "django", "zensical", "pytest"} == set()
    assert len(pins("run")) < 70


# Releases ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the changelog and the files that contain the version into a folder of the test."""
    for file in (*release.VERSIONED, "CHANGELOG.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / file, tmp_path / file)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_every_file_carries_the_same_version_and_the_changelog_has_its_notes() -> None:
    version = release.current_version()
    assert release.notes(version).startswith(f"## {version}")


def test_a_version_is_written_into_every_file(tree: Path) -> None:
    release.set_version("2.0.1")
    assert release.current_version() == "2.0.1"
    assert '"booking-sdk==2.0.1"' in (tree / "booking_cli/pyproject.toml").read_text()
    with pytest.raises(release.Failed, match=r"no section 2\.0\.1"):
        release.notes("2.0.1")


def test_files_with_different_versions_are_refused(tree: Path) -> None:
    path = tree / "booking_sdk/_version.py"
    path.write_text(path.read_text().replace(release.current_version(), "9.9.9"))
    with pytest.raises(release.Failed, match="different versions"):
        release.current_version()


def test_the_notes_end_where_the_version_before_begins(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 1.1.0 - today\n\n- New.\n\n## 1.0.0\n\n- Old.\n")
    assert release.notes("1.1.0") == "## 1.1.0 - today\n\n- New.\n"


def test_checksums_name_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "b.json").write_bytes(b"b")
    release.write_sums(tmp_path)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{hashlib.sha256(name[:1].encode()).hexdigest()}  {name}" for name in ("a.whl", "b.json")]


def test_the_constraints_are_the_pins_of_the_lock(tmp_path: Path) -> None:
    lines = release.write_constraints(tmp_path / "constraints.txt").read_text().splitlines()
    assert any(line.startswith("sqlalchemy==") for line in lines)
    assert not any("--hash" in line or "[" in line for line in lines)
