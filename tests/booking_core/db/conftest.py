"""A newer release of the schema, for tests of upgrades."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.releases import Release, newer_release


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """Return a function that makes this process a newer release, with one revision for each body."""
    with newer_release(tmp_path, monkeypatch) as make:
        yield make
