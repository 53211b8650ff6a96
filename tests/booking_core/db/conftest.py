"""A newer release of the schema, for tests of upgrades."""

from pathlib import Path

import pytest
from support.serving.releases import Release, newer_release


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Return a function that makes this process a newer release, with one revision for each body."""
    return newer_release(tmp_path, monkeypatch)
