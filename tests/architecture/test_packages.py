"""The distributions for a package index: built, checked, and listed file by file."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("webhook_verify", "booking_core", "booking_server", "booking_sdk", "booking_cli")
SHIPPED = {".md", ".json", ".py", ".typed", ".html", ".txt", ".css", ".js", ".svg", ".png", ".mako", ".sql", ".po"}
"""The extensions of the files in a wheel: modules, and the data that they read."""
ONLY_IN_SDIST = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def built(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist of a package, and with the wheel that was built from the sdist."""
    target = tmp_path_factory.mktemp("dist")
    run("build", "--no-isolation", "--outdir", str(target), str(ROOT / folder))
    return target


def run(module: str, *arguments: str) -> str:
    result = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def sources(folder: str) -> set[str]:
    """Return the files of a package that belong in its wheel."""
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        str(path.relative_to(ROOT))
        for path in paths
        if path.name not in ONLY_IN_SDIST and path.relative_to(ROOT / folder).parts[0] not in ("docs", "dist")
    }


def metadata(built: Path) -> Message:
    """Return the core metadata of the wheel."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (file for file in archive.namelist() if file.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


@pytest.mark.exhaustive(but="booking_sdk")
def test_a_package_index_would_take_it(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from twine.commands.check import check

    assert not check([*map(str, built.iterdir())], strict=True), capsys.readouterr().out
    assert capsys.readouterr().out.count("PASSED") == 2


@pytest.mark.exhaustive(but="booking_sdk")
def test_the_wheel_built_from_the_sdist_holds_the_package_and_nothing_else(folder: str, built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
    about = {name for name in files if name.split("/")[0].endswith(".dist-info")}
    assert files - about == sources(folder)
    assert {Path(name).suffix for name in files - about} <= SHIPPED
    described = {name.split("/", 1)[1] for name in about} - {"entry_points.txt"}
    assert described == {"METADATA", "RECORD", "WHEEL", "licenses/LICENSE"}


@pytest.mark.exhaustive(but="booking_sdk")
def test_the_wheel_built_from_the_tree_is_the_same(folder: str, built: Path, tmp_path: Path) -> None:
    run("build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT / folder))
    (from_sdist,), (from_tree,) = built.glob("*.whl"), tmp_path.glob("*.whl")
    with zipfile.ZipFile(from_sdist) as one, zipfile.ZipFile(from_tree) as other:
        assert {file.filename: file.CRC for file in one.infolist()} == {
            file.filename: file.CRC for file in other.infolist()
        }


@pytest.mark.exhaustive(but="booking_sdk")
def test_the_sdist_holds_what_the_wheel_is_built_from(folder: str, built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {member.split("/", 1)[1] for member in archive.getnames()}
    pages = [*(ROOT / folder).glob("docs/*.md"), *(ROOT / folder).glob("*/**/README.md")]
    docs = {str(path.relative_to(ROOT / folder)) for path in pages}
    files.discard(".gitignore")  # the build backend adds the checkout's .gitignore to every sdist
    assert files == {name.split("/", 1)[1] for name in sources(folder)} | ONLY_IN_SDIST | docs


@pytest.mark.exhaustive(but="booking_sdk")
def test_the_metadata_has_author_license_links_and_tested_pythons(folder: str, built: Path) -> None:
    fields = metadata(built)
    assert fields["Author"] == "The Booking Service authors"
    assert fields["License-Expression"] == "MIT"
    assert len(fields["Keywords"].split(",")) >= 5
    labels = {line.split(",")[0] for line in fields.get_all("Project-URL", [])}
    assert labels == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    lowest = int(fields["Requires-Python"].removeprefix(">=3."))
    pythons = [f"Programming Language :: Python :: 3.{minor}" for minor in range(lowest, 15)]
    assert [line for line in fields.get_all("Classifier", []) if re.search(r":: 3\.\d+$", line)] == pythons


def readme(folder: str) -> str:
    return (ROOT / folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_the_package_page_is_the_readme(folder: str, built: Path) -> None:
    if folder != "booking_sdk":  # its page has the guides, too
        assert metadata(built).get_payload() == readme(folder)


def test_every_link_of_the_package_page_leads_somewhere(folder: str, request: pytest.FixtureRequest) -> None:
    """A package index shows the page without the repository: a relative link would be broken."""
    from readme_renderer import markdown

    is_readme = folder != "booking_sdk"
    text = readme(folder) if is_readme else str(metadata(request.getfixturevalue("built")).get_payload())
    page = markdown.render(text) or ""
    assert len(page) > 300, "a package page describes its package"
    anchors = set(re.findall(r' id="([^"]+)"', page))
    for target in re.findall(r'<a href="([^"]*)"', page):
        assert target.startswith("https://") or target.removeprefix("#") in anchors, target


def test_all_packages_carry_the_license_of_the_tree_and_the_same_addresses() -> None:
    addresses: list[Any] = []
    for folder in FOLDERS:
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
        addresses.append(tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["urls"])
    assert all(address == addresses[0] for address in addresses)
