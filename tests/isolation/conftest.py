"""A scene for each test: its own database, and the service in a separate process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.databases import is_sqlite

from isolation.measuring import Misbehaviour
from isolation.world import Scene

CANCELLATIONS = 32
"""The neighbour's bookings at the beginning: enough to cancel until its new bookings can be cancelled."""

OpenScene = Callable[[Misbehaviour], Scene]


@pytest.fixture
def open_scene(fresh_database_url: str, tmp_path: Path) -> Iterator[OpenScene]:
    """A function that creates the scene of a misbehaviour at its reduced size."""
    with ExitStack() as stack:

        def make(misbehaviour: Misbehaviour) -> Scene:
            return stack.enter_context(
                Scene(
                    fresh_database_url,
                    tmp_path,
                    is_full=False,
                    cancellations=CANCELLATIONS,
                    settings=misbehaviour.settings,
                )
            )

        yield make
    _forget(fresh_database_url)


def _forget(url: str) -> None:
    """Delete the file of an SQLite database, which is large and may be kept in memory."""
    if is_sqlite(url):
        for path in Path(str(make_url(url).database)).parent.glob("booking.db*"):
            path.unlink()
