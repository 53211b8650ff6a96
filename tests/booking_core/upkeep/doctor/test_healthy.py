"""Consistent rows give no finding: in one organization, in all, after a purge, and while no worker runs."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text
from support.databases.databases import run
from support.world.world import DAY, World, make_world

from booking_core.base.clock import SECOND
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.statements import Statement
from booking_core.upkeep import doctor
from booking_core.upkeep.doctor import checks, rows

EXACT = doctor.CheckOptions(skew_s=0)


def examine(world: World, options: doctor.CheckOptions | None = None) -> list[doctor.Finding]:
    return world.database.read(lambda tx: doctor.examine(tx, options=options))


def test_a_consistent_history_has_no_findings(consistent_world: World) -> None:
    statuses = Counter(row["status"] for row in consistent_world.rows(tables.deliveries))
    assert statuses.keys() == {"queued", "succeeded", "failed", "dead"}
    assert {row["status"] for row in consistent_world.rows(tables.bookings)} == {"pending", "confirmed", "cancelled"}
    assert examine(consistent_world, EXACT) == []
    assert consistent_world.examine() == []


@pytest.mark.one_database
def test_an_empty_database_has_no_findings(fresh_database: Database) -> None:
    assert fresh_database.read(doctor.examine) == []


@pytest.mark.one_database
def test_a_finding_has_organization_subject_message_and_remedy(history: Any) -> None:
    other = make_world(history.world.database, history.world.clock)
    history.world.change(tables.departures, history.departure, seats_taken=5)
    (finding,) = history.world.examine()
    assert finding == doctor.Finding(
        "seats taken are the seats of pending and confirmed bookings",
        history.world.org,
        history.departure,
        "seats_taken is 5, bookings hold 4",
        "set seats_taken of the departure to the seats of its pending and confirmed bookings",
        doctor.FindingKind.BROKEN,
        history.world.organization.slug,
    )
    assert examine(history.world) == [finding]
    assert other.examine() == []


def test_seats_are_compared_with_the_price_tiers_of_the_sale() -> None:
    guests, family = '[{"tier_id": "family", "count": 2}]', '[{"id": "family", "seats_per_unit": 4}]'
    sales = [[8, guests, family], [5, guests, family], [5, guests, "[]"], [5, guests, None], [0, guests, None]]
    messages = [None, "takes 5 seats, its guests need 8", None, None, "takes no seats, but has guests"]
    assert [rows.validate_seats(sale) for sale in sales] == messages


def test_a_finding_shows_times_and_amounts_as_people_read_them() -> None:
    context = checks.CheckContext("an-organization", {})
    check = doctor.Check(invariant="an invariant", query="")
    message = "since 1798764000000000: took -178000 minor NOK of 25000 minor CLP and 7 minor ZZZ"
    assert check.finding(context, "an-organization", "a-subject", message).message == (
        "since 2027-01-01T00:40:00Z: took -1,780.00 NOK of 25,000 CLP and 7 minor ZZZ"
    )


def test_a_row_scan_reads_only_the_given_organization(history: Any) -> None:
    other = make_world(history.world.database, history.world.clock)
    customer = history.world.rows(tables.customers)[0]["id"]
    history.world.change(tables.customers, customer, email="another@example.com")
    assert [finding.subject for finding in history.world.examine()] == [customer]
    assert other.examine() == []


# Purged rows -------------------------------------------------------------------------------------------------


def purge_all(history: Any, url: str, *, keep_from: int) -> None:
    """Let every retention end, delete the rows, and keep the events from a sequence on."""
    history.world.clock.advance(200 * DAY)
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


@pytest.mark.exhaustive(but=("sqlite", "postgresql-12"))
@pytest.mark.parametrize("keep_from", [1, 4, 12, 20, 9999])
def test_rows_purged_after_their_retention_are_no_finding(
    history: Any, fresh_database_url: str, keep_from: int
) -> None:
    purge_all(history, fresh_database_url, keep_from=keep_from)
    history.customer()
    assert examine(history.world, EXACT) == []


@pytest.mark.one_database
def test_events_purged_before_the_configured_retention_are_a_finding(history: Any, fresh_database_url: str) -> None:
    purge_all(history, fresh_database_url, keep_from=24)
    assert examine(history.world, doctor.CheckOptions(event_retention_days=100)) == []
    assert {finding.invariant for finding in examine(history.world, doctor.CheckOptions(event_retention_days=300))} == {
        "no event is purged before its retention ends",
        "a booking has one event each for its creation, confirmation and cancellation",
        "a customer created by a booking has a customer.created event",
        "each refund that returned money has one event",
    }


@pytest.mark.exhaustive(but=("sqlite", "postgresql-29"))
@pytest.mark.parametrize("days", [29, 31])
def test_a_missing_outbox_row_is_a_finding_within_its_retention(
    history: Any, fresh_database_url: str, days: int
) -> None:
    run(fresh_database_url, "DELETE FROM mails", "DELETE FROM effects")
    confirmed_at = max(row["cancelled_at"] or row["confirmed_at"] or 0 for row in history.world.rows(tables.bookings))
    history.world.clock.at = confirmed_at + days * DAY
    invariants = {finding.invariant for finding in examine(history.world, EXACT)}
    assert invariants == (
        {
            "a booking has outbox rows for the mails to its guest, unless they were suppressed",
            "a booking has outbox rows for the mails to staff where these are enabled",
        }
        if days < 30
        else set()
    )


# Due work ------------------------------------------------------------------------------------------------------


def test_overdue_work_is_found_only_with_overdue_s(history: Any) -> None:
    history.world.clock.advance(40 * DAY)
    assert examine(history.world) == []
    assert {finding.invariant for finding in examine(history.world, doctor.CheckOptions(overdue_s=600))} == {
        "a delivery is sent when it is due, and an expired lease is rescued",
        "a pending booking expires when its time to pay ends",
        "a refund is sent when it is due",
        "outbox rows and mails are processed when they are due",
    }


def test_work_that_is_due_for_less_than_overdue_s_is_no_finding(consistent_world: World) -> None:
    oldest = min(row["due_at"] for row in consistent_world.rows(tables.effects) if row["status"] == "queued")
    waited_s = (consistent_world.clock() - oldest) // SECOND
    assert examine(consistent_world, doctor.CheckOptions(overdue_s=waited_s)) == []
    assert examine(consistent_world, doctor.CheckOptions(overdue_s=waited_s - 1)) != []


# Execution --------------------------------------------------------------------------------------------------


def context_of(world: World) -> checks.CheckContext:
    return checks.CheckContext(None, doctor.CheckOptions().parameters(world.clock()), {world.org: "fjord-tours"})


def test_a_check_returns_at_most_findings_max(consistent_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FINDINGS_MAX", 2)
    bounded = doctor.Check(invariant="bounded", query="SELECT b.organization_id, b.id, 'one' FROM bookings b WHERE [b]")
    page = "SELECT b.id, b.id, b.status FROM bookings b WHERE b.organization_id = :organization_id"
    scan = doctor.RowScan(invariant="scanned", query=page, key="b.id", validate=lambda row: str(row[0]))
    context = context_of(consistent_world)
    with consistent_world.database.reading() as tx:
        assert [len(list(check.findings(tx, context))) for check in (bounded, scan)] == [2, 2]


def test_a_row_scan_reads_every_row_of_every_page(consistent_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PAGE", 2)
    types: list[str] = []
    page = "SELECT e.sequence, e.id, e.type FROM events e WHERE e.organization_id = :organization_id"
    scan = doctor.RowScan(invariant="scanned", query=page, key="e.sequence", validate=lambda row: types.append(row[0]))
    context = context_of(consistent_world)
    assert consistent_world.database.read(lambda tx: list(scan.findings(tx, context))) == []
    event = sorted(consistent_world.rows(tables.events), key=lambda row: row["sequence"])
    assert types == [row["type"] for row in event]


def test_examine_reports_its_progress(consistent_world: World) -> None:
    steps: list[tuple[int, int]] = []
    consistent_world.database.read(
        lambda tx: doctor.examine(tx, advance=lambda count, total: steps.append((count, total)))
    )
    total = sum(check.applies(doctor.CheckOptions()) for check in doctor.CHECKS)
    assert steps == [(count, total) for count in range(1, total + 1)]


@pytest.mark.usefixtures("postgresql_only")
def test_the_statement_timeout_is_restored(consistent_world: World) -> None:
    show = Statement(text("SELECT current_setting('statement_timeout')"))
    with consistent_world.database.reading() as tx:
        before = tx.all(show)
        doctor.examine(tx)
        assert tx.all(show) == before == [("7s",)]
