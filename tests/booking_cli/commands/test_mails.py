"""`booking mails` shows what became of every mail, and queues those that failed once more."""

import os

import pytest
from support.databases.databases import connect, run
from support.serving.commands import Booking, Result
from support.world.kayaks import ORG
from support.world.mails import Mails
from support.world.operations import Operations, guest

from booking_core import notifications
from booking_core.base.clock import DAY, SECOND, system_clock
from booking_core.notifications import MailOutcome, MailResult

UNKNOWN = "00000000-0000-4000-8000-000000000000"
FIELDS = {
    *("id", "organization", "kind", "booking_id", "recipient", "status", "attempt_count", "last_error"),
    *("created_at", "sent_at", "next_attempt_at", "effect_key", "message_id"),
}


class Office:
    """Somebody who books, and the worker who sends the mails."""

    def __init__(self, booking: Booking, ops: Operations, departure: str) -> None:
        self.url = os.environ["BOOKING_DATABASE_URL"]
        self._booking, self._ops, self._departure = booking, ops, departure
        self._mails = Mails(ops.world)
        self.write = self._mails.write

    def mails(self, *argv: str) -> Result:
        return self._booking("mails", *argv, "-o", "json")

    def book(self, name: str = "Ada") -> str:
        """Return the id of a confirmed booking whose mail is in the outbox."""
        self._ops.world.clock.advance(SECOND)
        person = guest(f"{name.lower()}@example.com", name)
        return self._ops.book(self._departure, customer=person, notify_staff=False)["id"]

    def settle(self, outcome: MailOutcome, error: str | None = None) -> None:
        results = [MailResult(mail, outcome, error) for mail in self._mails.claim()]
        self._ops.act(lambda tx, _: notifications.record(tx, results))

    def failed(self, name: str = "Ada") -> str:
        """Return the id of a failed mail."""
        booking_id = self.book(name)
        self.write()
        self.settle(MailOutcome.REFUSED, "550 no such user")
        return str(self.mails("show", f"booking_confirmation_mail:{booking_id}").json["id"])


@pytest.fixture
def office(stored_on_both: Booking, ops: Operations, departure: str) -> Office:
    return Office(stored_on_both, ops, departure)


def test_mails_are_listed_the_newest_first(stored_on_both: Booking, office: Office) -> None:
    failed = office.failed()
    office.book("Grace")
    office.write()
    office.settle(MailOutcome.SENT)
    unwritten = office.book("Edsger")
    mails = office.mails("list").json
    listed = [(mail["status"], mail["recipient"]) for mail in mails["data"]]
    assert listed == [("queued", None), ("sent", "grace@example.com"), ("failed", "ada@example.com")]
    assert all(mail.keys() == FIELDS for mail in mails["data"])
    assert (mails["has_more"], mails["next_cursor"]) == (False, None)
    assert mails["data"][0]["id"] == f"booking_confirmation_mail:{unwritten}"
    assert office.mails("list", "--status", "failed", *ORG).json["data"] == mails["data"][2:]
    page = office.mails("list", "--limit", "1").json
    assert (page["data"], page["has_more"]) == (mails["data"][:1], True)
    lines = stored_on_both("mails", "list", "--fields", "id,last_error").out.splitlines()
    assert lines[-1] == f"{failed}\t550 no such user"


def test_a_mail_is_shown_without_its_text(stored_on_both: Booking, office: Office) -> None:
    mail_id = office.failed()
    result = office.mails("show", mail_id)
    assert result.json.keys() == FIELDS
    assert result.json["organization"] == "fjord-tours"
    with connect(office.url) as connection:
        ((stored,),) = connection.execute("SELECT message FROM mails").fetchall()
    for written in (result.out, stored_on_both("mails", "show", mail_id).out):
        assert "/manage/" not in written
        assert stored not in written


def test_what_is_too_old_exits_7_unless_it_is_wanted_anyway(office: Office) -> None:
    mail_id = office.failed()
    run(office.url, f"UPDATE effects SET created_at = {system_clock() - 4 * DAY}")
    refused = office.mails("retry", mail_id)
    assert (refused.code, refused.error["hint"]) == (7, "send it anyway with --anyway")
    assert office.mails("retry", mail_id, "--anyway").code == 0


def test_all_that_failed_are_queued_again_but_what_is_no_news(stored_on_both: Booking, office: Office) -> None:
    old, young = office.failed(), office.failed("Grace")
    key = office.mails("show", old).json["effect_key"]
    run(office.url, f"UPDATE effects SET created_at = {system_clock() - 4 * DAY} WHERE key = '{key}'")
    tried = office.mails("retry", "--failed", *ORG).json
    assert [mail["effect_key"] for mail in tried["data"]] != [key]
    assert len(tried["data"]) == 1
    assert [(detail["field"], detail["reason"]) for detail in tried["left"]] == [(old, "mail_too_old")]
    assert office.mails("show", young).code == 6, "it waits to be written again"
    result = stored_on_both("mails", "retry", "--failed")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines()[-1].startswith("1 skipped: due more than 72 hours ago")
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
