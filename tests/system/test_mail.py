"""Mails while the worker dies: each arrives at least once, and a mail that arrives twice is the same both times.

In the ordinary run a few bookings and kills. BOOKING_TEST_MAIL_BOOKINGS and BOOKING_TEST_MAIL_KILLS make it as many as
one likes.
"""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.databases import databases
from support.receivers.receivers import Worker, wait_until, workers
from support.receivers.smtp import OK, TAKE_AND_DROP, MailServer, Received
from support.serving.servers import new_world
from support.world.creating import create, created
from support.world.world import World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.db import tables
from booking_core.records.idempotency import Answer
from booking_server.adapters.smtp import CONNECTIONS_MAX

BOOKINGS = int(os.environ.get("BOOKING_TEST_MAIL_BOOKINGS", "30"))
KILLS = int(os.environ.get("BOOKING_TEST_MAIL_KILLS", "2"))
BATCH = 20
WAIT_S = 60 + BOOKINGS / 2


def book(world: World) -> None:
    departure = world.departure(world.experience(), seats=BOOKINGS)
    for start in range(0, BOOKINGS, BATCH):
        numbers = range(start, min(start + BATCH, BOOKINGS))
        guests = [{"name": f"Guest {number}", "email": f"guest-{number}@example.com"} for number in numbers]
        creates = [
            create(world, departure, f"a-key-of-mails-{number}", customer=guest)
            for number, guest in zip(numbers, guests, strict=True)
        ]
        assert all(isinstance(answer, Answer) for answer in created(world.database, creates))


class Killing:
    """Kills the worker in the middle of mails, spread over all of them: before the mail was accepted, or after that and
    before its answer.

    It kills once when it is armed: a worker sends several mails at once.
    """

    def __init__(self, server: MailServer, worker: Worker) -> None:
        self.server = server
        self.worker = worker
        self.is_armed = False
        self._random = random.Random(7)
        self._kills = sorted(self._random.sample(range(1, 2 * BOOKINGS), KILLS), reverse=True)

    def __call__(self, _: Received) -> str:
        if not self.is_armed or len(self.server.received) < self._kills[-1]:
            return OK
        self._kills.pop()
        self.worker.kill()
        self.is_armed = False
        return self._random.choice([TAKE_AND_DROP, "451 killed"])


def is_over(world: World) -> bool:
    outbox = {row["status"] for row in world.rows(tables.effects)}
    return outbox == {"done"} and {row["status"] for row in world.rows(tables.mails)} == {"sent"}


def let_leases_pass(url: str) -> None:
    """Expire every lease, as if its time had gone by since its worker died."""
    databases.run(url, "UPDATE mails SET next_attempt_at = 0 WHERE status = 'queued' AND lease_until IS NOT NULL")


@pytest.mark.exhaustive(but="sqlite")
def test_every_mail_arrives_although_the_worker_is_killed(fresh_database_url: str, tmp_path: Path) -> None:
    with (
        MailServer() as server,
        new_world(fresh_database_url) as world,
        workers(fresh_database_url, tmp_path, 1, BOOKING_SMTP_URL=server.url) as (worker,),
    ):
        book(world)
        killing = server.on_message = Killing(server, worker)
        for _ in range(KILLS):
            killing.is_armed = True
            worker.start()
            wait_until(lambda: not killing.is_armed, "the worker is killed", within_s=WAIT_S)
            let_leases_pass(fresh_database_url)
        worker.start()
        wait_until(lambda: is_over(world), "every mail is sent", within_s=WAIT_S)
        assert worker.stop() == ExitCode.OK
        check(world, server)


def check(world: World, server: MailServer) -> None:
    rows = world.rows(tables.mails)
    assert len(rows) == 2 * BOOKINGS
    assert len({row["effect_key"] for row in rows}) == 2 * BOOKINGS
    arrived = Counter(received.message_id for received in server.received)
    assert set(arrived) == {f"<{row['message_id']}>" for row in rows}
    assert len({received.raw for received in server.received}) == 2 * BOOKINGS
    recipients = Counter({received.message_id: received.recipient for received in server.received}.values())
    guests: dict[str, Any] = {f"guest-{number}@example.com": 1 for number in range(BOOKINGS)}
    assert recipients == guests | {"staff@example.com": BOOKINGS}
    twice = sum(times - 1 for times in arrived.values())
    print(f"{2 * BOOKINGS} mails, {KILLS} kills: {twice} arrived once more than needed")
    assert twice <= KILLS * CONNECTIONS_MAX
