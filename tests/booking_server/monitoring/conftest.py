"""A database of each test's own, whose clock the test moves."""

import pytest

from booking_core.db.engine import Database


@pytest.fixture
def database(fresh_database: Database) -> Database:
    return fresh_database
