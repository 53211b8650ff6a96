"""Mails of an organization: enqueued, written, and parsed as by a mail program."""

import json
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from functools import lru_cache
from typing import Any

import icalendar

from booking_core import notifications
from booking_core.db import tables
from booking_core.notifications import ClaimedMail, Mailbox, MailOutcome, MailResult
from booking_core.records import outbox
from booking_core.records.idempotency import Answer
from booking_core.records.outbox import OutboxKind
from support.databases import due
from support.world.creating import create, created
from support.world.world import World

SENDER = Mailbox("Booking Office", "office@book.example")


@dataclass
class Mails:
    """The outbox rows and mails of an organization."""

    world: World

    def book(self, key: str = "a-key-of-a-test", **over: Any) -> str:
        """Create a booking through the API, which enqueues its mails."""
        departure = over.pop("departure_id", None) or self.world.departure(self.world.experience())
        (answer,) = created(self.world.database, [create(self.world, departure, key, **over)])
        assert isinstance(answer, Answer)
        return str(json.loads(answer.body)["id"])

    def enqueue(self, kind: OutboxKind, subject_id: str, occurrence: str = "", **payload: object) -> None:
        at = self.world.clock()
        with self.world.database.writing() as tx:
            outbox.enqueue(tx, self.world.org, kind, subject_id, at=at, payload=payload, occurrence=occurrence)

    def write(self, limit: int = 100) -> int:
        return due.write_mails(self.world, limit=limit, sender=SENDER)

    def book_and_write(self, key: str = "a-key-of-a-test", **over: Any) -> str:
        """Create a booking, and write its mails."""
        booking_id = self.book(key, **over)
        self.write()
        return booking_id

    def effects(self) -> dict[str, dict[str, Any]]:
        """Return the outbox rows by kind."""
        return {row["kind"]: row for row in self.world.rows(tables.effects)}

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of mails by kind."""
        return {row["kind"]: row for row in self.world.rows(tables.mails)}

    def raw(self, kind: OutboxKind) -> bytes:
        row = self.rows()[kind]
        return self.world.installation.secret_keys.open("mail", row["message"], self.world.org, row["id"])

    def read(self, kind: OutboxKind) -> EmailMessage:
        """Parse the mail."""
        return _parsed(self.raw(kind))

    def parse(self, row: dict[str, Any]) -> EmailMessage:
        """Parse the mail of a row."""
        sealed = self.world.installation.secret_keys.open("mail", row["message"], self.world.org, row["id"])
        return _parsed(sealed)

    def claim(self, **options: Any) -> list[ClaimedMail]:
        return due.claim_mails(self.world, **options)

    def settle(
        self, outcome: MailOutcome, error: str | None = None, *, claimed: list[ClaimedMail] | None = None
    ) -> None:
        """Let the mails, or all that are due, end in the same way."""
        tried = [MailResult(mail, outcome, error) for mail in (self.claim() if claimed is None else claimed)]
        self.world.database.write(lambda tx: notifications.record(tx, tried))

    def calendar_entries(self, kind: OutboxKind) -> list[Any]:
        """Return the entries of the calendar files in the mail."""
        files = [part.get_content() for part in self.read(kind).walk() if part.get_content_type() == "text/calendar"]
        return [entry for file in files for entry in icalendar.Calendar.from_ical(file).walk("VEVENT")]

    def text(self, kind: OutboxKind) -> str:
        """Return the plain text of the mail, with line feeds."""
        return _content(self.raw(kind), "plain").replace("\r\n", "\n")

    def html(self, kind: OutboxKind) -> str:
        return _content(self.raw(kind), "html")


# Cached: a test reads one mail several times, and the parser is slow.


@lru_cache(maxsize=64)
def _parsed(mail: bytes) -> EmailMessage:
    return message_from_bytes(mail, policy=default)


@lru_cache(maxsize=128)
def _content(mail: bytes, subtype: str) -> str:
    """Return the text of the first part of that subtype."""
    part = _parsed(mail).get_body((subtype,))
    assert part is not None
    return str(part.get_content())
