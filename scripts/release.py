"""Builds a release: five distributions, checked and installed together into an empty environment of each Python.

    python -m scripts.release set 0.2.0                   # write a version into every file that carries it
    python -m scripts.release build                       # build, check, install and try; files are in dist/
    python -m scripts.release build --python python3.12   # try with this interpreter only; may be repeated

`dist/` then has the sdists and wheels, an SBOM for each Python (CycloneDX), SHA256SUMS, and the notes of the release
from CHANGELOG.md. Nothing is uploaded. In each environment a smoke test books a seat through `booking serve`.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scripts import interpreters

ROOT = Path(__file__).parents[1]
FOLDERS = ("webhook_verify", "booking_core", "booking_sdk", "booking_server", "booking_cli")
SBOM = "cyclonedx-bom==7.5.0"
START_S = 60.0
VERSIONED = {
    **{f"{folder}/pyproject.toml": r'(?:^version = "|==)([0-9][^"]*)"' for folder in FOLDERS},
    "booking_sdk/_version.py": r'__version__ = "([^"]+)"',
    "booking_cli/_version.py": r'__version__ = "([^"]+)"',
    "deploy/kubernetes/booking.yaml": r"image: booking:(\S+)",
}
"""The files that contain the version, with the pattern of its places."""


class Failed(Exception):
    """A check of the release failed."""


def current_version() -> str:
    """Return the version that all distributions carry.

    Raises:
        Failed: two files carry different versions.
    """
    carried = {
        (file, match)
        for file, pattern in VERSIONED.items()
        for match in re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    }
    versions = {version for _, version in carried}
    if len(versions) != 1:
        raise Failed(f"files carry different versions: {sorted(carried)}")
    return versions.pop()


def set_version(version: str) -> None:
    """Write a version into every file that contains it."""
    for file, pattern in VERSIONED.items():
        path = ROOT / file
        text = path.read_text(encoding="utf-8")
        path.write_text(
            re.sub(pattern, lambda match: match[0].replace(match[1], version), text, flags=re.MULTILINE),
            encoding="utf-8",
        )


def notes(version: str) -> str:
    """Return the section of a version in CHANGELOG.md.

    Raises:
        Failed: there is none.
    """
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if match is None:
        raise Failed(f"CHANGELOG.md has no section {version}")
    return match[0].strip() + "\n"


# Build ---------------------------------------------------------------------------------------------------------------


def build(dist: Path, pythons: list[Path]) -> None:
    """Build, check and try the release in a folder that is replaced."""
    version = current_version()
    text = notes(version)
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    for folder in FOLDERS:
        say(f"build {folder} {version}")
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(ROOT / folder))
    files = sorted(map(str, dist.iterdir()))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    for python in pythons:
        try_with(python, dist)
    (dist / "NOTES.md").write_text(text, encoding="utf-8")
    write_sums(dist)
    say(f"{version} is in {dist}")


def try_with(python: Path, dist: Path) -> None:
    """Install the wheels into an empty environment, write its SBOM, and book a seat."""
    name = run(str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    say(f"try with Python {name}")
    with tempfile.TemporaryDirectory(prefix="booking-release-") as folder:
        environment = Path(folder) / "venv"
        run(str(python), "-m", "venv", str(environment))
        wheels = [f"{wheel}[operator]" if "booking_cli" in wheel.name else str(wheel) for wheel in dist.glob("*.whl")]
        constraints = write_constraints(Path(folder) / "constraints.txt")
        interpreter = environment / "bin" / "python"
        run(str(interpreter), "-m", "pip", "install", "--quiet", "-c", str(constraints), *wheels)
        run(str(interpreter), "-m", "pip", "check")
        write_sbom(interpreter, Path(folder), dist / f"sbom-python{name}.json")
        smoke(environment / "bin", Path(folder))


def write_constraints(path: Path) -> Path:
    """Write the pinned versions of locks/test.txt as constraints, without hashes."""
    lines = (ROOT / "locks" / "test.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.rstrip(" \\") for line in lines if re.match(r"[A-Za-z0-9]", line)]
    path.write_text("\n".join(pins) + "\n", encoding="utf-8")
    return path


def write_sbom(python: Path, folder: Path, target: Path) -> None:
    """Write the SBOM of an environment, with a program in another environment."""
    tools = folder / "tools"
    run(sys.executable, "-m", "venv", str(tools))
    run(str(tools / "bin/python"), "-m", "pip", "install", "--quiet", SBOM)
    run(str(tools / "bin/cyclonedx-py"), "environment", str(python), "--output-reproducible", "-o", str(target))


def write_sums(dist: Path) -> None:
    """Write the SHA-256 of each file of the release."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="utf-8")


# Smoke test ----------------------------------------------------------------------------------------------------------

CATALOGUE = {
    "experiences": [
        {
            "slug": "kayak",
            "title": "Kayak",
            "duration_minutes": 60,
            "price_tiers": [
                {
                    "id": "adult",
                    "name": "Adult",
                    "price": {"amount_minor": 50000, "currency": "NOK"},
                    "seats_per_unit": 1,
                }
            ],
            "departures": [{"starts_at": f"{time.localtime().tm_year + 1}-06-01T10:00:00", "seats_total": 3}],
        }
    ]
}
BOOK = """
from datetime import date
from booking_sdk import BookingClient
day = date({year}, 6, 1)
with BookingClient() as client:
    departure = next(iter(client.availability.list(date_from=day, date_to=day)))
    booking = client.bookings.create(
        departure_id=departure.id, guests=[{{"tier_id": "adult", "count": 2}}], payment="pay_on_site",
        customer={{"name": "Ada Lovelace", "email": "ada@example.com"}}, idempotency_key="release-0001",
    )
    left = next(iter(client.availability.list(date_from=day, date_to=day))).seats_available
    assert (booking.status, left) == ("confirmed", 1), (booking.status, left)
"""


def smoke(programs: Path, folder: Path, python: str | None = None) -> None:
    """Set up an organization with the installed command, serve it, and book a seat with the installed SDK.

    Args:
        python: the interpreter with the SDK, if that is in another environment.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("BOOKING_", "PYTHON"))}
    env |= {"BOOKING_DATABASE_URL": f"sqlite:///{folder}/booking.db", "BOOKING_CONFIG_DIR": f"{folder}/config"}
    booking = str(programs / "booking")
    catalogue = folder / "catalogue.json"
    catalogue.write_text(json.dumps(CATALOGUE), encoding="utf-8")
    run(booking, "db", "upgrade", env=env)
    zone = ("--timezone", "Europe/Oslo", "--currency", "NOK")
    run(booking, "orgs", "create", "--slug", "tours", "--name", "Tours", *zone, env=env)
    run(booking, "catalog", "import", "--org", "tours", str(catalogue), env=env)
    scopes = ("--all-read", "--scope", "bookings:write")
    key = json.loads(run(booking, "--json", "keys", "create", "--org", "tours", "--name", "smoke", *scopes, env=env))
    with served(booking, env) as base_url:
        code = BOOK.format(year=time.localtime().tm_year + 1)
        run(
            python or str(programs / "python"),
            "-c",
            code,
            env=env | {"BOOKING_BASE_URL": base_url, "BOOKING_API_KEY": key["key"]},
        )
    run(booking, "doctor", env=env)


@contextlib.contextmanager
def served(booking: str, env: dict[str, str]) -> Iterator[str]:
    """Run `booking serve` on a free port, and yield its address when it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    service = subprocess.Popen([booking, "serve", "--port", str(port)], env=env, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        give_up_at = time.monotonic() + START_S
        while not accepts(port):
            if service.poll() is not None or time.monotonic() > give_up_at:
                raise Failed(f"booking serve does not start, exit code {service.returncode}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        service.send_signal(signal.SIGINT)
        if service.wait(30):
            raise Failed(f"booking serve ended with exit code {service.returncode}")


def accepts(port: int) -> bool:
    """Return whether a program accepts connections on a port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# Programs ------------------------------------------------------------------------------------------------------------


def run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program, and return what it prints.

    Raises:
        Failed: its exit code is not 0.
    """
    folder = cwd or tempfile.gettempdir()
    result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        raise Failed(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def say(line: str) -> None:
    """Print a step."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Read the options, and set the version or build the release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("set", help="write a version into every file that carries it").add_argument("version")
    building = commands.add_parser("build", help="build, check, install and try")
    building.add_argument("--output", type=Path, default=ROOT / "dist")
    building.add_argument("--python", type=Path, action="append", help="an interpreter; every one that is found")
    options = parser.parse_args()
    try:
        if options.command == "set":
            set_version(options.version)
        else:
            build(options.output.resolve(), options.python or interpreters.installed())
    except Failed as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
