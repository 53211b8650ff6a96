"""The code blocks of the guides run against the fake."""

import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import booking_sdk
from booking_sdk import _http
from booking_sdk import client as module
from booking_sdk.testing import FakeBookingAPI, ManualClock, fake, make_event, on_clock
from webhook_verify import generate_secret
from webhook_verify.testing import signed_request, tampered

FOLDER = Path(booking_sdk.__file__).parent
GUIDES = [FOLDER / "README.md", *sorted((FOLDER / "docs").glob("*.md"))]
DEPARTURE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"


def blocks(guide: Path, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBookingAPI]:
    """Provide the fake for every client of a guide, with departures and a booking."""
    api = FakeBookingAPI()
    experience = api.add_experience()
    with monkeypatch.context() as patched:
        patched.setattr(fake, "new_id", lambda: DEPARTURE)
        api.add_departure(experience, seats=12)
    departure = api.add_departure(experience, seats=12)
    for number in range(3):
        api.client().bookings.create(
            departure_id=departure.id,
            guests=[{"tier_id": "adult", "count": 1}],
            customer={"name": "Grace Hopper", "email": f"grace{number}@example.com"},
            payment="invoice",
        )
    monkeypatch.setenv("BOOKING_API_KEY", api.key())
    monkeypatch.setenv("BOOKING_BASE_URL", api.base_url)
    for name in ("Client", "AsyncClient"):
        kind = getattr(httpx, name)
        monkeypatch.setattr(_http.httpx, name, lambda kind=kind, **_: kind(transport=api.transport))
    clients: list[Any] = []  # the guides leave them open, and an open client that is collected warns
    pools: list[Any] = []
    for kind in (booking_sdk.BookingClient, booking_sdk.AsyncBookingClient):
        monkeypatch.setattr(kind, "__init__", remembering(kind.__init__, clients))
    for kind in (_http.Connections, _http.AsyncConnections):
        monkeypatch.setattr(kind, "__init__", remembering(kind.__init__, pools))
    yield api
    for pool in pools:
        pool.is_closed = True


def remembering(make: Any, objects: list[Any]) -> Any:
    """Wrap a method so that it records its objects."""

    def method(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        objects.append(self)

    return method


def run(guide: Path, **names: Any) -> dict[str, Any]:
    """Run the code blocks of a guide in order, and return their variables."""
    for number, block in enumerate(blocks(guide), 1):
        exec(compile(block, f"{guide.name}, block {number}", "exec"), names)
    return names


def test_every_guide_has_blocks() -> None:
    assert len(GUIDES) == 4, "each has a test that runs its blocks"
    assert all(len(blocks(guide)) >= 5 for guide in GUIDES)


def test_the_five_minutes_and_the_rest_of_the_readme(
    api: FakeBookingAPI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = generate_secret()
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", secret)
    names = run(FOLDER / "README.md", __name__="readme")
    output = capsys.readouterr().out
    assert "Fjord Tours" in output
    assert "4 confirmed 1780.00 NOK" in output
    assert "4 was cancelled: api" in output
    assert re.search(r"^only (9|12) seats left$", output, re.MULTILINE)
    headers, body = signed_request(make_event("booking.created").to_json(), secret)
    assert names["receive"](body, headers) == 200
    headers, body = tampered(make_event("booking.created").to_json(), secret)
    assert names["receive"](body, headers) == 400


def test_the_guide_to_retries(api: FakeBookingAPI, capsys: pytest.CaptureFixture[str]) -> None:
    names = run(FOLDER / "docs" / "retries.md")
    assert len(api.bookings) == 3 + 3
    assert "GET /api/v1/me 1 200" in capsys.readouterr().out
    names["client"] = on_clock(names["client"], ManualClock())

    def run_again(words: str) -> None:
        exec(next(block for block in blocks(FOLDER / "docs" / "retries.md") if words in block), names)

    api.drop_connection_after_commit(times=3)
    run_again("surely nothing")
    assert len(api.bookings) == 3 + 4
    run_again("second attempt")
    assert len(api.bookings) == 3 + 4
    api.cancel_booking(names["booking"].id)
    run_again("second attempt")
    assert len(api.bookings) == 3 + 5
    assert names["booking"].status == "confirmed"
    api.drop_connection_after_commit(path="/api/v1/webhooks")
    run_again("lost with the answer")
    assert any(request.path.endswith("/rotate-secret") for request in api.requests)


def test_the_guide_to_pages_and_feeds(api: FakeBookingAPI) -> None:
    names = run(FOLDER / "docs" / "pagination.md")
    mirrored = names["database"].execute("SELECT id, status FROM mirror").fetchall()
    assert sorted(mirrored) == sorted((booking.id, "confirmed") for booking in api.bookings)
    api.cancel_booking(api.bookings[0].id)
    before = len(api.requests)
    names["mirror"](poll=None)
    assert len(api.requests) == before + 1
    assert (api.bookings[0].id, "cancelled") in names["database"].execute("SELECT id, status FROM mirror").fetchall()
    assert len(names["checkpoints"]) == len(api.events) - 1
    names["database"].close()


def passed(names: dict[str, Any]) -> int:
    """Run the tests that a guide's blocks define, and return their number."""
    tests = [value for name, value in names.items() if name.startswith("test_")]
    for test in tests:
        assert not inspect.signature(test).parameters
        test()
    return len(tests)


@pytest.mark.exhaustive
def test_the_tests_of_the_guide_to_testing_pass_without_a_warning(tmp_path: Path) -> None:
    """An integrator's pytest, which knows nothing of this project's filters, shows each warning of the service."""
    (tmp_path / "test_guide.py").write_text("\n\n".join(blocks(FOLDER / "docs" / "testing.md")), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"^14 passed in ", finished.stdout, re.MULTILINE)


def test_the_example_with_respx_is_complete() -> None:
    (example,) = [block for block in blocks(FOLDER / "docs" / "testing.md") if "import respx" in block]
    names: dict[str, Any] = {"__name__": "test_booking"}
    exec(compile(example, "testing.md, respx", "exec"), names)
    assert passed(names) == 5


def test_names_in_the_guides_exist() -> None:
    client = FakeBookingAPI().client()
    nouns = "|".join(module._RESOURCES)
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        for noun, verb in re.findall(rf"`(?:client\.)?({nouns})\.(\w+)", text):
            assert hasattr(getattr(client, noun), verb), f"{guide.name}: {noun}.{verb}"
        for name in re.findall(r"(?<!httpx\.)\b(\w+Error)\b", text):
            assert hasattr(booking_sdk, name) or hasattr(builtins, name), f"{guide.name}: {name}"


def test_the_reference_names_every_method() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    client = FakeBookingAPI().client()
    for noun in module._RESOURCES:
        (row,) = re.findall(rf"^\| `client\.{noun}` \|(.*)\|$", text, re.MULTILINE)
        verbs = {name for name in dir(getattr(client, noun)) if not name.startswith("_")}
        assert set(re.findall(r"`(\w+)", row)) == verbs


def test_links_between_the_guides_lead_somewhere() -> None:
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (guide.parent / target).is_file(), target
        headings = [line.lstrip("#").strip().lower() for line in text.splitlines() if line.startswith("#")]
        for anchor in re.findall(r"\]\(#([^)]+)\)", text):
            assert anchor in {re.sub(r"[^\w-]", "", heading.replace(" ", "-")) for heading in headings}
