"""The start times of imports, commands and the service. Every take is a separate process."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench import canned, listing
from bench.kinds import Contender, Cost
from bench.processes import HOST, ROOT, free_port
from bench.service import BOOKING, Service
from bench.stage import FILLED, Stage

BARE = "python -c pass"
GIVE_UP_S = 60.0


# Imports ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imports:
    """Compare modules by the clock of the process that imports them, without the start of the interpreter."""

    modules: tuple[str, ...]

    def __call__(self, stage: Stage, stack: ExitStack) -> Sequence[Contender]:
        return [Contender(f"import {module}", lambda module=module: _import_ms(module)) for module in self.modules]  # type: ignore[misc]


def _import_ms(module: str) -> float:
    code = (
        "from time import perf_counter; began = perf_counter()\n"
        f"import {module}\n"
        "print((perf_counter() - began) * 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


# Commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """Measure `booking` with these arguments, from its start to its end, compared with a bare Python."""

    arguments: tuple[str, ...]
    stdin: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    calls_the_api: bool = False

    def __call__(self, stage: Stage, stack: ExitStack) -> Sequence[Contender]:
        env = dict(self.settings)
        if self.calls_the_api:
            api = stack.enter_context(canned.served(listing.BODIES))
            env |= {"BOOKING_BASE_URL": f"http://{HOST}:{api.port}", "BOOKING_API_KEY": listing.API_KEY}
        named = f"booking {' '.join(self.arguments)}"
        return [
            Contender(named, lambda: _ran_ms([str(BOOKING), *self.arguments], self.stdin, env)),
            Contender(BARE, lambda: _ran_ms([sys.executable, "-c", "pass"])),
        ]


def _ran_ms(command: Sequence[str], stdin: str = "", env: dict[str, str] | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(
        command, cwd=ROOT, env=os.environ | (env or {}), input=stdin.encode(), capture_output=True, check=True
    )
    return (time.perf_counter() - began) * 1e3


# The service -----------------------------------------------------------------------------------------------------


def _serving(stage: Stage, stack: ExitStack) -> Sequence[Contender]:
    service, readers, _ = stage.lists()
    authorization = readers[FILLED].authorization
    floor = [sys.executable, "-c", "import fastapi, sqlalchemy"]
    return [
        Contender("booking serve", lambda: _served_ms(service, authorization)),
        Contender("import fastapi, sqlalchemy", lambda: _ran_ms(floor)),
    ]


def _served_ms(service: Service, authorization: dict[str, str]) -> float:
    """Measure the time from the start of the process to its first response that came from the database."""
    port = free_port()
    began = time.perf_counter()
    child = subprocess.Popen(
        service.command(port, worker=True),
        cwd=ROOT,
        env=os.environ | service.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not answers(port, authorization):
            if child.poll() is not None or time.perf_counter() > began + GIVE_UP_S:
                raise RuntimeError(f"booking serve does not answer, exit {child.returncode}")
            time.sleep(0.005)
        return (time.perf_counter() - began) * 1e3
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(10)
        finally:
            child.kill()


def answers(port: int, authorization: dict[str, str]) -> bool:
    """Return whether the service answers a request with this key."""
    connection = http.client.HTTPConnection(HOST, port, timeout=GIVE_UP_S)
    try:
        connection.request("GET", "/api/v1/me", headers=authorization)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


Build = Callable[[Stage, ExitStack], Sequence[Contender]]


def _command(name: str, at_most: float, build: Command) -> Cost:
    return Cost(name, f"booking {' '.join(build.arguments)}", BARE, "ms", at_most, build, times=4)


SECRET = ("BOOKING_WEBHOOK_SECRET", f"whsec_{'A' * 43}=")
SIGN = Command(("webhooks", "sign"), stdin='{"id":"evt"}', settings=(SECRET,))

ENTRIES = (
    Cost(
        "sdk-import",
        "import booking_sdk",
        "import httpx, pydantic",
        "ms",
        1.15,
        Imports(("booking_sdk", "httpx, pydantic")),
        times=3,
    ),
    Cost(
        "verify-import",
        "import webhook_verify",
        "import standardwebhooks",
        "ms",
        0.5,
        Imports(("webhook_verify", "standardwebhooks")),
        times=4,
    ),
    _command("cli-help", 6.5, Command(("--help",))),
    _command("cli-version", 6.5, Command(("--version",))),
    _command("cli-sign", 6.5, SIGN),
    _command("cli-api", 22, Command(("bookings", "list"), calls_the_api=True)),
    Cost("start", "booking serve, to its first answer", "python -c 'import fastapi, sqlalchemy'", "ms", 2.2, _serving),
)
