"""The types of the SDK, checked with the program of an integrator under the strictest settings."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from sdk_support import integrator, narrowing

import booking_sdk
from booking_sdk import EventType
from booking_sdk.params import BookingEventType, CustomerEventType, DepartureEventType, GiftCardEventType

BIN = Path(sys.executable).parent
"""The environment of the tests. pyright is installed in it, so a machine without pyright fails instead of skipping."""

MISTAKES = {
    'client.bookings.create(departure_id="d")': "call-arg",
    'client.bookings.list(status="waiting")': "arg-type",
    'client.bookings.get("b").bookng_number': "attr-defined",
    'client.with_options(colour="red")': "call-arg",
    'client.availability.list(date_from="2026-06-01")': "arg-type",
    'client.me(options={"retries": 3})': "arg-type",
    'client.bookings.get("b").totals.total + 5': "operator",
}


SETTINGS = """
[mypy]
[mypy-booking_server.*,sqlalchemy.*,fastapi.*,starlette.*]
follow_imports = skip
"""
"""`FakeBookingAPI` runs the service, whose types are in no signature of the SDK: mypy is faster without it."""

NARROWING = Path(narrowing.__file__)
SDK = Path(str(booking_sdk.__file__)).parent
GUIDES = {
    "readme.py": SDK / "README.md",
    "retries.py": SDK / "docs" / "retries.md",
    "pagination.py": SDK / "docs" / "pagination.md",
}


@pytest.fixture(scope="module")
def guides(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a program for each guide: its blocks in their order."""
    folder = tmp_path_factory.mktemp("guides")
    for name, guide in GUIDES.items():
        blocks = re.findall(r"^```python\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")
    return [folder / name for name in GUIDES]


@pytest.fixture(scope="module")
def complaints(guides: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the messages of one run of `mypy --strict` over all programs here, by the name of the file."""
    folder = tmp_path_factory.mktemp("mypy")
    mistaken = folder / "mistaken.py"
    lines = ["from booking_sdk import BookingClient", "client = BookingClient()", *MISTAKES]
    mistaken.write_text("\n".join(lines), encoding="utf-8")
    (folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    programs = [Path(str(integrator.__file__)), mistaken, NARROWING, *guides]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "--cache-dir", "cache"]
    result = subprocess.run([*command, *map(str, programs)], capture_output=True, text=True, cwd=folder, check=False)
    assert result.stdout.splitlines()[-1].endswith("in 1 file (checked 6 source files)"), result.stdout + result.stderr
    complaints: dict[str, list[str]] = {program.name: [] for program in programs}
    for line in result.stdout.splitlines()[:-1]:
        complaints[Path(line.partition(":")[0]).name].append(line)
    return complaints


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["integrator.py", *GUIDES])
def test_a_program_and_the_guides_pass_mypy_strict(name: str, complaints: dict[str, list[str]]) -> None:
    assert complaints[name] == []


def test_kinds_of_events_are_those_of_the_service() -> None:
    for kind in (BookingEventType, CustomerEventType, DepartureEventType, GiftCardEventType):
        prefix, *names = get_args(kind)
        assert names == [name for name in EventType if name.startswith(prefix.removesuffix("*"))]


@pytest.mark.exhaustive
def test_a_mistake_of_an_integrators_is_found(complaints: dict[str, list[str]]) -> None:
    for number, code in enumerate(MISTAKES.values(), 3):
        lines = complaints["mistaken.py"]
        assert any(f"mistaken.py:{number}: error" in line and f"[{code}]" in line for line in lines), lines


REVEALED = {
    number: line.partition("  # ")[2]
    for number, line in enumerate(NARROWING.read_text(encoding="utf-8").splitlines(), 1)
    if "reveal_type(" in line
}


def assert_narrowed(kinds: dict[int, str]) -> None:
    """Compare the types that a checker reveals with the comments of the sample, without module names."""
    assert {number: re.sub(r"[\w.]+\.", "", kind) for number, kind in kinds.items()} == REVEALED


@pytest.mark.exhaustive
def test_mypy_narrows_events_by_their_type(complaints: dict[str, list[str]]) -> None:
    lines = complaints["narrowing.py"]
    assert [line for line in lines if ": note: " not in line] == []
    matches = [re.search(r":(\d+): note: Revealed type is \"(.*)\"", line) for line in lines]
    assert_narrowed({int(one[1]): one[2] for one in matches if one})


@pytest.fixture(scope="module")
def pyright(guides: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages of one run of pyright, by the name of the file."""
    # As in `make check`, it finds Python and the packages through the PATH.
    environment = {**os.environ, "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", "")])}
    programs = [NARROWING, *guides]
    command = [str(BIN / "pyright"), "--outputjson", *map(str, programs)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=NARROWING.parent, env=environment, check=False)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] == len(programs)
    messages: dict[str, list[dict[str, Any]]] = {program.name: [] for program in programs}
    for message in report["generalDiagnostics"]:
        messages[Path(message["file"]).name].append(message)
    return messages


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", GUIDES)
def test_the_guides_pass_pyright(name: str, pyright: dict[str, list[dict[str, Any]]]) -> None:
    assert pyright[name] == []


@pytest.mark.exhaustive
def test_pyright_narrows_events_by_their_type(pyright: dict[str, list[dict[str, Any]]]) -> None:
    messages = pyright[NARROWING.name]
    assert [one for one in messages if one["severity"] != "information"] == []
    matches = {one["range"]["start"]["line"] + 1: re.search(r'is "(.*)"', one["message"]) for one in messages}
    assert_narrowed({number: match[1] for number, match in matches.items() if match})


def test_an_integrators_program_runs() -> None:
    integrator.main()
