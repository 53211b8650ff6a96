"""Mails on their way: leased to one worker, tried again, sent or visibly failed, and deleted with their outbox rows."""

from dataclasses import replace
from typing import Any

import pytest
from support.databases import due
from support.serving.threads import together
from support.world.mails import Mails
from support.world.world import HOUR

from booking_core import notifications
from booking_core.base.clock import END_OF_TIME
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.notifications import MailOutcome
from booking_core.notifications.rules import SEND_RETRY_DELAYS, SENT_WITHIN
from booking_core.records.outbox import OutboxKind

SECOND = 1_000_000
LEASE_S = 60
CONFIRMATION = OutboxKind.BOOKING_CONFIRMATION_MAIL


@pytest.fixture
def written(mails: Mails) -> Mails:
    """The mails with one to the guest, ready to be sent."""
    mails.book_and_write(notify_staff=False)
    return mails


def row(mails: Mails) -> dict[str, Any]:
    return mails.rows()[CONFIRMATION]


def test_a_claim_holds_all_that_sending_takes(written: Mails) -> None:
    (claimed,) = written.claim()
    assert claimed.message == written.raw(CONFIRMATION)
    assert (claimed.recipient, claimed.kind, claimed.attempt_count) == ("ada@example.com", CONFIRMATION, 1)
    assert claimed.message.decode() not in repr(claimed)


def test_what_is_leased_is_nobody_elses_until_the_lease_is_over(written: Mails) -> None:
    (first,) = written.claim(lease_s=LEASE_S)
    assert row(written)["attempt_count"] == 1
    written.world.clock.advance(LEASE_S * SECOND - 1)
    assert written.claim() == []
    written.world.clock.advance(1)
    (second,) = written.claim()
    assert (second.message, second.attempt_count) == (first.message, 2)
    assert second.lease_token != first.lease_token


def test_what_was_sent_is_sent_once_and_no_longer_kept(written: Mails) -> None:
    written.settle(MailOutcome.SENT)
    sent = row(written)
    assert (sent["status"], sent["sent_at"], sent["message"]) == ("sent", written.world.clock(), "")
    assert (sent["next_attempt_at"], sent["lease_until"], sent["last_error"]) == (None, None, None)
    written.world.clock.advance(1000 * HOUR)
    assert written.claim() == []
    assert written.world.examine() == []


def test_what_was_delayed_is_tried_again_until_the_table_of_waits_ends(written: Mails) -> None:
    clock, ids = written.world.clock, set()
    for attempts, wait in enumerate(SEND_RETRY_DELAYS, start=1):
        claimed = written.claim()
        ids |= {mail.message for mail in claimed}
        written.settle(MailOutcome.DELAYED, "451 later", claimed=claimed)
        assert (row(written)["status"], row(written)["attempt_count"]) == ("queued", attempts)
        assert (row(written)["next_attempt_at"], row(written)["last_error"]) == (clock() + wait, "451 later")
        clock.advance(wait - 1)
        assert written.claim() == []
        clock.advance(1)
    written.settle(MailOutcome.DELAYED, "451 later")
    assert (row(written)["status"], row(written)["next_attempt_at"]) == ("failed", None)
    assert len(ids) == 1
    assert sum(SEND_RETRY_DELAYS) < SENT_WITHIN
    clock.advance(1000 * HOUR)
    assert written.claim() == []


def test_what_was_refused_is_not_tried_again_and_is_kept(written: Mails) -> None:
    written.settle(MailOutcome.REFUSED, "550 no such user")
    assert (row(written)["status"], row(written)["last_error"]) == ("failed", "550 no such user")
    written.world.clock.advance(1000 * HOUR)
    assert written.claim() == []
    assert written.raw(CONFIRMATION)


def test_what_was_not_tried_counts_for_nothing(written: Mails) -> None:
    written.settle(MailOutcome.UNTRIED)
    assert row(written)["attempt_count"] == 0
    (again,) = written.claim()
    assert again.attempt_count == 1


def test_what_was_parked_waits_for_a_mail_server(written: Mails) -> None:
    written.settle(MailOutcome.PARKED)
    parked = row(written)
    assert (parked["status"], parked["attempt_count"], parked["next_attempt_at"]) == ("queued", 0, END_OF_TIME)
    written.world.clock.advance(HOUR)
    assert written.claim() == []
    assert written.world.examine() == []
    assert due.unpark_mails(written.world) == 1
    (claimed,) = written.claim()
    assert claimed.attempt_count == 1
    assert due.unpark_mails(written.world) == 0


def test_a_mail_that_is_no_news_any_more_is_not_sent(written: Mails) -> None:
    written.settle(MailOutcome.PARKED)
    written.world.clock.advance(SENT_WITHIN + 1)
    due.unpark_mails(written.world)
    assert written.claim() == []
    assert (row(written)["status"], row(written)["last_error"]) == ("failed", "too_old")


def test_a_mail_that_brings_down_every_worker_has_failed_in_the_end(written: Mails) -> None:
    for wait in (LEASE_S * SECOND, *SEND_RETRY_DELAYS):
        assert len(written.claim(lease_s=LEASE_S)) == 1
        written.world.clock.advance(wait - 1)
        assert written.claim() == []
        written.world.clock.advance(1)
    assert written.claim() == []
    assert (row(written)["status"], row(written)["last_error"]) == ("failed", "attempts_exhausted")


def test_a_worker_that_lost_its_lease_changes_nothing(written: Mails) -> None:
    late = written.claim(lease_s=LEASE_S)
    written.world.clock.advance(LEASE_S * SECOND)
    now = written.claim()
    before = row(written)
    written.settle(MailOutcome.REFUSED, "550", claimed=late)
    assert row(written) == before
    written.settle(MailOutcome.SENT, claimed=now)
    assert row(written)["status"] == "sent"


def test_a_mail_sealed_with_a_retired_key_fails_alone(written: Mails) -> None:
    other = replace(written.world, installation=Installation(SecretKeys("another secret key")))
    assert due.claim_mails(other, limit=10, lease_s=LEASE_S) == []
    assert (row(written)["status"], row(written)["last_error"]) == ("failed", "secret_key_retired")


def test_a_claim_is_bounded_and_takes_the_longest_due_first(mails: Mails) -> None:
    for number in range(3):
        mails.book_and_write(f"a-key-of-a-test-{number}", notify_staff=False)
        mails.world.clock.advance(1)
    assert [mail.created_at for mail in mails.claim(limit=2)] == [mails.world.clock() - 3, mails.world.clock() - 2]
    assert len(mails.claim(limit=2)) == 1
    assert mails.claim(limit=2) == []


def test_claiming_and_recording_take_a_few_statements(mails: Mails, statements: list[str]) -> None:
    for number in range(4):
        mails.book(f"a-key-of-a-test-{number}")
    mails.write()
    statements.clear()
    claimed = mails.claim()
    assert len(statements) == 4, "the organizations, their due mails, the lock and the leases"
    statements.clear()
    mails.settle(MailOutcome.SENT, claimed=claimed)
    assert len(statements) == 2
    assert {mail["status"] for mail in mails.rows().values()} == {"sent"}


def test_the_organizations_with_due_mails_are_found_by_reads(mails: Mails) -> None:
    def waiting() -> tuple[bool, bool]:
        return due.is_due(mails.world, notifications.OWED), due.is_due(mails.world, notifications.DUE)

    assert waiting() == (False, False)
    mails.book()
    assert waiting() == (True, False)
    mails.write()
    assert waiting() == (False, True)
    mails.claim()
    assert waiting() == (False, False)


# Purge ---------------------------------------------------------------------------------------------------------------


def purge(mails: Mails, *, before: int, limit: int = 1000) -> int:
    return mails.world.database.write(lambda tx: notifications.purge(tx, mails.world.org, before=before, limit=limit))


def purge_unmailed(mails: Mails, *, before: int, limit: int = 1000) -> int:
    with mails.world.database.writing() as tx:
        return sum(work.purge(tx, mails.world.org, before=before, limit=limit) for work in notifications.ENDED_UNMAILED)


def counts(mails: Mails) -> tuple[int, int]:
    """Return the number of mails, and of effects."""
    return len(mails.world.rows(tables.mails)), len(mails.world.rows(tables.effects))


@pytest.mark.parametrize("outcome", [MailOutcome.SENT, MailOutcome.REFUSED])
def test_the_last_instant_that_is_kept_is_kept_counted_from_the_end(mails: Mails, outcome: MailOutcome) -> None:
    clock = mails.world.clock
    mails.book_and_write()
    clock.advance(1)
    mails.settle(outcome)
    assert purge(mails, before=clock()) == 0
    assert counts(mails) == (2, 2)
    assert purge(mails, before=clock() + 1) == 2
    assert counts(mails) == (0, 0)


@pytest.mark.parametrize("outcome", [MailOutcome.DELAYED, MailOutcome.PARKED, MailOutcome.UNTRIED, None])
def test_what_is_to_be_sent_or_under_way_is_kept(mails: Mails, outcome: MailOutcome | None) -> None:
    mails.book_and_write()
    if outcome is None:
        mails.claim()
    else:
        mails.settle(outcome)
    mails.book("another-key-of-a-test")
    before = mails.world.clock() * 2
    assert (purge(mails, before=before), purge_unmailed(mails, before=before)) == (0, 0)
    assert counts(mails) == (2, 4)


def test_what_no_mail_came_of_goes_by_itself(mails: Mails) -> None:
    clock = mails.world.clock
    mails.book(send_confirmation_email=False)
    mails.world.change(tables.organizations, mails.world.org, notify_staff=False)
    mails.write()
    assert {row["last_error"] for row in mails.world.rows(tables.effects)} == {"suppressed"}
    assert purge(mails, before=clock() + 1) == 0
    assert purge_unmailed(mails, before=clock()) == 0
    assert purge_unmailed(mails, before=clock() + 1) == 1
    assert counts(mails) == (0, 0)


def test_a_mail_that_is_owed_again_is_kept(mails: Mails) -> None:
    mails.book_and_write(notify_staff=False)
    mails.settle(MailOutcome.REFUSED)
    (row,) = mails.world.rows(tables.mails)
    mails.world.database.write(lambda tx: notifications.retry(tx, [row["id"]]))
    before = mails.world.clock() * 2
    assert (purge(mails, before=before), purge_unmailed(mails, before=before)) == (0, 0)
    assert counts(mails) == (0, 1)


def test_two_that_purge_at_once_take_different_rows(mails: Mails) -> None:
    for number in range(20):
        mails.book(f"a-key-of-a-test-{number}")
    mails.write()
    mails.settle(MailOutcome.SENT)
    before = mails.world.clock() + 1

    def work() -> list[int]:
        return list(iter(lambda: purge(mails, before=before, limit=3), 0))

    removed = [size for sizes in together(work, work, work) for size in sizes]
    while size := purge(mails, before=before):
        removed.append(size)
    assert sum(removed) == 40
    assert counts(mails) == (0, 0)


def test_a_purge_takes_as_many_as_it_may_of_either_end(mails: Mails) -> None:
    for number, outcome in enumerate((MailOutcome.SENT, MailOutcome.REFUSED)):
        mails.book_and_write(f"a-key-of-a-test-{number}")
        mails.settle(outcome)
    before = mails.world.clock() + 1
    assert [purge(mails, before=before, limit=3) for _ in range(3)] == [3, 1, 0]
