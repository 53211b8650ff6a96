"""A secret key is rotated while the service runs, and dropped: nothing that it sealed is lost, and no link ends."""

import base64
import itertools
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.api.api import booking_body
from support.receivers.receivers import LOCAL, Receiver, Receivers, wait_until
from support.serving import forking, serving
from support.world.hooks import Hooks
from support.world.sealed import CODE, KEY, Sealed
from support.world.world import FixedClock, make_world

import webhook_verify
from booking_core.base.clock import system_clock
from booking_core.db.engine import Database

A, B, C = (base64.b64encode(random.Random(seed).randbytes(32)).decode() for seed in "ABC")
OLD_ANSWERS = 120


@dataclass
class Installation:
    """A database, and commands that run on it with a list of secret keys."""

    url: str
    folder: Path
    sealed: Sealed
    api_key: str
    receiver: Receiver

    def environment(self, keys: str, **settings: str) -> dict[str, str]:
        variables = {"BOOKING_DATABASE_URL": self.url, "BOOKING_SECRET_KEY": keys, "BOOKING_RATE_LIMIT": "off"}
        return {**os.environ, **LOCAL, **variables, "BOOKING_MAIL_DIR": str(self.folder / "mails"), **settings}

    def run(self, keys: str, *argv: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return forking.run(["booking", *argv], env=self.environment(keys, **settings), text=True)

    @contextmanager
    def serving(self, keys: str, **settings: str) -> Iterator[tuple[httpx.Client, list[str]]]:
        """Run the service with its worker, as `booking serve` does; yield a client and the log."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = ["booking", "serve", "--port", "0"]
        started = forking.start(words, env=self.environment(keys, **settings), text=True, **pipes)
        headers = {"Authorization": f"Bearer {self.api_key}"}
        with (
            serving.serving(started) as (address, log),
            httpx.Client(base_url=address, headers=headers, timeout=30) as client,
        ):
            yield client, log
        assert "Traceback" not in "".join(log)

    def book(self, client: httpx.Client, key: str) -> httpx.Response:
        body = booking_body(self.sealed.departure)
        return client.post("/api/v1/bookings", json=body, headers={"Idempotency-Key": key})

    def assert_all_works(self, client: httpx.Client) -> None:
        """Check that a guest, a receiver, an integrator and a cashier have the same access as before."""
        sealed = self.sealed
        page = client.get(f"/manage/{sealed.token}")
        assert (page.status_code, "Fjord kayak" in page.text) == (200, True)
        replayed = self.book(client, KEY)
        assert (replayed.status_code, replayed.content) == (201, sealed.answer)
        assert replayed.headers["Idempotent-Replayed"] == "true"
        card = client.get(f"/api/v1/gift-cards/{sealed.card}", params={"include": "code"}).json()
        assert card["code"] == CODE
        booking = client.get(f"/api/v1/bookings/{sealed.booking}").json()
        assert booking["manage_url"].endswith(sealed.token)
        self._assert_delivered()

    def _assert_delivered(self) -> None:
        before = len(self.receiver.receipts)
        Hooks(self.sealed.world).publish()
        self.receiver.wait_for(before + 1)
        receipt = self.receiver.receipts[-1]
        webhook_verify.Verifier(self.sealed.secret, tolerance=3600).verify(receipt.body, receipt.headers)


@pytest.fixture
def installed(fresh_database_url: str, tmp_path: Path) -> Iterator[Installation]:
    """Everything sealed with key A."""
    clock = FixedClock(system_clock())
    with closing(Database(fresh_database_url, clock=clock)) as database, Receivers() as receivers:
        receiver = receivers.open()
        sealed = Sealed(make_world(database, clock))
        sealed.use(A)
        sealed.fill(url=receiver.url)
        for number in range(OLD_ANSWERS):
            sealed.book(f"{KEY}-{number}")
        key = sealed.world.key()
        yield Installation(fresh_database_url, tmp_path, sealed, key, receiver)


@contextmanager
def writing(book: Callable[[str], httpx.Response]) -> Iterator[list[tuple[str, bytes]]]:
    """Book one booking after the other meanwhile; yields each key with its answer."""
    answers: list[tuple[str, bytes]] = []
    failed: list[Any] = []
    stop = threading.Event()

    def work() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            answer = book(f"meanwhile-{number}")
            if answer.status_code == 201:
                answers.append((f"meanwhile-{number}", answer.content))
            else:
                failed.append(answer)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: answers or failed, "a booking is made")
        yield answers
    finally:
        stop.set()
        thread.join()
    assert failed == []


def status(installed: Installation, keys: str) -> dict[str, Any]:
    process = installed.run(keys, "secrets", "status", "--json")
    assert process.returncode == 0, process.stderr
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


@pytest.mark.exhaustive
def test_a_key_is_rotated_while_guests_book_and_dropped_without_a_loss(installed: Installation) -> None:
    both = f"{B},{A}"
    with installed.serving(both) as (client, _), writing(lambda key: installed.book(client, key)) as answers:
        before = status(installed, both)
        assert {row["state"] for row in before["data"] if row["place"] == 2} == {"to_reseal"}
        resealed = installed.run(both, "secrets", "reseal", "--json")
        assert resealed.returncode == 0, resealed.stderr
        booked_meanwhile = len(answers)
    assert booked_meanwhile
    counts = {row["kind"]: row["resealed"] for row in json.loads(resealed.stdout)["data"]}
    assert counts["stored_answer"] == OLD_ANSWERS + 1
    assert (counts["webhook_secret"], counts["gift_card_code"]) == (1, 1)
    after = status(installed, both)
    assert {(row["state"], row["place"]) for row in after["data"]} == {("current", 1)}
    (old,) = [key for key in after["keys"] if key["place"] == 2]
    assert (old["values"], old["can_be_dropped"]) == (0, True)

    installed.sealed.use(B)
    installed.sealed.assert_all_open()
    with installed.serving(B) as (client, _):
        installed.assert_all_works(client)
        for key, answer in answers:
            assert installed.book(client, key).content == answer
    assert installed.run(B, "doctor").returncode == 0


@pytest.mark.exhaustive(but="sqlite")
def test_a_service_with_another_key_says_so_and_does_not_start(installed: Installation) -> None:
    for command in (("serve", "--port", "0"), ("worker",), ("doctor",)):
        refused = installed.run(C, *command)
        assert refused.returncode == 2, refused.stderr
        first, *hint = [line for line in refused.stderr.splitlines() if not line.startswith("database: ")]
        assert first.startswith("error: BOOKING_SECRET_KEY does not open the sealed values of this database: ")
        for kind in ("webhook secrets", "gift card codes", "stored answers", "guests' links"):
            assert kind in first
        assert "BOOKING_SECRET_KEY=NEW,OLD" in "".join(hint)
        assert A not in refused.stderr
        assert C not in refused.stderr


@pytest.mark.exhaustive(but="sqlite")
def test_who_has_lost_the_key_can_go_on_without(installed: Installation) -> None:
    with installed.serving(C, BOOKING_SECRET_KEY_CHECK="warn") as (client, log):
        assert client.get(f"/manage/{installed.sealed.token}").status_code == 404
        assert installed.book(client, "without-the-old-key").status_code == 201
    assert "does not open the sealed values of this database" in "".join(log)
    process = installed.run(C, "secrets", "reseal")
    assert process.returncode == 12
