"""Other releases: the previous release, and a newer release with revisions of a test."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from alembic.script import Script, ScriptDirectory

from booking_core.db import migrate, revisions

ROOT = Path(__file__).parents[3]
_REVISIONS = "booking_core/db/migrations/versions"
_FOLDERS = ("booking_core", "booking_server", "booking_sdk", "booking_cli", "webhook_verify", "tests")
_FILES = ("openapi.json", "pyproject.toml")

# The previous release ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreviousRelease:
    """The code of the previous release, in a separate folder."""

    folder: Path
    head: str
    """The newest revision of its schema."""

    def environment(self, **settings: str) -> dict[str, str]:
        """Return the environment of an interpreter that imports this code, and the packages installed here."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return variables | {"PYTHONPATH": f"{self.folder}{os.pathsep}{self.tests}"} | settings

    @property
    def tests(self) -> Path:
        return self.folder / "tests"

    def run(self, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        """Run this interpreter there."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            check=False,
        )


def previous_release(folder: Path) -> PreviousRelease:
    """Write the code of the previous release into a folder: the newest tag `v...` before this commit.

    The test is skipped if there is no such tag, or if a later revision stops the processes of the previous release.
    """
    if not _previous_tag():
        pytest.skip("there is no release before this tree: no tag v...")
    return running_release(folder)


def running_release(folder: Path) -> PreviousRelease:
    """Write the code that runs before an upgrade: of the previous release, and of this tree until there is one."""
    tag = _previous_tag()
    command = ["git", "archive", tag] if tag else ["tar", "-c"]
    files = subprocess.run([*command, *_FOLDERS, *_FILES], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=files, check=True)
    revision_ids = {path.name.partition("_")[0] for path in (folder / _REVISIONS).glob("[0-9]*.py")}
    stopping = [script.revision for script in _since(revision_ids) if not getattr(script.module, "is_additive", False)]
    if stopping:
        pytest.skip(f"revisions {stopping} stop processes of the previous release: a deployment has to be stopped")
    return PreviousRelease(folder, max(revision_ids))


def _since(revision_ids: set[str]) -> list[Script]:
    scripts = ScriptDirectory.from_config(migrate._config()).walk_revisions()
    return [script for script in scripts if script.revision not in revision_ids]


def _previous_tag() -> str:
    return _git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")


def _git(*arguments: str) -> str:
    """Return the output of git; an empty text if it fails, as in a folder that is not a repository."""
    try:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


# A newer release -----------------------------------------------------------------------------------------------------

COLUMN = 'op.add_column("bookings", sa.Column("colour", sa.Text()))'
INDEX = 'online.create_index("ix_bookings_colour", "bookings", ["colour"], where="colour IS NOT NULL")'
TABLE = 'op.create_table("of_next", sa.Column("id", sa.Integer(), primary_key=True))'
_REVISION = """
import sqlalchemy as sa
from alembic import op
from booking_core.db.migrations import online
revision, down_revision, branch_labels, depends_on = "{revision}", "{before}", None, None
is_additive = {additive}
def upgrade():
    {body}
"""

Release = Callable[..., None]
"""Turns this process into a newer release, with one revision for each body of `upgrade`, from 9001 on.

`additive` applies to all of them.
"""


def newer_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Return a function that turns this process into a newer release until the end of the test."""
    folders, own_head = revisions.folders(), revisions.head()

    def make(*bodies: str, additive: bool = True) -> None:
        before = own_head
        for former in folder.glob("*_next.py"):
            former.unlink()
        for number, body in enumerate(bodies, start=9001):
            text = _REVISION.format(revision=number, before=before, additive=additive, body=body)
            (folder / f"{number}_next.py").write_text(text)
            before = str(number)

        monkeypatch.setattr(revisions, "folders", lambda: [*folders, folder])

    return make
