"""The job that writes and sends mails.

Mails are processed in short batches, with no transaction open while a mail server is called. Every mail is sent at
least once, and each time with the same Message-ID.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from booking_core import notifications
from booking_core.clock import MINUTE, has_passed
from booking_core.context import Installation
from booking_core.db.engine import Database, Tx
from booking_core.notifications import ClaimedMail, Mailbox, MailOutcome, MailResult
from booking_core.settings import Settings, named_mailbox
from booking_server.adapters.smtp import BATCH_S, MAIL_S, FileMailer, Mailer, SmtpMailer, SmtpServer
from booking_server.worker.clock_watch import ClockWatch
from booking_server.worker.jobs.leasing import LeaseJob

log = logging.getLogger("booking.mail")

WRITE_BATCH = 20
"""Small, because on SQLite, which has one writer, bookings wait while a batch is written."""
SEND_BATCH = 32
LEASE_S = int(BATCH_S + MAIL_S) + 5
"""Longer than a batch can take, so that no heartbeat is needed."""
TURN_S = 5.0
UNPARK_EVERY = MINUTE
"""Repeated, because an older process that has no mail server and is about to be replaced parks the mails it claims."""


class MailJob(LeaseJob[list[ClaimedMail], None]):
    """Writes and sends the mails of all organizations, one batch at a time."""

    name = "mail"

    def __init__(
        self,
        database: Database,
        installation: Installation,
        mailer: Mailer,
        sender: Mailbox,
        watch: ClockWatch | None = None,
    ) -> None:
        super().__init__(database, in_flight_max=1, turn_s=TURN_S)
        self._installation = installation
        self._mailer = mailer
        self._sender = sender
        self._watch = watch
        self._unparked_at = 0

    async def run_once(self) -> int:
        await self._unpark()
        return await super().run_once()

    async def claim(self, limit: int) -> tuple[list[list[ClaimedMail]], int]:
        """Write the mails that are owed, then lease a batch of those that are due."""
        owed, due = await asyncio.to_thread(self._database.read, notifications.pending)
        written = await self._write(self._write_owed) if owed else 0
        batch = await self._write(self._claim_due) if due or written else []
        return [batch] if batch else [], written + len(batch)

    def start(self, unit: list[ClaimedMail]) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._mailer.send(unit, self._record))

    async def settle(self, finished: "Sequence[asyncio.Future[None]]") -> None:
        """Raise the exception of a batch; its results were recorded one by one, as soon as they were known."""
        for future in finished:
            future.result()

    async def _unpark(self) -> None:
        """Make the mails due that were parked while there was no mail server."""
        now = self._database.clock()
        if self._mailer.delivers and has_passed(UNPARK_EVERY, self._unparked_at, now):
            await self._write(notifications.unpark)
            self._unparked_at = now

    def _write_owed(self, tx: Tx) -> int:
        return notifications.write_due(tx, self._installation, limit=WRITE_BATCH, sender=self._sender)

    def _claim_due(self, tx: Tx) -> list[ClaimedMail]:
        is_settled = self._watch is None or self._watch.is_settled
        return notifications.claim(tx, self._installation, limit=SEND_BATCH, lease_s=LEASE_S, gives_up_old=is_settled)

    async def _record(self, results: Sequence[MailResult]) -> None:
        await self._write(lambda tx: notifications.record(tx, results))
        for result in results:
            if result.outcome in (MailOutcome.REFUSED, MailOutcome.DELAYED):
                log.warning("the mail %s was not accepted (%s): %s", result.claimed.id, result.outcome, result.error)


def mail_job(
    settings: Settings, database: Database, installation: Installation, watch: ClockWatch | None = None
) -> MailJob:
    """Create the job of an installation, with the mailer that its settings name."""
    sender = Mailbox(*named_mailbox(settings.mail_from)) if settings.mail_from else None
    sender = sender or notifications.default_sender(installation)
    mailer: Mailer
    if settings.smtp_url:
        mailer = SmtpMailer(SmtpServer.of(settings.smtp_url), sender.address)
    else:
        mailer = FileMailer(mail_folder(settings))
    return MailJob(database, installation, mailer, sender, watch)


def mail_folder(settings: Settings) -> Path | None:
    """Return the folder for mails while there is no mail server, by default beside the SQLite file.

    None for PostgreSQL unless it is set: machines that share a database share no folder.
    """
    if settings.mail_dir:
        return Path(settings.mail_dir)
    path = settings.sqlite_path
    return path.with_name(f"{path.name}.mail") if path else None
