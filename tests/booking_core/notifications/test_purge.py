"""A mail and its outbox row are deleted together after their retention, and no pending row is deleted."""

import pytest
from support.serving.threads import together
from support.world.mails import Mails

from booking_core import notifications
from booking_core.db import tables
from booking_core.notifications import MailOutcome


def purge(mails: Mails, *, before: int, limit: int = 1000) -> int:
    return mails.world.database.write(lambda tx: notifications.purge(tx, mails.world.org, before=before, limit=limit))


def purge_unmailed(mails: Mails, *, before: int, limit: int = 1000) -> int:
    return mails.world.database.write(
        lambda tx: notifications.purge_unmailed(tx, mails.world.org, before=before, limit=limit)
    )


def left(mails: Mails) -> tuple[int, int]:
    """Return the number of mails, and of effects."""
    return len(mails.world.rows(tables.mails)), len(mails.world.rows(tables.effects))


@pytest.mark.parametrize("outcome", [MailOutcome.SENT, MailOutcome.REFUSED])
def test_the_last_instant_that_is_kept_is_kept_counted_from_the_end(mails: Mails, outcome: MailOutcome) -> None:
    clock = mails.world.clock
    mails.book_and_write()
    clock.advance(1)
    mails.settle(outcome)
    assert purge(mails, before=clock()) == 0
    assert left(mails) == (2, 2)
    assert purge(mails, before=clock() + 1) == 2
    assert left(mails) == (0, 0)


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
    assert left(mails) == (2, 4)


def test_what_no_mail_came_of_goes_by_itself(mails: Mails) -> None:
    clock = mails.world.clock
    mails.book(send_confirmation_email=False)
    mails.world.change(tables.organizations, mails.world.org, notify_staff=False)
    mails.write()
    assert {row["last_error"] for row in mails.world.rows(tables.effects)} == {"suppressed"}
    assert purge(mails, before=clock() + 1) == 0
    assert purge_unmailed(mails, before=clock()) == 0
    assert purge_unmailed(mails, before=clock() + 1) == 1
    assert left(mails) == (0, 0)


def test_a_mail_that_is_owed_again_is_kept(mails: Mails) -> None:
    mails.book_and_write(notify_staff=False)
    mails.settle(MailOutcome.REFUSED)
    (row,) = mails.world.rows(tables.mails)
    mails.world.database.write(lambda tx: notifications.retry(tx, [row["id"]]))
    before = mails.world.clock() * 2
    assert (purge(mails, before=before), purge_unmailed(mails, before=before)) == (0, 0)
    assert left(mails) == (0, 1)


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
    assert left(mails) == (0, 0)


def test_a_purge_takes_as_many_as_it_may_of_either_end(mails: Mails) -> None:
    for number, outcome in enumerate((MailOutcome.SENT, MailOutcome.REFUSED)):
        mails.book_and_write(f"a-key-of-a-test-{number}")
        mails.settle(outcome)
    before = mails.world.clock() + 1
    assert [purge(mails, before=before, limit=3) for _ in range(3)] == [3, 1, 0]
