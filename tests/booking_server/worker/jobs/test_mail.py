"""The mail job, from outbox rows to mails that a mail server accepted."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from pathlib import Path

import pytest
from support.databases import databases
from support.receivers.smtp import OK, MailServer
from support.world.mails import Mails
from support.world.world import SECRET, FixedClock, World, make_world

from booking_core.base.clock import MINUTE
from booking_core.base.settings import SettingError, Settings
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.notifications import ClaimedMail, MailOutcome, MailResult
from booking_core.notifications.rules import SEND_RETRY_DELAYS
from booking_core.records.outbox import OutboxKind
from booking_server.adapters.smtp import CONNECTIONS_MAX, MailReport
from booking_server.worker.jobs.mail import OF_ONE_MAX, SEND_BATCH, WRITE_BATCH, MailJob, mail_folder, mail_job

CONFIRMATION = OutboxKind.BOOKING_CONFIRMATION_MAIL


@pytest.fixture
def world(module_database: Database, clock: FixedClock) -> Iterator[World]:
    """Return an organization in a database without mails and outbox rows."""
    url = module_database.url.render_as_string(hide_password=False)
    databases.run(url, "DELETE FROM mails", "DELETE FROM effects")
    yield make_world(module_database, clock)
    module_database.observer = None


@pytest.fixture
def mails(world: World) -> Mails:
    return Mails(world)


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as running:
        yield running


def make_job(world: World, **settings: str) -> MailJob:
    url = world.database.url.render_as_string(hide_password=False)
    environment = {f"BOOKING_{name.upper()}": value for name, value in settings.items()}
    mail_settings = Settings.from_environment({"BOOKING_DATABASE_URL": url, "BOOKING_SECRET_KEY": SECRET} | environment)
    return mail_job(mail_settings, world.database, world.installation)


def turn(world: World, **settings: str) -> int:
    return asyncio.run(make_job(world, **settings).run_once())


# With a mail server ----------------------------------------------------------------------------------------------


def test_owed_mails_are_written_and_sent_in_one_turn(mails: Mails, server: MailServer) -> None:
    mails.book()
    settings = {"smtp_url": server.url, "mail_from": "Booking Office <office@book.example>"}
    assert turn(mails.world, **settings) == 4  # two are written, two are sent
    assert sorted(received.recipient for received in server.received) == ["ada@example.com", "staff@example.com"]
    assert {received.sender for received in server.received} == {"office@book.example"}
    assert {row["status"] for row in mails.world.rows(tables.mails)} == {"sent"}
    assert turn(mails.world, **settings) == 0
    assert len(server.received) == 2


def test_a_delayed_mail_is_sent_later_with_the_same_message_id(
    mails: Mails, server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    mails.book(notify_staff=False)
    tried: list[str] = []

    def later(received: object) -> str:
        tried.append(getattr(received, "message_id"))  # noqa: B009 - the server's mails have no type
        return "451 later" if len(tried) == 1 else OK

    server.on_message = later
    turn(mails.world, smtp_url=server.url)
    assert mails.rows()[CONFIRMATION]["status"] == "queued"
    assert "451 later" in caplog.text
    assert turn(mails.world, smtp_url=server.url) == 0
    mails.world.clock.advance(SEND_RETRY_DELAYS[0])
    turn(mails.world, smtp_url=server.url)
    assert mails.rows()[CONFIRMATION]["status"] == "sent"
    assert len(tried) == 2
    assert len(set(tried)) == 1


@pytest.mark.one_database
def test_a_turn_sends_more_than_one_batch(mails: Mails, server: MailServer) -> None:
    count = max(WRITE_BATCH, SEND_BATCH) + 1
    for number in range(count):
        departure = mails.world.departure(mails.world.experience())
        mails.book(f"a-key-of-a-test-{number}", departure_id=departure, notify_staff=False)
    assert turn(mails.world, smtp_url=server.url) == 2 * count
    assert len({received.message_id for received in server.received}) == count


def test_no_transaction_is_open_while_a_mail_is_sent(mails: Mails) -> None:
    mails.book()
    open_then: list[int] = []

    class WatchingMailer:
        delivers = True

        async def send(self, claimed: Sequence[ClaimedMail], report: MailReport) -> None:
            database = mails.world.database
            open_then.extend(await asyncio.to_thread(lambda: [database.write(lambda tx: tx.now()) for _ in claimed]))
            await report([MailResult(mail, MailOutcome.SENT) for mail in claimed])

    job = make_job(mails.world)
    asyncio.run(MailJob(mails.world.database, mails.world.installation, WatchingMailer(), job._sender).run_once())
    assert len(open_then) == 2  # each would have waited for the writer, or for the row


@pytest.mark.one_database
def test_a_stopping_worker_sends_its_batch_and_claims_no_other(mails: Mails, server: MailServer) -> None:
    for number in range(CONNECTIONS_MAX * SEND_BATCH + 1):
        mails.book(f"a-key-of-a-test-{number}", notify_staff=False)
    mails.write(limit=100)
    job, stop = make_job(mails.world, smtp_url=server.url), asyncio.Event()

    async def work() -> int:
        count = await job.run_turn(stop)
        stop.set()
        assert await job.run_turn(stop) == 0
        await job.close()
        return count

    assert asyncio.run(work()) == OF_ONE_MAX * SEND_BATCH
    assert len(server.received) == OF_ONE_MAX * SEND_BATCH


def test_an_idle_turn_writes_nothing(mails: Mails, server: MailServer) -> None:
    job = make_job(mails.world, smtp_url=server.url)
    asyncio.run(job.run_once())
    texts: list[str] = []
    mails.world.database.observer = texts.append
    assert asyncio.run(job.run_once()) == 0
    assert len(texts) == 2, "the organizations with mails to write, and with mails to send"
    assert all(text.startswith("WITH RECURSIVE") for text in texts)


# Without a mail server -------------------------------------------------------------------------------------------


def test_without_a_mail_server_mails_become_files_once(mails: Mails, tmp_path: Path) -> None:
    folder = tmp_path / "mail"
    mails.book()
    turn(mails.world, mail_dir=str(folder))
    first, second = sorted(folder.iterdir())
    assert {message_from_bytes(file.read_bytes())["To"].split()[-1] for file in (first, second)} == {
        "<ada@example.com>",
        "staff@example.com",
    }
    first.unlink()
    assert turn(mails.world, mail_dir=str(folder)) == 0
    assert list(folder.iterdir()) == [second]
    assert {row["status"] for row in mails.world.rows(tables.mails)} == {"queued"}
    assert mails.world.examine() == []


def test_parked_mails_are_sent_when_there_is_a_mail_server(mails: Mails, tmp_path: Path, server: MailServer) -> None:
    mails.book()
    turn(mails.world, mail_dir=str(tmp_path / "mail"))
    files = {file.read_bytes() for file in (tmp_path / "mail").iterdir()}
    turn(mails.world, smtp_url=server.url)
    assert {received.raw for received in server.received} == files
    assert {row["status"] for row in mails.world.rows(tables.mails)} == {"sent"}


def test_a_new_process_sends_a_mail_parked_by_an_old_process(mails: Mails, tmp_path: Path, server: MailServer) -> None:
    """The new process has a mail server and runs already; the old one has none, and claims a last mail."""
    old, new = make_job(mails.world, mail_dir=str(tmp_path / "mail")), make_job(mails.world, smtp_url=server.url)
    asyncio.run(new.run_once())
    mails.book(notify_staff=False)
    asyncio.run(old.run_once())
    mails.world.clock.advance(MINUTE)
    asyncio.run(new.run_once())
    assert [received.recipient for received in server.received] == ["ada@example.com"]


def test_the_folder_lies_beside_an_sqlite_file_and_is_named_for_postgresql() -> None:
    assert mail_folder(Settings(database_url="sqlite:////srv/data/booking.db")) == Path("/srv/data/booking.db.mail")
    assert mail_folder(Settings(database_url="postgresql://localhost/booking")) is None
    assert mail_folder(Settings(database_url="postgresql://localhost/booking", mail_dir="m")) == Path("m")


# Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("BOOKING_SMTP_URL", url)
            for url in ("smtp://", "smtp://a.example:port", "smtp://a.example:0", "http://a.b")
        ),
        *(("BOOKING_MAIL_FROM", text) for text in ("nobody", "a@b.c, d@e.f", "Ada <a@b.c", "a@bücher.example", "x <>")),
    ],
)
def test_settings_without_a_server_or_a_mailbox_are_refused_at_start(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=name):
        Settings.from_environment({name: value})


def test_the_password_is_not_logged(mails: Mails, server: MailServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    mails.book()
    url = server.url.replace("://", "://tours:a-secret-password@")
    turn(mails.world, smtp_url=url)
    assert "a-secret-password" not in caplog.text
    assert "a-secret-password" not in str(Settings.from_environment({"BOOKING_SMTP_URL": url}).shown())
