"""The service for commands that go over HTTP: running, with an organization whose key the environment holds."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from booking_core.base.clock import system_clock
from booking_core.db.engine import Database
from support.receivers.receivers import LOCAL
from support.serving.servers import Service
from support.world.hooks import Hooks
from support.world.world import FixedClock, make_world


@contextmanager
def running(url: str, folder: Path) -> Iterator[Service]:
    """Run the service on the database, without a worker; receivers on this machine are allowed."""
    service = Service(url, folder / "service.log", **LOCAL).start()
    try:
        yield service
    finally:
        service.stop()


@contextmanager
def logged_in(service: Service, environment: Callable[[str, str], None], folder: Path) -> Iterator[Hooks]:
    """Make an organization, and set the environment to one of its keys, with every scope."""
    clock = FixedClock(system_clock())
    with closing(Database(service.url, clock=clock)) as database:
        world = make_world(database, clock)
        environment("BOOKING_API_KEY", world.key())
        environment("BOOKING_BASE_URL", f"http://127.0.0.1:{service.ports[0]}")
        environment("BOOKING_CONFIG_DIR", str(folder / "config"))
        hooks = Hooks(world)
        yield hooks
        _settle(hooks)


def _settle(hooks: Hooks) -> None:
    """Send the queued deliveries, which a later test would otherwise send."""
    while (due_at := hooks.next_due_at()) is not None:
        hooks.world.clock.at = max(hooks.world.clock.at, due_at)
        claimed = hooks.claim(free=1000)
        assert claimed, "an earlier test left a claimed delivery"
        hooks.succeed(*claimed)
