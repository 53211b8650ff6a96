"""The service as processes, for tests that need real sockets, several processes or a kill.

After each test the doctor checks the invariants of each database that it had.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import text
from support.serving.servers import Service

from booking_core.base.clock import system_clock
from booking_core.db.engine import Database
from booking_core.db.statements import Statement
from booking_core.upkeep import doctor

TERMS = doctor.CheckOptions(webhook_disable_after_s=0, skew_s=0)
"""Tests disable endpoints sooner than after 72 hours, and change nothing else while events are published. Whether a
worker runs is not asked: most have none."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "harmful: leaves findings for the doctor on purpose")


@dataclass
class Databases:
    """The databases that were made for these tests, and the number of those that a test has had."""

    urls: list[str] = field(default_factory=list)
    count: int = 0

    def new(self) -> list[str]:
        new, self.count = self.urls[self.count :], len(self.urls)
        return new


@pytest.fixture(scope="session")
def databases() -> Databases:
    return Databases()


@pytest.fixture(scope="session")
def new_database_url(new_database_url: Callable[[str], str], databases: Databases) -> Callable[[str], str]:
    """The same, registered for the doctor."""

    def make(backend: str) -> str:
        databases.urls.append(url := new_database_url(backend))
        return url

    return make


@pytest.fixture(autouse=True)
def all_is_well(request: pytest.FixtureRequest, databases: Databases) -> Iterator[None]:
    """Set up first, so checked last: after the end of everything that the test had started, and before its database is
    dropped.

    Of the database that all tests share, the test's own organization.
    """
    if "fresh_database_url" in request.fixturenames:
        request.getfixturevalue("fresh_database_url")
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    yield
    urls = databases.new()
    if request.node.get_closest_marker("harmful"):
        return
    if "service" in request.fixturenames:
        urls.append(request.getfixturevalue("service").url)
    if "shared_database_url" in request.fixturenames:
        urls = [url for url in urls if url != request.getfixturevalue("shared_database_url")]
    findings = [finding for url in dict.fromkeys(urls) for finding in examined(url)]
    if world is not None:
        findings += world.examine()
    assert findings == []


def examined(url: str) -> list[doctor.Finding]:
    """Return the doctor's findings in the database at the instant of the test's clock, which may be ahead."""
    database = Database(url, clock=lambda: reached)
    reached = system_clock()
    try:
        reached = max(reached, *(row[0] or 0 for row in database.read(lambda tx: tx.all(_NEWEST))))
        return database.read(lambda tx: doctor.examine(tx, options=TERMS))
    finally:
        database.close()


_NEWEST = Statement(
    text(
        """SELECT max(created_at) FROM events UNION ALL SELECT max(created_at) FROM holds
           UNION ALL SELECT max(updated_at) FROM bookings UNION ALL SELECT max(updated_at) FROM deliveries
           UNION ALL SELECT max(updated_at) FROM refunds UNION ALL SELECT max(created_at) FROM effects
           UNION ALL SELECT max(created_at) FROM mails"""
    )
)


@pytest.fixture(scope="module")
def service(
    backend: str, new_database_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A running service on a database of the module's own, whose log must stay empty."""
    served = Service(new_database_url(backend), tmp_path_factory.mktemp("service") / "log").start()
    yield served
    served.stop()
    assert served.complaints() == ""


@pytest.fixture
def mortal_service(fresh_database_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service that the test starts and kills, on a separate database."""
    served = Service(fresh_database_url, tmp_path / "log")
    yield served
    if served.servers:
        served.kill()
