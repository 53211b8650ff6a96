"""The service as processes, for tests that need real sockets, several processes or a kill."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.servers import Service


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
    """A service that the test starts and kills as it likes, on a database of its own."""
    served = Service(fresh_database_url, tmp_path / "log")
    yield served
    if served.servers:
        served.kill()
