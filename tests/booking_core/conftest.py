"""Fixtures for tests of the core."""

import pytest


@pytest.fixture
def postgresql_only(backend: str) -> None:
    """Skips the test on SQLite: it is about locks of other transactions, lost connections or kept plans."""
    if backend == "sqlite":
        pytest.skip("SQLite has one writer and no server, and plans each statement once")
