"""`booking mails` shows what became of every mail, and queues those that failed once more."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import due
from support.commands import Booking
from support.databases import connect, run
from support.kayaks import DEPARTURE, ORG, import_kayaks
from support.world import SECRET

from booking_core import notifications
from booking_core.base.clock import DAY, system_clock
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db.engine import Database
from booking_core.notifications import MailOutcome, MailResult

UNKNOWN = "00000000-0000-4000-8000-000000000000"
FIELDS = {
    *("id", "organization", "kind", "booking_id", "recipient", "status", "attempt_count", "last_error"),
    *("created_at", "sent_at", "next_attempt_at", "effect_key", "message_id"),
}


class Office:
    """Somebody who books at a shell, and the worker who sends the mails."""

    def __init__(self, booking: Booking) -> None:
        self.url = os.environ["BOOKING_DATABASE_URL"]
        self.database = Database(self.url)
        self._booking = booking
        self._installation = Installation(SecretKeys(SECRET))

    def mails(self, *argv: str) -> Any:
        return self._booking("mails", *argv, "-o", "json")

    def book(self, name: str = "Ada") -> str:
        """Return the id of a confirmed booking whose mail is in the outbox."""
        person = ("--name", name, "--email", f"{name.lower()}@example.com")
        at = (*ORG, "--departure", DEPARTURE, "--guest", "adult=1")
        booking_id = self._booking("storefront", "checkout", *at, *person, "-o", "json").json["id"]
        assert self._booking("storefront", "pay", booking_id).code == 0
        return booking_id

    def write(self) -> int:
        return due.write_mails(self.database, self._installation)

    def settle(self, outcome: MailOutcome, error: str | None = None) -> None:
        claimed = due.claim_mails(self.database, self._installation)
        self.database.write(lambda tx: notifications.record(tx, [MailResult(each, outcome, error) for each in claimed]))

    def failed(self, name: str = "Ada") -> str:
        """Return the id of a failed mail."""
        booking_id = self.book(name)
        self.write()
        self.settle(MailOutcome.REFUSED, "550 no such user")
        return str(self.mails("show", f"booking_confirmation_mail:{booking_id}").json["id"])


@pytest.fixture
def office(fjord_on_both: Booking, tmp_path: Path) -> Iterator[Office]:
    import_kayaks(fjord_on_both, tmp_path)
    assert fjord_on_both("orgs", "set", "fjord-tours", "notify_staff=off").code == 0
    office = Office(fjord_on_both)
    yield office
    office.database.close()


def test_mails_are_listed_the_newest_first(fjord_on_both: Booking, office: Office) -> None:
    failed = office.failed()
    office.book("Grace")
    office.write()
    office.settle(MailOutcome.SENT)
    unwritten = office.book("Edsger")
    found = office.mails("list").json
    listed = [(mail["status"], mail["recipient"]) for mail in found["data"]]
    assert listed == [("queued", None), ("sent", "grace@example.com"), ("failed", "ada@example.com")]
    assert all(mail.keys() == FIELDS for mail in found["data"])
    assert (found["has_more"], found["next_cursor"]) == (False, None)
    assert found["data"][0]["id"] == f"booking_confirmation_mail:{unwritten}"
    assert office.mails("list", "--status", "failed", *ORG).json["data"] == found["data"][2:]
    page = office.mails("list", "--limit", "1").json
    assert (page["data"], page["has_more"]) == (found["data"][:1], True)
    lines = fjord_on_both("mails", "list", "--fields", "id,last_error").out.splitlines()
    assert lines[-1] == f"{failed}\t550 no such user"


def test_a_mail_is_shown_without_its_text(fjord_on_both: Booking, office: Office) -> None:
    mail_id = office.failed()
    shown = office.mails("show", mail_id)
    assert shown.json.keys() == FIELDS
    assert shown.json["organization"] == "fjord-tours"
    with connect(office.url) as connection:
        ((stored,),) = connection.execute("SELECT message FROM mails").fetchall()
    for written in (shown.out, fjord_on_both("mails", "show", mail_id).out):
        assert "/manage/" not in written
        assert stored not in written


def test_what_is_too_old_exits_7_unless_it_is_wanted_anyway(office: Office) -> None:
    mail_id = office.failed()
    run(office.url, f"UPDATE effects SET created_at = {system_clock() - 4 * DAY}")
    refused = office.mails("retry", mail_id)
    assert (refused.code, refused.error["hint"]) == (7, "send it anyway with --anyway")
    assert office.mails("retry", mail_id, "--anyway").code == 0


def test_all_that_failed_are_queued_again_but_what_is_no_news(fjord_on_both: Booking, office: Office) -> None:
    old, young = office.failed(), office.failed("Grace")
    key = office.mails("show", old).json["effect_key"]
    run(office.url, f"UPDATE effects SET created_at = {system_clock() - 4 * DAY} WHERE key = '{key}'")
    tried = office.mails("retry", "--failed", *ORG).json
    assert [mail["effect_key"] for mail in tried["data"]] != [key]
    assert len(tried["data"]) == 1
    assert [(each["field"], each["reason"]) for each in tried["left"]] == [(old, "mail_too_old")]
    assert office.mails("show", young).code == 6, "it waits to be written again"
    left = fjord_on_both("mails", "retry", "--failed")
    assert (left.code, left.out) == (0, "")
    assert left.err.splitlines()[-1].startswith("1 skipped: due more than 72 hours ago")
    assert len(office.mails("retry", "--failed", "--anyway").json["data"]) == 1
    assert office.mails("retry", "--failed").json == {"data": [], "has_more": False, "next_cursor": None, "left": []}


def test_many_are_queued_again_in_batches(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("booking_cli.commands.mails.BATCH_SIZE", 2)
    for name in ("Ada", "Grace", "Edsger", "Barbara", "Donald"):
        office.book(name)
    office.write()
    office.settle(MailOutcome.REFUSED)
    assert len(office.mails("retry", "--failed").json["data"]) == 5
    assert office.write() == 5


@pytest.mark.parametrize("argv", [(), (UNKNOWN, "--failed"), (UNKNOWN, *ORG), ORG])
def test_which_mails_are_meant_has_to_be_said(stored: Booking, argv: tuple[str, ...]) -> None:
    refused = stored("mails", "retry", *argv, "-o", "json")
    assert (refused.code, refused.error["hint"]) == (2, "booking mails retry --help")
