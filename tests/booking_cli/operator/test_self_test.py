"""`booking demo --once`: the self-test over real HTTP, and how a failed step is reported."""

import json
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.serving.commands import Booking
from support.serving.demo import small

from booking_cli.operator import self_test
from booking_core.db.engine import Database
from booking_core.webhooks import find_all
from booking_sdk import APIConnectionError
from webhook_verify import Verifier, generate_secret

STEPS = "import key me receiver seats book replay deliver cancel deliver events doctor goodbye".split()


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fail if a self-test left a file or a running thread."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = set(threading.enumerate())

    def check() -> None:
        assert list(tmp_path.rglob("*")) == [temporary]
        assert {thread.name for thread in set(threading.enumerate()) - before} == set()

    return check


@pytest.fixture
def copied_schema(new_database_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the self-test copy a database of this release, where it would run every revision."""
    template = new_database_url("sqlite").removeprefix("sqlite:///")
    monkeypatch.setattr(
        "booking_core.db.migrate.upgrade", lambda url: shutil.copyfile(template, url.removeprefix("sqlite:///"))
    )


@pytest.mark.exhaustive(but="sqlite")
def test_every_step_passes_and_nothing_is_left(
    stored_on_both: Booking, nothing_left: Callable[[], None], backend: str
) -> None:
    result = stored_on_both("demo", "--once", "-o", "json")
    assert (result.code, result.err) == (0, "")
    steps = result.json["data"]
    assert [step["step"] for step in steps] == STEPS
    assert all(step["ok"] is True for step in steps)
    widths = [max(len(str(step[column])) for step in steps) for column in self_test.COLUMNS]
    assert sum(widths) + 2 * (len(widths) - 1) <= 80
    nothing_left()
    organizations = stored_on_both("orgs", "list", "-o", "json").json["data"]
    assert len(organizations) == (backend == "postgresql")


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_the_self_test_repeats_on_postgresql_and_removes_its_receiver(
    stored_on_both: Booking, fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = stored_on_both
    assert [booking("demo", "--once", "-q").code for _ in range(2)] == [0, 0]
    monkeypatch.setattr(self_test, "Verifier", lambda _: Verifier(generate_secret()))
    assert booking("demo", "--once", "-q").code == 1
    organizations = booking("orgs", "list", "-o", "json").json["data"]
    assert [organization["slug"].rpartition("-")[0] for organization in organizations] == ["fjord-tours"] * 3
    keys = booking("keys", "list", "--org", organizations[0]["slug"], "-o", "json").json["data"]
    assert [key["expires_at"] is not None for key in keys] == [True]
    database = Database(fresh_database_url)
    for organization in organizations:
        caller: Any = SimpleNamespace(organization=SimpleNamespace(id=organization["id"]))
        assert database.read(lambda tx, caller=caller: find_all(tx, caller))["data"] == []  # type: ignore[misc]
    database.close()


@pytest.mark.usefixtures("copied_schema")
def test_a_catalogue_of_ones_own_plays_too(booking: Booking, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(small("own-tour", "CLP")))
    result = booking("demo", "--once", "--catalog", str(file))
    assert (result.code, result.err) == (0, "")
    lines = [line.split("\t") for line in result.out.splitlines()]
    assert ["book", "POST /bookings", "201 confirmed, 89000 CLP", "true"] in lines


@pytest.mark.usefixtures("copied_schema")
def test_a_delivery_that_does_not_verify_fails_the_self_test(
    booking: Booking, nothing_left: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "Verifier", lambda _: Verifier(generate_secret()))
    result = booking("demo", "--once", "-o", "json")
    assert result.code == 1
    *fine, last = result.json["data"]
    assert all(step["ok"] for step in fine)
    assert last == {"step": "deliver", "asked": "the receiver", "answer": "signature_mismatch", "ok": False}
    nothing_left()


class Unheard(self_test.Receiver):
    """A receiver without deliveries, whose time ends at once."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.arrived = self

    def get(self, *, timeout: float) -> Any:
        assert timeout == 20
        raise queue.Empty


@pytest.mark.usefixtures("copied_schema")
def test_a_delivery_that_does_not_come_fails_the_self_test(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "Receiver", Unheard)
    monkeypatch.setattr("booking_server.worker.queue.webhooks.claim", lambda *_, **__: [])
    result = booking("demo", "--once", "-v")
    assert result.code == 1
    assert result.out.splitlines()[-1].split("\t") == ["deliver", "the receiver", "no booking.created in 20 s", "false"]
    assert "deliver failed: no booking.created in 20 s" in result.err
    assert "webhooks may be sent to private addresses: 127.0.0.0/8" in result.err, "-v shows the log"


@pytest.mark.exhaustive(but="step failed")
@pytest.mark.usefixtures("copied_schema")
@pytest.mark.parametrize(
    ("raised", "answer"),
    [
        (APIConnectionError("reset"), "no answer (APIConnectionError)"),
        (KeyError("id"), "unexpected response"),
        (self_test.StepFailed("409 conflict"), "409 conflict"),
    ],
    ids=["no answer", "unexpected response", "step failed"],
)
def test_whatever_goes_wrong_is_marked_at_its_step(
    booking: Booking, monkeypatch: pytest.MonkeyPatch, raised: Exception, answer: str
) -> None:
    def fail(*_: Any) -> Iterator[str]:
        yield "200 fine"
        raise raised

    monkeypatch.setattr(self_test, "_story", fail)
    result = booking("demo", "--once", "-o", "json")
    assert result.code == 1
    *_, me, failed = result.json["data"]
    assert (me["answer"], me["ok"]) == ("200 fine", True)
    assert failed == {"step": "receiver", "asked": "POST /webhooks", "answer": answer, "ok": False}


@pytest.mark.usefixtures("copied_schema")
def test_a_service_that_cannot_start_fails_at_once(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no more files")

    monkeypatch.setattr("booking_server.app._worker_of", fail)
    result = booking("demo", "--once", "-o", "json")
    assert result.code == 1
    last = result.json["data"][-1]
    assert (last["step"], last["answer"].startswith("no answer")) == ("me", True)


@pytest.mark.usefixtures("copied_schema")
def test_a_refusal_is_shown_with_its_code(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "create_key", lambda *_, **__: "svc_" + "0" * 40)
    result = booking("demo", "--once", "-o", "json")
    assert result.json["data"][-1]["answer"] == "401 api_key_invalid"
