"""A release has one version, notes, and checksums for its files."""

import hashlib
import shutil
from pathlib import Path

import pytest

from scripts import release


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
