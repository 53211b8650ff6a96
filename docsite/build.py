"""The build: collect the pages of the repository, generate the reference, and let Zensical render the site.

Everything is in one folder: `pages/` has the Markdown, `site/` the HTML. Nothing is downloaded, and the site loads
nothing from other sites, so it works without a network, from a server and from a folder.
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from booking_server import reference
from docsite import cli, facts, sdk
from docsite.links import Pages

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r"^( *)([-*] |\d+\. )")
_DIAGRAM = re.compile(r"^<!-- diagram: ([a-z-]+) -->$", re.MULTILINE)
_FILES = {
    "booking_sdk/README.md": "guides/integrators/sdk.md",
    "booking_sdk/docs/retries.md": "guides/integrators/retries.md",
    "booking_sdk/docs/pagination.md": "guides/integrators/pagination.md",
    "booking_sdk/docs/testing.md": "guides/integrators/testing.md",
    "examples/channel_manager/README.md": "guides/integrators/channel-manager.md",
    "booking_cli/README.md": "guides/merchants/command-line.md",
    "examples/README.md": "guides/merchants/example-catalogues.md",
    "webhook_verify/README.md": "guides/receivers/verify.md",
    "ARCHITECTURE.md": "design/architecture.md",
    "CONTRIBUTING.md": "design/contributing.md",
    "CHANGELOG.md": "design/changelog.md",
    "bench/README.md": "design/bench.md",
    "bench/history/measurements.md": "design/measurements.md",
    "decisions/README.md": "design/decisions/index.md",
}
"""Pages outside `docs/`, with their places in the site."""
_ADDRESS = "https://booking.invalid/openapi.json"
"""The address of the document for its reader. It is not requested."""


class BuildFailed(Exception):
    """The site could not be built, or has a link to a page or an anchor that is not there."""


def build(folder: Path) -> Path:
    """Build the site in a folder that it replaces, and return the folder of the HTML.

    Raises:
        BuildFailed: Zensical found a problem, or a page links to something that is not there.
        BrokenLink: a page of the repository has a link that leads nowhere.
    """
    collect(folder)
    return rendered(folder)


def collect(folder: Path) -> None:
    """Write the pages and the configuration into a folder that it replaces, for Zensical to render."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    pages.mkdir(parents=True)
    document = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
    commands = cli.Reference()
    generated = facts.pages(document) | sdk.pages() | commands.pages()
    moved = _FILES | {
        f"decisions/{path.name}": f"design/decisions/{path.name}"
        for path in sorted((ROOT / "decisions").glob("[0-9]*.md"))
    }
    _write(pages, generated)
    write_api(pages / "reference/api", document)
    _copy(pages, Pages(ROOT, moved, frozenset(generated) | {"reference/api/index.html"}))
    decisions = [{_title(pages / place): place} for source, place in moved.items() if source.startswith("decisions/0")]
    lists = {"@cli": commands.nav(), "@decisions": decisions}
    _configure(folder, lists)


def _write(pages: Path, texts: dict[str, str]) -> None:
    for place, text in texts.items():
        path = pages / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_api(folder: Path, document: dict[str, Any]) -> None:
    """Write the page that `/docs` serves, with the document in it: a browser reads no other file from a folder."""
    folder.mkdir(parents=True)
    text = json.dumps(document, ensure_ascii=False).replace("<", "\\u003c")
    (folder / "openapi.json").write_text(text, encoding="utf-8")
    page = reference.read_asset("docs.html")
    for name in re.findall(r'"docs/assets/([^"]+)"', page):
        (folder / name).write_text(reference.read_asset(name), encoding="utf-8")
    page = page.replace("docs/assets/", "").replace("api/v1/openapi.json", "openapi.json")
    embedded = f'<script id="document" type="application/json" data-address="{_ADDRESS}">{text}</script>'
    (folder / "index.html").write_text(page.replace("<script", f"{embedded}\n<script", 1), encoding="utf-8")


def _copy(pages: Path, places: Pages) -> None:
    """Copy the files of docs/, and the pages outside it."""
    sources = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()]
    for source in [*sources, *places.moved]:
        place = places.place(source)
        if place is None or place == "zensical.toml":
            continue
        path = pages / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if not source.endswith(".md"):
            shutil.copyfile(ROOT / source, path)
            continue
        text = _regular((ROOT / source).read_text(encoding="utf-8"))
        path.write_text(_with_diagrams(places.copied(source, place, text)), encoding="utf-8")


def _regular(text: str) -> str:
    """Return Markdown that all parsers read in the same way: an empty line before each list, items indented by four."""
    lines: list[str] = []
    is_code = in_list = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
        item = None if is_code else _ITEM.match(line)
        if item and not in_list and lines and lines[-1].strip():
            lines.append("")
        if item:
            in_list = True
        elif line.strip() and not line.startswith(" "):
            in_list = False
        if in_list and not item and line.startswith(" ") and line.strip():
            line = "    " + line.lstrip() if not is_code and not _FENCE.match(line) else "  " + line
        lines.append(line)
    return "\n".join(lines)


def _with_diagrams(text: str) -> str:
    return _DIAGRAM.sub(lambda match: (ROOT / f"docs/diagrams/{match[1]}.svg").read_text(encoding="utf-8"), text)


def _title(page: Path) -> str:
    """Return the heading of a page."""
    heading = next(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
    return heading.removeprefix("# ")


def _configure(folder: Path, lists: dict[str, Any]) -> None:
    """Write the configuration of docs/, with the navigation of the generated pages."""
    config = tomllib.loads((ROOT / "docs/zensical.toml").read_text(encoding="utf-8"))
    config["project"]["nav"] = _filled(config["project"]["nav"], lists)
    (folder / "zensical.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def _filled(nav: Any, lists: dict[str, Any]) -> Any:
    if isinstance(nav, list):
        return [item for each in nav for item in _items(each, lists)]
    if isinstance(nav, dict):
        return {
            name: lists.get(value, value) if isinstance(value, str) else _filled(value, lists)
            for name, value in nav.items()
        }
    return nav


def _items(each: Any, lists: dict[str, Any]) -> list[Any]:
    return lists[each] if isinstance(each, str) and each in lists else [_filled(each, lists)]


def rendered(folder: Path) -> Path:
    """Let Zensical render the pages of a folder, and return the folder of the HTML.

    Raises:
        BuildFailed: a link leads to no page or anchor, or a name of the references does not exist.
    """
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", "zensical.toml"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if run.returncode:
        output = re.sub(r"\x1b\[[0-9;]*m", "", run.stderr or run.stdout)
        links, _, traceback = output.partition("No issues found")
        raise BuildFailed(traceback or links.partition("Traceback")[0])
    return folder / "site"


def relative(path: Path) -> str:
    """Return a path relative to the repository's folder."""
    return posixpath.relpath(path.resolve().as_posix(), Path.cwd().as_posix())
