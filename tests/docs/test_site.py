"""The documentation site builds, without broken links, anchors or images."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import booking_sdk
from booking_core.base.settings import Settings, variable
from booking_core.models.errors import ErrorCode
from booking_core.models.events import EventType
from booking_core.models.scopes import Scope
from booking_sdk import params
from docsite import cli, facts, sdk
from docsite.build import ROOT, BuildFailed, collect, rendered


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the pages of the site into a folder."""
    folder = tmp_path_factory.mktemp("docs") / "build"
    collect(folder)
    return folder


@pytest.fixture(scope="module")
def site(collected: Path) -> Path:
    """Render the site. Broken links, broken anchors and resources from other hosts are refused."""
    return rendered(collected)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_the_site_builds_without_a_broken_link(site: Path) -> None:
    assert (site / "docs/index.html").is_file()
    assert len(list(site.rglob("*.html"))) > 100


def test_every_page_of_the_repository_is_in_the_navigation(collected: Path) -> None:
    config = text_of(collected / "zensical.toml")
    places = [
        path.relative_to(ROOT).as_posix() for name in ("docs", "decisions") for path in (ROOT / name).rglob("*.md")
    ]
    assert len(places) > 70
    assert [place for place in places if f'"{place}"' not in config] == []


def test_every_generated_page_is_in_the_navigation(collected: Path) -> None:
    pages = facts.pages(json.loads(text_of(ROOT / "openapi.json"))) | sdk.pages() | cli.Reference().pages()
    assert len(pages) > 60
    assert [place for place, text in pages.items() if text_of(collected / "pages" / place) != text] == []


@pytest.mark.exhaustive
def test_the_site_asks_no_other_server_for_anything(site: Path) -> None:
    for path in [*site.rglob("*.html"), *site.glob("assets/*.css")]:
        assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?:https?:)?//", text_of(path)), path
        assert "@import" not in text_of(path)


@pytest.mark.exhaustive
def test_the_reference_has_every_operation_command_setting_and_code(site: Path) -> None:
    document = json.loads((ROOT / "openapi.json").read_text())
    reference = text_of(site / "docs/reference/api/index.html")
    for operations in document["paths"].values():
        for operation in operations.values():
            assert f'"operationId": "{operation["operationId"]}"' in reference
    for name, commands in cli.Reference().groups.items():
        page = text_of(site / f"docs/reference/cli/{name}.html")
        assert all(f"booking {' '.join(words)}" in page for words in commands)
    for setting in fields(Settings):
        assert variable(setting.name) in text_of(site / "docs/reference/settings.html")
    error_codes = text_of(site / "docs/reference/error-codes.html")
    assert "Bearer &lt;API_KEY&gt;" in error_codes
    for code in ErrorCode:
        assert f"<code>{code.value}</code>" in error_codes
    for event_type in EventType:
        assert event_type.value in text_of(site / "docs/reference/event-types.html")
    for scope in Scope:
        assert scope.value in text_of(site / "docs/reference/scopes.html")


@pytest.mark.exhaustive
def test_the_reference_has_the_types_of_all_arguments(site: Path) -> None:
    reference = "".join(text_of(site / f"docs/reference/sdk/{page}.html") for page in ("errors", "helpers"))
    names = [name for name in booking_sdk.__all__ if hasattr(params, name)]
    assert len(names) > 10
    for name in names:
        assert f'id="booking_sdk.{name}"' in reference


def test_the_links_and_pictures_of_the_readme_are_there() -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(ROOT / "README.md"))
    assert len(targets) > 20
    assert [target for target in targets if not (ROOT / target).is_file()] == []
    pictures = [ROOT / target for target in targets if target.startswith("docs/images/")]
    assert len(pictures) == 1
    assert sum(picture.stat().st_size for picture in pictures) < 100_000


def test_every_setting_is_explained() -> None:
    rows = dict(re.findall(r"^\| `(BOOKING_\w+)` \| (.+) \|$", facts.settings(), re.MULTILINE))
    assert rows.keys() == {variable(setting.name) for setting in fields(Settings)}


@pytest.mark.exhaustive(but="page")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[this](nowhere.md)", r"does not exist\n.*index\.md:3"),
        ("[this](index.md#nowhere)", r"does not exist\n.*index\.md:3"),
        ("[this](#nowhere)", r"does not exist\n.*index\.md:3"),
        ("::: booking_sdk.Nothing", r"booking_sdk\.Nothing"),
    ],
    ids=["page", "heading of a page", "heading", "name of the reference"],
)
def test_a_link_or_a_name_of_nothing_ends_the_build(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/index.md").write_text(f"# Page\n\n{text}\n")
    settings = '[project]\nsite_name = "x"\ndocs_dir = "pages"\n[project.plugins.mkdocstrings]\n'
    (tmp_path / "zensical.toml").write_text(settings)
    with pytest.raises(BuildFailed, match=message):
        rendered(tmp_path)
