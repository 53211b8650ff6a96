"""What is as it should be gives no finding: in one organization, in all, after a purge, and while nobody works."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text
from support.databases import run
from support.world import DAY, make_world

from booking_core import doctor
from booking_core.clock import SECOND
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.doctor import checks

EXACT = doctor.Terms(skew_s=0)


def found(past: Any, terms: doctor.Terms | None = None) -> list[doctor.Finding]:
    return past.world.database.read(lambda tx: doctor.examine(tx, terms=terms))  # type: ignore[no-any-return]


def test_nothing_is_found_where_everything_has_happened_as_it_should(past: Any) -> None:
    statuses = Counter(row["status"] for row in past.world.rows(tables.deliveries))
    assert statuses.keys() == {"queued", "succeeded", "failed", "dead"}
    assert {row["status"] for row in past.world.rows(tables.bookings)} == {"pending", "confirmed", "cancelled"}
    assert found(past, EXACT) == []
    assert past.world.examine() == []


def test_nothing_is_found_in_an_empty_database(fresh_database_url: str) -> None:
    database = Database(fresh_database_url)
    assert database.read(doctor.examine) == []
    database.close()


def test_a_finding_says_whose_it_is_and_what_it_is_about_and_how_it_is_mended(past: Any) -> None:
    other = make_world(past.world.database, past.world.clock)
    past.world.change(tables.departures, past.departure, seats_taken=5)
    (finding,) = past.world.examine()
    assert finding == doctor.Finding(
        "seats taken are the seats of pending and confirmed bookings",
        past.world.org,
        past.departure,
        "seats_taken is 5, bookings hold 4",
        "set seats_taken of the departure to the seats of its pending and confirmed bookings",
        doctor.FindingKind.BROKEN,
        past.world.organization.slug,
    )
    assert found(past) == [finding]
    assert other.examine() == []


def test_a_walk_too_looks_at_the_organization_that_was_asked_about(past: Any) -> None:
    other = make_world(past.world.database, past.world.clock)
    customer = past.world.rows(tables.customers)[0]["id"]
    past.world.change(tables.customers, customer, email="another@example.com")
    assert [finding.subject for finding in past.world.examine()] == [customer]
    assert other.examine() == []


# What was purged -------------------------------------------------------------------------------------------------


def grow_old(past: Any, url: str, *, keep_from: int) -> None:
    """Everything so far becomes older than anything is kept for, and of the feed only what begins there is left."""
    past.world.clock.advance(200 * DAY)
    run(
        url,
        f"DELETE FROM events WHERE sequence < {keep_from}",
        "DELETE FROM attempts",
        "DELETE FROM deliveries",
        "DELETE FROM idempotency",
        "DELETE FROM mails",
        "DELETE FROM effects",
        "DELETE FROM holds",
    )


@pytest.mark.parametrize("keep_from", [1, 4, 12, 20, 9999])
def test_what_was_purged_in_its_time_is_not_missed(past: Any, fresh_database_url: str, keep_from: int) -> None:
    grow_old(past, fresh_database_url, keep_from=keep_from)
    past.customer()
    assert found(past, EXACT) == []


def test_what_was_purged_before_its_time_is_missed_by_the_terms_of_the_installation(
    past: Any, fresh_database_url: str
) -> None:
    grow_old(past, fresh_database_url, keep_from=20)
    assert found(past, doctor.Terms(event_retention_days=100)) == []
    assert {finding.invariant for finding in found(past, doctor.Terms(event_retention_days=300))} == {
        "no event is purged before its time",
        "a booking is told created once, confirmed once when it was, cancelled once when it is",
        "a customer who came with a booking is told created",
    }


@pytest.mark.parametrize("days", [29, 31])
def test_what_was_owed_is_missed_for_as_long_as_it_is_kept(past: Any, fresh_database_url: str, days: int) -> None:
    run(fresh_database_url, "DELETE FROM mails", "DELETE FROM effects")
    confirmed_at = max(row["cancelled_at"] or row["confirmed_at"] or 0 for row in past.world.rows(tables.bookings))
    past.world.clock.at = confirmed_at + days * DAY
    invariants = {finding.invariant for finding in found(past, EXACT)}
    assert invariants == (
        {
            "a guest is owed the mails of a booking, unless they were suppressed",
            "staff is owed the mails of a booking where they are switched on",
        }
        if days < 30
        else set()
    )


# What waits ------------------------------------------------------------------------------------------------------


def test_what_waits_is_found_only_by_who_asks_for_it(past: Any) -> None:
    past.world.clock.advance(40 * DAY)
    assert found(past) == []
    assert {finding.invariant for finding in found(past, doctor.Terms(overdue_s=600))} == {
        "a delivery is sent when it is due, and a lease that was lost is taken back",
        "a pending booking is abandoned when its time is up",
        "a refund is sent when it is due",
        "an effect and a mail are taken up when they are due",
    }


def test_what_is_due_may_wait_for_a_while(past: Any) -> None:
    oldest = min(row["due_at"] for row in past.world.rows(tables.effects) if row["status"] == "queued")
    waited_s = (past.world.clock() - oldest) // SECOND
    assert found(past, doctor.Terms(overdue_s=waited_s)) == []
    assert found(past, doctor.Terms(overdue_s=waited_s - 1)) != []


# How it is done --------------------------------------------------------------------------------------------------


def test_of_one_check_no_more_is_told_than_anyone_reads(past: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FINDINGS_MAX", 2)
    bounded = doctor.Check("bounded", "SELECT b.organization_id, b.id, 'one' FROM bookings b WHERE [b]")
    page = "SELECT b.id, b.id, b.status FROM bookings b WHERE b.organization_id = :organization_id"
    walk = doctor.Walk("walked", page, "b.id", lambda row: str(row[0]))
    asked = checks.Asked(None, doctor.Terms().parameters(past.world.clock()), {past.world.org: "fjord-tours"})

    def work(tx: Tx) -> list[int]:
        return [len(list(each.findings(tx, asked))) for each in (bounded, walk)]

    assert past.world.database.read(work) == [2, 2]


def test_a_walk_sees_every_row_whatever_fits_on_a_page(past: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PAGE", 2)
    seen: list[str] = []
    page = "SELECT e.sequence, e.id, e.type FROM events e WHERE e.organization_id = :organization_id"
    walk = doctor.Walk("walked", page, "e.sequence", lambda row: seen.append(row[0]))
    asked = checks.Asked(None, doctor.Terms().parameters(past.world.clock()), {past.world.org: "fjord-tours"})
    assert past.world.database.read(lambda tx: list(walk.findings(tx, asked))) == []
    told = sorted(past.world.rows(tables.events), key=lambda row: row["sequence"])
    assert seen == [row["type"] for row in told]


def test_it_says_how_far_it_has_come(past: Any) -> None:
    steps: list[tuple[int, int]] = []
    past.world.database.read(lambda tx: doctor.examine(tx, advance=lambda done, total: steps.append((done, total))))
    total = sum(check.applies(doctor.Terms()) for check in doctor.CHECKS)
    assert steps == [(done, total) for done in range(1, total + 1)]


def test_the_time_that_a_statement_may_take_is_as_it_was_before(past: Any) -> None:
    if past.world.database.is_sqlite:
        pytest.skip("SQLite has no such limit")
    show = Statement(text("SELECT current_setting('statement_timeout')"))

    def work(tx: Tx) -> list[str]:
        before = tx.all(show)
        doctor.examine(tx)
        return [before[0][0], tx.all(show)[0][0]]

    before, after = past.world.database.read(work)
    assert before == after == "9s"
