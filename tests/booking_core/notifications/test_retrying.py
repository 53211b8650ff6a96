"""An operator sees the result of every mail, and has failed mails written again."""

from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.databases import due
from support.world.mails import Mails
from support.world.operations import Operations
from support.world.world import DAY, HOUR, FixedClock, World, make_world

from booking_core import notifications
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Conflict, NotFound
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.notifications import MailOutcome, MailStatus, rendering
from booking_core.notifications.rules import SENT_WITHIN
from booking_core.records.outbox import OutboxKind

CONFIRMATION = OutboxKind.BOOKING_CONFIRMATION_MAIL
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def find(world: World, status: str | None = None, *, limit: int = 100, by_shop: bool = True) -> list[dict[str, Any]]:
    mail_status, organization = MailStatus(status) if status else None, world.organization if by_shop else None
    mails = world.database.read(lambda tx: notifications.find(tx, organization, status=mail_status, limit=limit))
    return [notifications.present(*mail) for mail in mails]


def get(world: World, name: str) -> dict[str, Any]:
    return notifications.present(*world.database.read(lambda tx: notifications.get(tx, name)))


def retry(world: World, *names: str, anyway: bool = False) -> list[dict[str, Any]]:
    again = world.database.write(lambda tx: notifications.retry(tx, names, anyway=anyway))
    return [notifications.present(*mail) for mail in again]


def refusal(world: World, *names: str, anyway: bool = False) -> Conflict:
    with nothing_changes(world), pytest.raises(Conflict) as caught:
        retry(world, *names, anyway=anyway)
    return caught.value


def failed(mails: Mails, key: str = "a-key-of-a-test", **over: Any) -> str:
    """Queue a confirmation that the mail server refuses, and return its id."""
    booking = mails.book_and_write(key, **{"notify_staff": False} | over)
    mails.settle(MailOutcome.REFUSED, "550 no such user")
    (row,) = [row for row in mails.world.rows(tables.mails) if row["booking_id"] == booking]
    return str(row["id"])


def unwritten(mails: Mails, monkeypatch: pytest.MonkeyPatch) -> str:
    """Queue a confirmation that cannot be written, and return its key."""
    booking = mails.book(notify_staff=False)
    with monkeypatch.context() as patched:
        patched.setattr(rendering, "render", None)
        for _ in range(5):
            mails.write()
            mails.world.clock.advance(2 * HOUR)
    return f"{CONFIRMATION}:{booking}"


# Found -----------------------------------------------------------------------------------------------------------


def test_a_mail_is_shown_with_its_outcome_and_without_its_text(mails: Mails) -> None:
    mail_id = failed(mails)
    (row,) = mails.world.rows(tables.mails)
    (mail,) = find(mails.world)
    assert mail == {
        "id": mail_id,
        "organization": mails.world.organization.slug,
        "kind": "booking_confirmation_mail",
        "booking_id": row["booking_id"],
        "recipient": "ada@example.com",
        "status": "failed",
        "attempt_count": 1,
        "last_error": "550 no such user",
        "created_at": "2026-11-21T13:00:00+01:00",
        "sent_at": None,
        "next_attempt_at": None,
        "effect_key": f"{CONFIRMATION}:{row['booking_id']}",
        "message_id": row["message_id"],
    }
    assert get(mails.world, mail_id.upper()) == get(mails.world, mail["effect_key"]) == mail
    assert "/manage/" in mails.text(CONFIRMATION)


def test_each_status_is_found_and_the_newest_first(mails: Mails, monkeypatch: pytest.MonkeyPatch) -> None:
    world = mails.world
    names = {"unwritten": unwritten(mails, monkeypatch)}
    world.clock.advance(MINUTE)
    mails.book_and_write("sent-key-of-a-test", notify_staff=False)
    mails.settle(MailOutcome.SENT)
    world.clock.advance(MINUTE)
    names["failed"] = failed(mails, "failed-key-of-a-test")
    world.clock.advance(MINUTE)
    mails.book_and_write("parked-key-of-a-test", notify_staff=False)
    mails.settle(MailOutcome.PARKED)
    world.clock.advance(MINUTE)
    booking_id = mails.book("owed-key-of-a-test", notify_staff=False)
    listed = find(world)
    assert [mail["status"] for mail in listed] == ["queued", "queued", "failed", "sent", "unwritten"]
    assert (listed[0]["id"], listed[0]["recipient"]) == (f"{CONFIRMATION}:{booking_id}", None)
    assert listed[0]["next_attempt_at"] == listed[0]["created_at"]
    assert listed[1]["next_attempt_at"] is None, "it waits for a mail server"
    assert listed[3]["sent_at"] is not None
    assert (listed[4]["last_error"], listed[4]["attempt_count"]) == ("TypeError", 5)
    for status in MailStatus:
        assert find(world, status) == [mail for mail in listed if mail["status"] == status]
    assert {status: find(world, status)[0]["id"] for status in names} == names
    assert find(world, limit=2) == listed[:2]
    both = world.database.read(lambda tx: notifications.find_failed(tx, world.organization))
    assert {mail.name for mail, _ in both} == set(names.values())


def test_mails_of_all_organizations_are_found_together(fresh_database: Database, clock: FixedClock) -> None:
    world, other = (make_world(fresh_database, clock) for _ in range(2))
    failed_id = failed(Mails(world))
    clock.advance(MINUTE)
    other_id = failed(Mails(other))
    clock.advance(MINUTE)
    Mails(other).book("owed-key-of-a-test", notify_staff=False)
    assert [mail["id"] for mail in find(world, by_shop=False)][1:] == [other_id, failed_id]
    assert [mail["id"] for mail in find(world, "failed", by_shop=False)] == [other_id, failed_id]
    assert [mail["organization"] for mail in find(world, "queued", by_shop=False)] == [other.organization.slug]
    assert [mail["id"] for mail in find(world)] == [failed_id]
    assert get(world, other_id)["organization"] == other.organization.slug


def test_of_what_was_not_to_be_written_it_is_reported_why(mails: Mails) -> None:
    booking = mails.book(send_confirmation_email=True, notify_staff=False)
    mails.world.change(tables.bookings, booking, guest_email=None)
    mails.write()
    assert get(mails.world, f"{CONFIRMATION}:{booking}")["status"] == "no_recipient"
    assert find(mails.world) == []
    assert refusal(mails.world, f"{CONFIRMATION}:{booking}").reason == "mail_unwanted"


@pytest.mark.parametrize("name", [UNKNOWN, f"{CONFIRMATION}:{UNKNOWN}", "no-id", "", "%"])
def test_what_there_is_not_is_not_found(mails: Mails, name: str) -> None:
    failed(mails)
    for verb in (get, retry):
        with pytest.raises(NotFound):
            verb(mails.world, name)


# Queued again ----------------------------------------------------------------------------------------------------


def test_a_mail_that_failed_is_written_anew_and_sent(mails: Mails) -> None:
    world, mail_id = mails.world, failed(mails)
    before = mails.read(CONFIRMATION)
    world.clock.advance(HOUR)
    (again,) = retry(world, mail_id)
    assert (again["status"], again["attempt_count"], again["last_error"]) == ("queued", 0, None)
    assert again["next_attempt_at"] == "2026-11-21T14:00:00+01:00"
    assert again == get(world, again["id"])
    assert world.examine() == []
    assert mails.write() == 1
    assert mails.read(CONFIRMATION)["Message-ID"] == before["Message-ID"]
    mails.settle(MailOutcome.SENT)
    (mail,) = find(world)
    assert (mail["status"], mail["attempt_count"]) == ("sent", 1)
    assert world.examine() == []


def test_a_mail_that_could_not_be_written_is_tried_again(mails: Mails, monkeypatch: pytest.MonkeyPatch) -> None:
    key = unwritten(mails, monkeypatch)
    (again,) = retry(mails.world, key)
    assert (again["id"], again["status"], again["attempt_count"]) == (key, "queued", 0)
    assert mails.world.examine() == []
    mails.write()
    assert get(mails.world, key)["recipient"] == "ada@example.com"


def test_a_retired_secret_key_is_no_obstacle(mails: Mails) -> None:
    mail_id = failed(mails)
    mails.world.change(tables.mails, mail_id, message="sealed with another", last_error="secret_key_retired")
    retry(mails.world, mail_id)
    mails.write()
    assert "/manage/" in mails.text(CONFIRMATION)


def test_what_did_not_fail_is_refused_with_the_reason(mails: Mails) -> None:
    world = mails.world
    booking = mails.book(notify_staff=False)
    key = f"{CONFIRMATION}:{booking}"
    queued = "is queued already, due at 2026-11-21T13:00:00+01:00."
    assert str(refusal(world, key)) == f"The mail {key} {queued}"
    mails.write()
    mail_id = mails.rows()[CONFIRMATION]["id"]
    assert (refusal(world, key).reason, str(refusal(world, key))) == ("mail_queued", f"The mail {mail_id} {queued}")
    mails.settle(MailOutcome.PARKED)
    assert str(refusal(world, mail_id)).endswith("is queued already, waits for a mail server (BOOKING_SMTP_URL).")
    due.unpark_mails(world)
    mails.settle(MailOutcome.SENT)
    sent = refusal(world, mail_id, anyway=True)
    assert (sent.reason, str(sent)) == (
        "mail_sent",
        f"The mail {mail_id} was sent at 2026-11-21T13:00:00+01:00; nothing is sent twice.",
    )


def test_an_outdated_mail_is_written_only_with_the_option_anyway(mails: Mails) -> None:
    world = mails.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 30 * DAY)
    mail_id = failed(mails, departure_id=departure)
    world.clock.advance(SENT_WITHIN)
    retry(world, mail_id)
    mails.write()
    mails.settle(MailOutcome.REFUSED)
    world.clock.advance(1)
    mail_id = find(world)[0]["id"]
    refused = refusal(world, mail_id)
    assert (refused.reason, str(refused)) == (
        "mail_too_old",
        f"The mail {mail_id} was due at 2026-11-21T13:00:00+01:00, over 72 hours ago: too late to be sent.",
    )
    retry(world, mail_id, anyway=True)
    mails.write()
    assert len(mails.claim()) == 1


@pytest.mark.parametrize("anyway", [False, True])
def test_nothing_is_confirmed_whose_departure_has_begun(mails: Mails, anyway: bool) -> None:
    world = mails.world
    departure = world.departure(world.experience(), starts_at=world.clock() + HOUR)
    mail_id = failed(mails, departure_id=departure)
    world.clock.advance(HOUR)
    refused = refusal(world, mail_id, anyway=anyway)
    assert (refused.reason, str(refused)) == (
        "departure_started",
        f"The mail {mail_id} is about a departure that began at 2026-11-21T14:00:00+01:00.",
    )


def test_a_cancellation_is_of_use_after_the_departure_too(mails: Mails) -> None:
    world = mails.world
    departure = world.departure(world.experience(), starts_at=world.clock() + HOUR)
    booking = mails.book(departure_id=departure, send_confirmation_email=False, notify_staff=False)
    Operations(world).cancel(booking)
    mails.write()
    mails.settle(MailOutcome.REFUSED)
    world.clock.advance(HOUR)
    for kind in ("booking_cancellation_mail", "staff_cancellation_mail"):
        assert [mail["status"] for mail in retry(world, f"{kind}:{booking}")] == ["queued"]


def test_of_several_all_are_queued_or_none(mails: Mails) -> None:
    world = mails.world
    one, other = failed(mails), failed(mails, "another-key-of-a-test")
    assert [mail["status"] for mail in retry(world, one, one)] == ["queued"]
    key = next(mail["id"] for mail in find(world, "queued"))
    refused = refusal(world, other, key)
    assert str(refused) == "1 of 2 mails cannot be tried again, so none is."
    assert [(detail.field, detail.reason) for detail in refused.details] == [(key, "mail_queued")]


def test_each_by_itself_gives_what_became_of_it(mails: Mails) -> None:
    world = mails.world
    late = world.departure(world.experience(), starts_at=world.clock() + HOUR)
    failed(mails), failed(mails, "late-key-of-a-test", departure_id=late)
    world.clock.advance(HOUR)
    failures = world.database.read(lambda tx: notifications.find_failed(tx, world.organization))
    keys = [(mail.organization_id, mail.effect_key) for mail, _ in failures]
    unknown = (world.org, f"{CONFIRMATION}:{UNKNOWN}")
    outcomes = world.database.write(lambda tx: notifications.retry_each(tx, [*keys, unknown]))
    assert sorted(outcome.reason if isinstance(outcome, Conflict) else outcome[0].status for outcome in outcomes) == [
        "departure_started",
        "queued",
    ]
    assert world.database.write(lambda tx: notifications.retry_each(tx, [])) == []


def test_however_many_are_owed_again_it_takes_as_many_statements(mails: Mails, statements: list[str]) -> None:
    counts = []
    for count in (1, 5):
        for number in range(count):
            failed(mails, f"a-key-of-a-test-{count}-{number}")
        failures = mails.world.database.read(lambda tx: notifications.find_failed(tx, mails.world.organization))
        keys = [(mail.organization_id, mail.effect_key) for mail, _ in failures]
        statements.clear()
        mails.world.database.write(lambda tx, keys=keys: notifications.retry_each(tx, keys))
        counts.append(len(statements))
        mails.write()
        mails.settle(MailOutcome.SENT)
    assert counts == [6, 6]
