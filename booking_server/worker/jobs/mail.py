"""The chore of mails: those that are owed are written, those that are due are sent, what became of them is recorded.

In short batches, and with no transaction open while a mail server is spoken to. Every mail is sent at least once, and
each time with the same Message-ID.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from booking_core import notifications
from booking_core.clock import MINUTE, has_passed
from booking_core.context import Installation
from booking_core.db.engine import Database, Tx
from booking_core.notifications import Mailbox, Outcome, Tried
from booking_core.settings import Settings, named_mailbox
from booking_server.adapters.smtp import BATCH_S, MAIL_S, FilePost, Post, SmtpPost, SmtpServer
from booking_server.worker.clock_watch import ClockWatch

log = logging.getLogger("booking.mail")

T = TypeVar("T")

WRITTEN_AT_ONCE = 20
"""So few that on SQLite, which has one writer, a booking waits for a moment only."""
SENT_AT_ONCE = 32
LEASE_S = int(BATCH_S + MAIL_S) + 5
"""Longer than a batch can take, so that no heartbeat is needed."""
TURN_S = 5.0
"""A turn ends after so long, whatever is left, so that a worker that is told to stop does."""
UNPARK_EVERY = MINUTE
"""More than once: a process that knows of no mail server, since it is about to be replaced, parks what it claims."""


class Mailing:
    """The mails of all organizations."""

    name = "mail"

    def __init__(
        self,
        database: Database,
        installation: Installation,
        post: Post,
        sender: Mailbox,
        watch: ClockWatch | None = None,
    ) -> None:
        self._database = database
        self._installation = installation
        self._post = post
        self._sender = sender
        self._watch = watch
        self._unparked_at = 0

    async def run_once(self) -> int:
        """Writes and sends what is due now, and gives how many mails that moved."""
        await self._unpark()
        loop = asyncio.get_running_loop()
        done, until = 0, loop.time() + TURN_S
        while moved := await self._turn():
            done += moved
            if loop.time() >= until:
                break
        return done

    async def close(self) -> None:
        """There is nothing to let go of: a connection ends with its batch."""

    async def _unpark(self) -> None:
        """Mails that waited for a mail server have one now."""
        now = self._database.clock()
        if self._post.reaches_people and has_passed(UNPARK_EVERY, self._unparked_at, now):
            await self._write(notifications.unpark)
            self._unparked_at = now

    async def _turn(self) -> int:
        owed, due = await asyncio.to_thread(self._database.read, notifications.pending)
        written = await self._write(self._write_due) if owed else 0
        sent = await self._send() if due or written else 0
        return written + sent

    def _write_due(self, tx: Tx) -> int:
        return notifications.write_due(tx, self._installation, limit=WRITTEN_AT_ONCE, sender=self._sender)

    async def _send(self) -> int:
        is_settled = self._watch is None or self._watch.is_settled
        claimed = await self._write(
            lambda tx: notifications.claim(
                tx, self._installation, limit=SENT_AT_ONCE, lease_s=LEASE_S, gives_up_old=is_settled
            )
        )
        if not claimed:
            return 0
        await self._post.carry(claimed, self._record)
        return len(claimed)

    async def _record(self, tried: Sequence[Tried]) -> None:
        await self._write(lambda tx: notifications.record(tx, tried))
        _log(tried)

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)


def _log(tried: Sequence[Tried]) -> None:
    for each in tried:
        if each.outcome in (Outcome.REFUSED, Outcome.DELAYED):
            log.warning("the mail %s was not taken (%s): %s", each.claimed.id, each.outcome, each.error)


def mailing(
    settings: Settings, database: Database, installation: Installation, watch: ClockWatch | None = None
) -> Mailing:
    """The chore, as the settings want it."""
    sender = Mailbox(*named_mailbox(settings.mail_from)) if settings.mail_from else None
    sender = sender or notifications.default_sender(installation)
    post: Post
    if settings.smtp_url:
        post = SmtpPost(SmtpServer.of(settings.smtp_url), sender.address)
    else:
        post = FilePost(mail_folder(settings))
    return Mailing(database, installation, post, sender, watch)


def mail_folder(settings: Settings) -> Path | None:
    """Where mails are laid down while there is no mail server: beside an SQLite file unless said. PostgreSQL is shared
    by machines that share no folder, so there one has to be named."""
    if settings.mail_dir:
        return Path(settings.mail_dir)
    path = settings.sqlite_path
    return path.with_name(f"{path.name}.mail") if path else None
