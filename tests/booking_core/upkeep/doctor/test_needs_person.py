"""Work for a person is reported apart from broken data: counted, with the newest id and the command to run."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from support.databases import due
from support.world.hooks import Hooks, queue_rows
from support.world.operations import Operations
from support.world.world import DAY, HOUR, SECRET, World, make_world

from booking_core import bookings, payments
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.tokens import SecretKeys
from booking_core.bookings.storefront import HOLD_S_MAX
from booking_core.db import tables
from booking_core.due_work import parked
from booking_core.models import limits
from booking_core.models.bookings import RefundMode
from booking_core.models.events import EventType
from booking_core.notifications.rules import SEND_RETRY_DELAYS, SENT_WITHIN, WRITE_RETRY_DELAYS
from booking_core.payments import rules as refund_rules
from booking_core.upkeep import doctor
from booking_core.upkeep.doctor import checks, sealed_values
from booking_core.webhooks import claiming
from booking_core.webhooks import rules as webhook_rules
from booking_server.worker.jobs import mail
from booking_server.worker.jobs.payments import LEASE_S

EVERYTHING = doctor.CheckOptions(skew_s=0, include_needs_person=True)
DEAD = "dead deliveries wait for their receiver to be fixed"
DISABLED = "webhook endpoints disabled by failures wait for a person"
REVIEW = "refunds that the gateway cannot make wait for a person"
REFUSED = "refunds that the gateway refused wait for a person"
FAILED = "mails that could not be sent in the last 72 hours wait for a person"
UNWRITTEN = "mails that could not be written in the last 72 hours wait for a person"
PARKED = "rows that a job of the worker cannot process wait for a person"
CANCELLED_DEPARTURE = "bookings of a cancelled departure wait for a person"


@pytest.fixture
def world(alone: World) -> World:
    return alone


def findings_for_person(world: World, options: doctor.CheckOptions = EVERYTHING) -> dict[str, doctor.Finding]:
    """Return the findings by invariant; all of them wait for a person."""
    findings = world.database.read(lambda tx: doctor.examine(tx, world.org, options))
    assert {finding.kind for finding in findings} <= {doctor.FindingKind.NEEDS_PERSON}
    assert len({finding.invariant for finding in findings}) == len(findings)
    return {finding.invariant: finding for finding in findings}


def with_customers(world: World, count: int) -> tuple[Hooks, str]:
    """Create customers, an hour apart, and an endpoint that gets their events."""
    hooks = Hooks(world)
    endpoint = hooks.endpoint(EventType.CUSTOMER_CREATED)
    world.clock.advance(HOUR)
    departure = world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    for number in range(count):
        Operations(world).book(departure, email=f"guest-{number}@example.com")
        world.clock.advance(HOUR)
    return hooks, endpoint


def exhaust_attempts(world: World, hooks: Hooks) -> None:
    """Fail every queued delivery until it is dead."""
    for _ in range(6):
        hooks.fail(*hooks.claim())
        world.clock.advance(9 * HOUR)


def test_work_for_a_person_is_reported_only_with_the_option(consistent_world: World) -> None:
    assert findings_for_person(consistent_world).keys() == {DEAD, DISABLED}
    assert findings_for_person(consistent_world, replace(EVERYTHING, include_needs_person=False)) == {}


def test_dead_deliveries_are_counted_for_each_endpoint(world: World) -> None:
    hooks, endpoint = with_customers(world, 3)
    retried, *others = hooks.claim()
    hooks.succeed(retried)
    hooks.fail(*others)
    world.clock.advance(9 * HOUR)
    exhaust_attempts(world, hooks)
    (finding,) = findings_for_person(world).values()
    dead = [row for row in world.rows(tables.deliveries) if row["status"] == "dead"]
    newest = max(dead, key=lambda row: row["created_at"])["id"]
    assert (finding.invariant, finding.subject) == (DEAD, endpoint)
    assert finding.message == f"dead deliveries: 2, the newest is {newest}"
    assert finding.organization == world.organization.slug
    assert f"booking webhooks recover {endpoint} --since 2026-11-21T14:00:00Z --status dead" in str(finding.remedy)


def test_an_auto_disabled_endpoint_is_one_finding_with_its_missed_deliveries(world: World) -> None:
    hooks, endpoint = with_customers(world, 2)
    exhaust_attempts(world, hooks)
    world.clock.advance(80 * HOUR)
    late = world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    Operations(world).book(late, email="late@example.com")
    hooks.fail(*hooks.claim())
    assert hooks.row(endpoint)["status"] == "auto_disabled"
    (finding,) = findings_for_person(world).values()
    assert (finding.invariant, finding.subject) == (DISABLED, endpoint)
    assert "deliveries that were not made: 3" in finding.message
    assert f"booking webhooks enable {endpoint}" in str(finding.remedy)


@pytest.mark.one_database
def test_a_manually_disabled_endpoint_is_no_finding(world: World) -> None:
    hooks, endpoint = with_customers(world, 1)
    exhaust_attempts(world, hooks)
    assert findings_for_person(world).keys() == {DEAD}
    Operations(world).book(world.departure(world.experience(slug="late")), email="late@example.com")
    queue_rows(world)
    hooks.disable(endpoint)
    assert findings_for_person(world) == {}


def cancelled(world: World, count: int) -> list[str]:
    """Return the ids of paid bookings that were cancelled in time for a full refund."""
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    world.clock.advance(HOUR)
    booking_ids = [str(ops.check_out(departure, email=f"guest-{number}@example.com")["id"]) for number in range(count)]
    for booking_id in booking_ids:
        ops.pay(booking_id)
        ops.cancel(booking_id)
    return booking_ids


def test_unprocessable_rows_are_reported_until_they_are_no_longer_due(world: World) -> None:
    booking_id = "018f0000-0000-7000-8000-000000000001"

    def park() -> bool:
        error = ZeroDivisionError("a text that is not stored")
        return world.database.write(lambda tx: parked.park(tx, "abandon_checkouts", world.org, booking_id, error))

    assert [park(), park()] == [True, False]
    (finding,) = findings_for_person(world).values()
    assert (finding.invariant, finding.subject) == (PARKED, booking_id)
    assert finding.message.startswith("abandon_checkouts failed 2 times, the last time with ZeroDivisionError")
    world.clock.advance(2 * HOUR)
    assert findings_for_person(world) == {}


def test_refunds_that_need_a_review_are_counted(world: World) -> None:
    cancelled(world, 3)
    assert findings_for_person(world) == {}
    assert due.refer_refunds(world) == 3
    (finding,) = findings_for_person(world).values()
    newest = max(row["id"] for row in world.rows(tables.refunds))
    assert (finding.invariant, finding.subject) == (REVIEW, newest)
    assert finding.message.startswith("refunds that need a review: 3, together 2,670.00 NOK")
    assert f"booking refunds list --org {world.organization.slug} --status needs_review" in str(finding.remedy)


def test_refunds_that_the_gateway_refused_are_counted(world: World) -> None:
    cancelled(world, 2)
    claimed = due.claim_refunds(world)
    refused = [
        payments.RefundResult(refund, payments.RefundOutcome.REFUSED, reason="card_closed") for refund in claimed
    ]
    world.database.write(lambda tx: bookings.settle_refunds(tx, refused))
    (finding,) = findings_for_person(world).values()
    assert finding.invariant == REFUSED
    assert finding.message.startswith("refunds that failed: 2, together 1,780.00 NOK")
    assert "--status failed" in str(finding.remedy)


@pytest.mark.one_database
def test_a_cancellation_without_refund_by_staff_is_no_finding(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    world.clock.advance(HOUR)
    booking = ops.check_out(departure)
    ops.pay(booking["id"])
    ops.cancel(booking["id"], refund=RefundMode.NONE)
    noted = [row["data"] for row in world.rows(tables.timeline) if row["kind"] == "booking_cancelled"]
    assert [orjson.loads(data)["refund"] for data in noted] == ["none"]
    assert findings_for_person(world) == {}


@pytest.mark.exhaustive(but=("sqlite", "postgresql-71"))
@pytest.mark.parametrize("hours", [1, 71, 73])
def test_failed_mails_are_a_finding_for_72_hours(world: World, hours: int) -> None:
    at = world.clock()
    for number in range(2):
        key = f"staff_key_expiring_mail:{number}"
        mail = {"effect_key": key, "kind": "staff_key_expiring_mail", "recipient": "staff@example.com", "message": ""}
        ended = {"message_id": key, "created_at": at, "completed_at": at, "last_error": "smtp_550"}
        world.insert(tables.mails, **mail, **ended, status="failed")
    world.clock.advance(hours * HOUR)
    findings = {finding.invariant: finding for finding in mail_findings(world)}
    assert findings.keys() == ({FAILED} if hours < 72 else set())
    if findings:
        newest = max(row["id"] for row in world.rows(tables.mails))
        assert findings[FAILED].subject == newest
        assert findings[FAILED].message == f"mails that failed: 2, the newest is {newest}"
        assert f"booking mails list --org {world.organization.slug} --status failed" in str(findings[FAILED].remedy)


def test_unwritten_mails_are_a_finding(world: World) -> None:
    effect = {"key": "some_mail:1", "kind": "some_mail", "subject_id": world.org, "payload": "{}", "due_at": 1}
    ended = {"created_at": world.clock(), "completed_at": world.clock(), "last_error": "TemplateError"}
    world.insert(tables.effects, **effect, **ended, status="failed")
    findings = {finding.invariant: finding for finding in mail_findings(world)}
    assert findings[UNWRITTEN].message == "mails that could not be written: 1, one is some_mail:1"
    assert "--status unwritten" in str(findings[UNWRITTEN].remedy)


def mail_findings(world: World) -> list[doctor.Finding]:
    findings = world.database.read(lambda tx: doctor.examine(tx, world.org, EVERYTHING))
    return [finding for finding in findings if finding.kind is doctor.FindingKind.NEEDS_PERSON]


def test_bookings_of_a_cancelled_departure_are_a_finding_until_it_begins(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    ops.book(departure)
    world.change(tables.departures, departure, status="cancelled")
    (finding,) = findings_for_person(world).values()
    assert (finding.invariant, finding.subject) == (CANCELLED_DEPARTURE, departure)
    assert finding.message == "the departure is cancelled, and its seats that are still sold: 1"
    world.clock.advance(91 * DAY)
    assert findings_for_person(world) == {}


@pytest.mark.one_database
def test_broken_data_comes_first(history: Any) -> None:
    history.world.change(tables.departures, history.departure, seats_taken=5)
    findings = history.world.database.read(lambda tx: doctor.examine(tx, options=EVERYTHING))
    assert [finding.kind for finding in findings] == ["broken", "needs_person", "needs_person"]


# Limits of other packages -----------------------------------------------------------------------------


def test_the_time_limits_are_no_smaller_than_those_of_the_writers() -> None:
    until = doctor.CheckOptions(skew_s=0).parameters(0)
    assert until["hold_until"] == HOLD_S_MAX * SECOND
    assert max(WRITE_RETRY_DELAYS) <= until["effect_until"]
    assert max(SEND_RETRY_DELAYS) <= until["mail_until"]
    assert SENT_WITHIN == checks.MAIL_RETRYABLE
    longest_s = refund_rules.FIRST_RETRY_DELAY_S * refund_rules.RETRY_FACTOR_MAX * 1.25
    assert max(refund_rules.ACCEPTED_RECHECK_S, longest_s, LEASE_S) * SECOND <= until["refund_until"]
    assert max(mail.LEASE_S, LEASE_S) * SECOND <= checks.LEASE_AHEAD <= until["lease_until"]
    assert claiming.DEADLINES_PER_LEASE <= checks.LEASE_DEADLINES
    assert webhook_rules._JITTER_MAX <= checks.WEBHOOK_JITTER
    assert max(limits.WEBHOOK_WAITS_S) * SECOND * (1 + webhook_rules._JITTER_MAX) <= until["delivery_until"]
    assert claiming.pause(1) <= until["send_until"]
    assert until["secret_until"] == limits.SECRET_OVERLAP_S_MAX * SECOND


@pytest.mark.one_database
def test_a_longer_time_to_pay_moves_the_limit(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    booking = ops.check_out(departure)
    world.change(tables.bookings, booking["id"], expires_at=world.clock() + 40 * DAY)
    invariants = {finding.invariant for finding in world.examine()}
    assert invariants == {"no timestamp is further in the future than its limit"}
    longer = doctor.CheckOptions(pending_minutes=10 * 24 * 60)
    assert world.database.read(lambda tx: doctor.examine(tx, world.org, longer)) == []
    world.change(tables.organizations, world.org, pending_minutes=10 * 24 * 60)
    assert world.examine() == []


# Sealed values ---------------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_values_that_another_key_sealed_are_counted_by_kind(consistent_world: World) -> None:
    def lost(keys: SecretKeys | None) -> list[str]:
        options = doctor.CheckOptions(openers=None if keys is None else doctor.openers(keys))
        findings = consistent_world.database.read(lambda tx: doctor.examine(tx, options=options))
        assert {finding.invariant for finding in findings} <= {sealed_values.SealedValueScan.invariant}
        return [finding.message for finding in findings]

    assert lost(None) == []
    assert lost(SecretKeys(SECRET)) == []
    assert lost(SecretKeys("another key", SECRET)) == []
    assert lost(SecretKeys("another key")) == [
        "2 of 2 webhook secrets do not open",
        "2 of 2 gift card codes do not open",
        "3 of 3 stored answers do not open",
        "1 of 1 Stripe accounts do not open",
        "1 of 1 client secrets of payments do not open",
    ]


@pytest.mark.one_database
def test_a_value_is_opened_with_the_ids_of_its_row(consistent_world: World) -> None:
    context: dict[str, set[tuple[str, ...]]] = {}

    def opener(kind: str) -> doctor.Opener:
        return lambda text, row: context.setdefault(kind, set()).add(row)

    assert {kind.name for kind in sealed_values.KINDS} - sealed_values.REMEDIES.keys() == {"link_key"}
    options = doctor.CheckOptions(openers={kind.name: opener(kind.name) for kind in sealed_values.KINDS})
    assert consistent_world.database.read(lambda tx: doctor.examine(tx, options=options)) == []
    org = consistent_world.org
    assert context == {
        "webhook_secret": {
            (org, row["endpoint_id"], row["id"]) for row in consistent_world.rows(tables.webhook_secrets)
        },
        "gift_card_code": {(org, row["id"]) for row in consistent_world.rows(tables.gift_cards)},
        "stored_answer": {(org, row["key"]) for row in consistent_world.rows(tables.idempotency)},
        "stripe_account": {(org,)},
        "client_secret": {(org, row["booking_id"]) for row in consistent_world.rows(tables.payment_intents)},
    }


# Rows that are no finding -------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_a_customer_with_a_changed_address_is_no_finding(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    booking = ops.book(departure, email="Grace@Example.com")
    ops.book(departure, email="grace@example.com")
    customer = ops.booking(booking["id"])["customer_id"]
    ops.update_customer(customer, email="hopper@example.com")  # at the same instant
    assert findings_for_person(world) == {}


@pytest.mark.one_database
def test_fewer_seats_than_are_held_and_booked_are_no_finding(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), seats=4)
    ops.hold(departure, 3)
    booking = ops.book(departure)
    for act in (lambda: ops.set_seats(departure, 1), lambda: ops.cancel(booking["id"])):
        world.clock.advance(MINUTE)
        act()
        assert findings_for_person(world) == {}


@pytest.mark.one_database
def test_a_booking_moved_to_other_price_tiers_is_no_finding(world: World) -> None:
    ops, first = Operations(world), world.experience()
    other = world.experience(
        price_tiers='[{"id":"adult","name":"Adult","seats_per_unit":3,"price":{"amount_minor":89000,"currency":"NOK"}}]'
    )
    world.clock.advance(HOUR)
    departure, target = (world.departure(tour, starts_at=world.clock() + 90 * DAY) for tour in (first, other))
    booking = ops.book(departure)
    ops.reschedule(booking["id"], target)
    assert findings_for_person(world) == {}


@pytest.mark.one_database
def test_bookings_before_staff_mails_were_enabled_are_no_finding(world: World) -> None:
    quiet = make_world(world.database, world.clock, notify_staff=False)
    quiet.clock.advance(HOUR)
    Operations(quiet).book(quiet.departure(quiet.experience(), starts_at=quiet.clock() + 90 * DAY))
    assert findings_for_person(quiet) == {}
    quiet.clock.advance(HOUR)
    quiet.change(tables.organizations, quiet.org, notify_staff=True, updated_at=quiet.clock())
    assert findings_for_person(quiet) == {}
