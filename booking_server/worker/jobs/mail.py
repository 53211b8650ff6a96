"""The job that writes and sends mails.

Mails are processed in short batches, with no transaction open while a mail server is called. Every mail is sent at
least once, and each time with the same Message-ID.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from booking_core import notifications
from booking_core.base.clock import MINUTE, has_passed
from booking_core.base.context import Installation
from booking_core.base.errors import is_outage
from booking_core.base.settings import Settings
from booking_core.db.engine import Database, Tx
from booking_core.due_work.rows import Processed
from booking_core.due_work.sweep import Sweep
from booking_core.notifications import ClaimedMail, Mailbox, MailOutcome, MailResult
from booking_server.adapters.smtp import (
    BATCH_S,
    CONNECTIONS_MAX,
    MAIL_S,
    FileMailer,
    Mailer,
    SandboxMailer,
    SmtpMailer,
    SmtpServer,
)
from booking_server.worker.jobs.leasing import LeaseJob

log = logging.getLogger("booking.mail")

WRITE_BATCH = 20
"""Small, because on SQLite, which has one writer, bookings wait while a batch is written."""
WRITES_MAX = 2
"""Batches that are written before the mails that are due have their turn. Connections are idle meanwhile, and writing a
mail takes some milliseconds."""
SEND_BATCH = 8
"""Mails of one organization that are sent one after the other over one connection."""
OF_ONE_MAX = CONNECTIONS_MAX - 1
"""Connections for one organization: one is left for the others while its recipients' servers hang."""
LEASE_S = int(BATCH_S + MAIL_S) + 5
"""Longer than a batch can take: no heartbeat is needed."""
UNPARK_EVERY = MINUTE
"""Repeated, because an older process that has no mail server and is about to be replaced parks the mails it claims."""


class MailJob(LeaseJob[ClaimedMail, None]):
    """Writes and sends the mails of all organizations, a few connections at a time."""

    name = "mail"

    def __init__(
        self,
        database: Database,
        installation: Installation,
        mailer: Mailer,
        sender: Mailbox,
    ) -> None:
        self.claims = Sweep("send_mails", database, notifications.DUE, self._claim, is_lease=True)
        super().__init__(self.claims, in_flight_max=CONNECTIONS_MAX, of_one_max=OF_ONE_MAX, unit_rows=SEND_BATCH)
        self.writes = Sweep("write_mails", database, notifications.OWED, self._write_owed, limit=WRITE_BATCH)
        self.unparks = Sweep("unpark_mails", database, notifications.PARKED, notifications.unpark)
        self._database = database
        self._installation = installation
        self._mailer = mailer
        self._sender = sender
        self._unparked_at = 0

    async def start_due(self, stop: asyncio.Event) -> int:
        """Write the pending mails, then lease due mails."""
        await self._unpark(stop)
        written = await self.writes.run_turn(stop, batches=WRITES_MAX)
        return written + await super().start_due(stop)

    async def carry_out(self, unit: Sequence[ClaimedMail]) -> None:
        mailer = SandboxMailer() if unit[0].is_of_sandbox else self._mailer  # a unit is of one organization
        await mailer.send(unit, self._record)

    async def settle(self, finished: "Sequence[asyncio.Future[None]]") -> None:
        """Log the exception of a unit: its mails are due again when their leases have expired."""
        for future in finished:
            if error := future.exception():
                if is_outage(error):
                    raise error
                log.error("a batch of mails ended early", exc_info=error)

    async def _unpark(self, stop: asyncio.Event) -> None:
        """Make the mails due that were parked while there was no mail server."""
        now = self._database.clock()
        if self._mailer.delivers and has_passed(UNPARK_EVERY, self._unparked_at, now):
            await self.unparks.run_turn(stop)
            if not self.unparks.has_more:
                self._unparked_at = now

    def _write_owed(self, tx: Tx, organization_id: str, keys: Sequence[str]) -> Processed[None]:
        return notifications.write(tx, self._installation, organization_id, keys, sender=self._sender)

    def _claim(self, tx: Tx, organization_id: str, mail_ids: Sequence[str]) -> Processed[ClaimedMail]:
        return notifications.claim(tx, self._installation, organization_id, mail_ids, lease_s=LEASE_S)

    async def _record(self, results: Sequence[MailResult]) -> None:
        """Record results as soon as they are known.

        A mail whose result cannot be recorded is parked: when its lease has expired it is sent once more.
        """
        await self.claims.settle_each(results, notifications.record, _row_of)
        for result in results:
            self.results[result.outcome.value] += 1
            if result.outcome in (MailOutcome.REFUSED, MailOutcome.DELAYED):
                log.warning("the mail %s was not accepted (%s): %s", result.claimed.id, result.outcome, result.error)


def _row_of(result: MailResult) -> tuple[str, str]:
    return result.claimed.organization_id, result.claimed.id


def mail_job(settings: Settings, database: Database, installation: Installation) -> MailJob:
    """Create the job of an installation, with the mailer that its settings name."""
    sender = notifications.configured_sender(installation, settings.mail_from)
    mailer: Mailer
    if settings.smtp_url:
        mailer = SmtpMailer(SmtpServer.of(settings.smtp_url), sender.address)
    else:
        mailer = FileMailer(mail_folder(settings))
    return MailJob(database, installation, mailer, sender)


def mail_folder(settings: Settings) -> Path | None:
    """Return the folder for mails while there is no mail server, by default beside the SQLite file.

    None for PostgreSQL unless it is set: machines that share a database share no folder.
    """
    if settings.mail_dir:
        return Path(settings.mail_dir)
    path = settings.sqlite_path
    return path.with_name(f"{path.name}.mail") if path else None
