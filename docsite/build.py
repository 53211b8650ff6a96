"""The build: collect the pages that the navigation names, generate the reference, and let Zensical render the site.

Pages have the same paths in the site as in the repository, so that their links need no change. Everything is in one
folder: `pages/` has the Markdown, `site/` the HTML. Nothing is downloaded, and the site loads nothing from other sites,
so it works without a network, from a server and from a folder.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from booking_server import reference
from docsite import cli, facts, sdk

ROOT = Path(__file__).parents[1]
_DIAGRAM = re.compile(r"^<!-- diagram: ([a-z-]+) -->$", re.MULTILINE)
_FOLDERS = ("docs/assets", "docs/images")
_HOME = '<!doctype html>\n<meta http-equiv="refresh" content="0; url=docs/index.html">\n'
_ADDRESS = "https://booking.invalid/openapi.json"
"""The address of the document for its reader. It is not requested."""


class BuildFailed(Exception):
    """The site could not be built, or has a link to a page or an anchor that is not there."""


def build(folder: Path) -> Path:
    """Build the site in a folder that it replaces, and return the folder of the HTML.

    Raises:
        BuildFailed: Zensical found a problem, or a page links to something that is not there.
    """
    collect(folder)
    return rendered(folder)


def collect(folder: Path) -> None:
    """Write the pages and the configuration into a folder that it replaces, for Zensical to render."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    document = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
    commands = cli.Reference().pages()
    generated = facts.pages(document) | sdk.pages() | commands
    config = _config(commands)
    for place in re.findall(r'"([^"]+\.md)"', config):
        path = pages / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(generated.get(place) or _text(place), encoding="utf-8")
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, pages / name)
    (pages / "index.html").write_text(_HOME, encoding="utf-8")
    (folder / "zensical.toml").write_text(config, encoding="utf-8")
    write_api(pages / "docs/reference/api", document)


def _config(commands: Iterable[str]) -> str:
    """Return the configuration of docs/, with the pages of the commands and of the decisions in the navigation."""
    decisions = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "decisions").glob("[0-9]*.md")))
    config = (ROOT / "docs/zensical.toml").read_text(encoding="utf-8")
    for name, places in {"@cli": commands, "@decisions": decisions}.items():
        config = config.replace(f'"{name}"', ", ".join(f'"{place}"' for place in places))
    return config


def _text(place: str) -> str:
    """Return the text of a page of the repository, with its diagrams."""
    text = (ROOT / place).read_text(encoding="utf-8")
    return _DIAGRAM.sub(lambda match: (ROOT / f"docs/diagrams/{match[1]}.svg").read_text(encoding="utf-8"), text)


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
