"""Counts the files and functions of the workspace that one request runs through.

    python -m scripts.trace_request                    # POST /bookings and GET /me on SQLite
    python -m scripts.trace_request --postgresql       # on a PostgreSQL that this program starts
    python -m scripts.trace_request --functions        # also lists the functions of each file

The service runs in this process, under uvicorn with its protocol class, without a worker. Each request is sent twice:
the first call fills caches and is not counted. A function is what `def` defines: comprehensions, generator expressions
and lambdas are part of the function that contains them.
"""

import argparse
import contextlib
import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

ROOT = Path(__file__).parents[1]
PACKAGES = ("booking_core", "booking_server", "webhook_verify")
sys.path.insert(0, str(ROOT / "tests"))


class Recorder:
    """Records the functions of the workspace that are called while it is active, in every thread."""

    def __init__(self) -> None:
        self.is_on = False
        self.functions: set[tuple[str, str]] = set()
        self._prefixes = tuple(f"{ROOT / package}/" for package in PACKAGES)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_defined = not code.co_name.startswith("<")
        if self.is_on and event == "call" and is_defined and code.co_filename.startswith(self._prefixes):
            self.functions.add((code.co_filename, code.co_qualname))

    def files(self) -> dict[str, list[str]]:
        """Return the functions by file, both sorted."""
        functions: dict[str, list[str]] = {}
        for file, function in sorted(self.functions):
            functions.setdefault(str(Path(file).relative_to(ROOT)), []).append(function)
        return functions


@contextlib.contextmanager
def served(url: str) -> Iterator[tuple[int, str, str]]:
    """Run the service in a thread; yield its port, an API key and the id of a departure."""
    from support.world.world import SECRET, FixedClock, make_world

    from booking_core.base.settings import Settings
    from booking_core.db import migrate
    from booking_core.db.engine import Database
    from booking_server.app import create_app

    migrate.upgrade(url)
    database = Database(url, clock=(clock := FixedClock()))
    world = make_world(database, clock)
    departure, key = world.departure(world.experience(), seats=100), world.key()
    app = create_app(Settings(database_url=url, secret_key=SECRET, rate_limit=None), database=database)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        protocol = "booking_server.transport.protocol:HttpProtocol"
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, ws="none", log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield listening.getsockname()[1], key, departure
        finally:
            server.should_exit = True
            thread.join()
            database.close()


def traced(recorder: Recorder, port: int, method: str, path: str, key: str, body: dict[str, Any] | None) -> int:
    """Send a request twice, record the second one, and return its status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        for attempt in ("trace-0001", "trace-0002"):
            recorder.functions.clear()
            recorder.is_on = attempt == "trace-0002"
            headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": attempt, "Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            response.read()
            time.sleep(0.1)  # work after the response belongs to the request
    recorder.is_on = False
    return response.status


def measured(url: str, *, functions: bool) -> None:
    """Print the counts of both requests."""
    from support.api.api import booking_body

    recorder = Recorder()
    threading.setprofile(recorder)
    with served(url) as (port, key, departure):
        requests = [("POST", "/api/v1/bookings", booking_body(departure)), ("GET", "/api/v1/me", None)]
        for method, path, body in requests:
            status = traced(recorder, port, method, path, key, body)
            files = recorder.files()
            count = sum(map(len, files.values()))
            sys.stdout.write(f"{method} {path} ({status}): {len(files)} files, {count} functions\n")
            for file, names in files.items():
                sys.stdout.write(f"  {file}: {', '.join(names) if functions else len(names)}\n")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgresql", action="store_true", help="measure on PostgreSQL, not on SQLite")
    parser.add_argument("--functions", action="store_true", help="list the functions of each file")
    options = parser.parse_args()
    if options.postgresql:
        from bench import postgres

        with postgres.running() as server:
            measured(server.create_database("traced"), functions=options.functions)
        return
    with tempfile.TemporaryDirectory() as folder:
        measured(f"sqlite:///{folder}/traced.db", functions=options.functions)


if __name__ == "__main__":
    main()
