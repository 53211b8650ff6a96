"""What waits for a person is told apart from what is broken: counted, with the newest id and the command to run."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from support.hooks import Hooks
from support.operations import Operations
from support.world import DAY, HOUR, SECRET, FixedClock, World, make_world

from booking_core import doctor, payments
from booking_core.clock import SECOND
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.doctor import checks, sealed
from booking_core.models.bookings import RefundMode
from booking_core.models.events import EventType
from booking_core.notifications.rules import SEND_RETRY_DELAYS, SENT_WITHIN, WRITE_RETRY_DELAYS
from booking_core.payments import rules as refund_rules
from booking_core.storefront.rules import HOLD_S_MAX
from booking_core.tokens import SecretKeys
from booking_core.webhooks import claiming
from booking_core.webhooks import rules as webhook_rules
from booking_server.worker.jobs import mail, refunds

EVERYTHING = doctor.Terms(skew_s=0, include_waiting=True)
DEAD = "dead deliveries wait for their receiver to be mended"
OFF = "webhook endpoints that failures switched off wait for a person"
REVIEW = "refunds that the gateway cannot make wait for a person"
REFUSED = "refunds that the gateway refused wait for a person"
FAILED = "mails that could not be sent wait for a person while they are news"
UNWRITTEN = "mails that could not be written wait for a person while they are news"
LEFT = "bookings of a cancelled departure wait for a person"


@pytest.fixture
def world(fresh_database_url: str) -> Any:
    database = Database(fresh_database_url, clock=(clock := FixedClock()))
    yield make_world(database, clock)
    database.close()


def waiting(world: World, terms: doctor.Terms = EVERYTHING) -> dict[str, doctor.Finding]:
    """Return what is found, by invariant; all of it waits for a person."""
    found = world.database.read(lambda tx: doctor.examine(tx, world.org, terms))
    assert {each.kind for each in found} <= {doctor.FindingKind.NEEDS_PERSON}
    assert len({each.invariant for each in found}) == len(found)
    return {each.invariant: each for each in found}


def die(world: World, hooks: Hooks) -> None:
    """Everything that is queued fails until it is dead."""
    for _ in range(6):
        hooks.fail(*hooks.claim())
        world.clock.advance(9 * HOUR)


def test_it_is_told_only_to_who_asks_for_it(past: Any) -> None:
    assert waiting(past.world).keys() == {DEAD, OFF}
    assert waiting(past.world, replace(EVERYTHING, include_waiting=False)) == {}


def test_dead_deliveries_are_counted_for_each_endpoint(world: World) -> None:
    hooks, ops = Hooks(world), Operations(world)
    endpoint = hooks.endpoint(EventType.CUSTOMER_CREATED)
    world.clock.advance(HOUR)
    departure = world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    for number in range(3):
        ops.book(departure, email=f"guest-{number}@example.com")
        world.clock.advance(HOUR)
    lucky, *others = hooks.claim()
    hooks.succeed(lucky)
    hooks.fail(*others)
    world.clock.advance(9 * HOUR)
    die(world, hooks)
    (found,) = waiting(world).values()
    newest = max(row["id"] for row in world.rows(tables.deliveries) if row["status"] == "dead")
    assert (found.invariant, found.subject) == (DEAD, endpoint)
    assert found.message == f"dead deliveries: 2, the newest is {newest}"
    assert found.organization == world.organization.slug
    assert found.remedy is not None
    assert f"booking webhooks recover {endpoint} --since 2026-11-21T14:00:00Z --status dead" in found.remedy


def test_an_endpoint_that_was_switched_off_is_told_once_with_what_it_missed(world: World) -> None:
    hooks, ops = Hooks(world), Operations(world)
    endpoint = hooks.endpoint(EventType.CUSTOMER_CREATED)
    world.clock.advance(HOUR)
    departure = world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    for number in range(2):
        ops.book(departure, email=f"guest-{number}@example.com")
    die(world, hooks)
    world.clock.advance(80 * HOUR)
    ops.book(departure, email="late@example.com")
    hooks.fail(*hooks.claim())
    assert hooks.row(endpoint)["status"] == "auto_disabled"
    (found,) = waiting(world).values()
    assert (found.invariant, found.subject) == (OFF, endpoint)
    assert "deliveries that were not made: 3" in found.message
    assert found.remedy is not None
    assert f"booking webhooks enable {endpoint}" in found.remedy


def test_an_endpoint_that_somebody_switched_off_or_deleted_waits_for_nobody(world: World) -> None:
    hooks, ops = Hooks(world), Operations(world)
    endpoint = hooks.endpoint(EventType.CUSTOMER_CREATED)
    world.clock.advance(HOUR)
    ops.book(world.departure(world.experience(), starts_at=world.clock() + 90 * DAY))
    die(world, hooks)
    assert waiting(world).keys() == {DEAD}
    off = {"status": "disabled", "disabled_reason": "manual", "disabled_at": world.clock()}
    world.change(tables.webhook_endpoints, endpoint, **off, updated_at=world.clock())
    assert waiting(world) == {}


def cancelled(world: World, count: int) -> list[str]:
    """Return paid bookings that were cancelled in time, so that all of their money is owed back."""
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    world.clock.advance(HOUR)
    made = [str(ops.check_out(departure, email=f"guest-{number}@example.com")["id"]) for number in range(count)]
    for booking_id in made:
        ops.pay(booking_id)
        ops.cancel(booking_id)
    return made


def test_refunds_that_no_gateway_can_make_are_counted(world: World) -> None:
    cancelled(world, 3)
    assert waiting(world) == {}
    assert world.database.write(lambda tx: payments.refer_to_staff(tx, limit=10)) == 3
    (found,) = waiting(world).values()
    newest = max(row["id"] for row in world.rows(tables.refunds))
    assert (found.invariant, found.subject) == (REVIEW, newest)
    assert found.message.startswith("refunds that need a review: 3, together 267000 minor units of NOK")
    assert found.remedy is not None
    assert f"booking refunds list --org {world.organization.slug} --status needs_review" in found.remedy


def test_refunds_that_the_gateway_refused_are_counted(world: World) -> None:
    cancelled(world, 2)
    claimed = world.database.write(lambda tx: payments.claim(tx, limit=10, lease_s=30))
    refused = [payments.RefundResult(each, payments.RefundOutcome.REFUSED, reason="card_closed") for each in claimed]
    world.database.write(lambda tx: payments.settle(tx, refused))
    (found,) = waiting(world).values()
    assert found.invariant == REFUSED
    assert found.message.startswith("refunds that failed: 2, together 178000 minor units of NOK")
    assert "--status failed" in str(found.remedy)


def test_money_that_staff_kept_is_no_lost_refund(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    world.clock.advance(HOUR)
    booking = ops.check_out(departure)
    ops.pay(booking["id"])
    ops.cancel(booking["id"], refund=RefundMode.NONE)
    noted = [row["data"] for row in world.rows(tables.timeline) if row["kind"] == "booking_cancelled"]
    assert [orjson.loads(data)["refund"] for data in noted] == ["none"]
    assert waiting(world) == {}


@pytest.mark.parametrize("hours", [1, 71, 73])
def test_mails_that_failed_wait_while_they_are_news(world: World, hours: int) -> None:
    at = world.clock()
    for number in range(2):
        key = f"staff_key_expiring_mail:{number}"
        mail = {"effect_key": key, "kind": "staff_key_expiring_mail", "recipient": "staff@example.com", "message": ""}
        ended = {"message_id": key, "created_at": at, "completed_at": at, "last_error": "smtp_550"}
        world.insert(tables.mails, **mail, **ended, status="failed")
    world.clock.advance(hours * HOUR)
    found = {each.invariant: each for each in found_of_mails(world)}
    assert found.keys() == ({FAILED} if hours < 72 else set())
    if found:
        newest = max(row["id"] for row in world.rows(tables.mails))
        assert found[FAILED].subject == newest
        assert found[FAILED].message == f"mails that failed: 2, the newest is {newest}"
        assert f"booking mails list --org {world.organization.slug} --status failed" in str(found[FAILED].remedy)


def test_mails_that_could_not_be_written_wait_while_they_are_news(world: World) -> None:
    effect = {"key": "some_mail:1", "kind": "some_mail", "subject_id": world.org, "payload": "{}", "due_at": 1}
    ended = {"created_at": world.clock(), "completed_at": world.clock(), "last_error": "TemplateError"}
    world.insert(tables.effects, **effect, **ended, status="failed")
    found = {each.invariant: each for each in found_of_mails(world)}
    assert found[UNWRITTEN].message == "mails that could not be written: 1, one is some_mail:1"
    assert "--status unwritten" in str(found[UNWRITTEN].remedy)


def found_of_mails(world: World) -> list[doctor.Finding]:
    found = world.database.read(lambda tx: doctor.examine(tx, world.org, EVERYTHING))
    return [each for each in found if each.kind is doctor.FindingKind.NEEDS_PERSON]


def test_bookings_of_a_departure_that_a_catalogue_cancelled_wait_until_it_has_begun(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    ops.book(departure)
    world.change(tables.departures, departure, status="cancelled")
    (found,) = waiting(world).values()
    assert (found.invariant, found.subject) == (LEFT, departure)
    assert found.message == "the departure is cancelled, and its seats that are still sold: 1"
    world.clock.advance(91 * DAY)
    assert waiting(world) == {}


def test_what_is_broken_comes_first(past: Any) -> None:
    past.world.change(tables.departures, past.departure, seats_taken=5)
    found = past.world.database.read(lambda tx: doctor.examine(tx, terms=EVERYTHING))
    assert [each.kind for each in found] == ["broken", "needs_person", "needs_person"]


# Limits that are also kept elsewhere -----------------------------------------------------------------------------


def test_the_limits_of_instants_are_no_smaller_than_what_is_written() -> None:
    assert HOLD_S_MAX * SECOND == checks.HOLD_AHEAD
    assert max(WRITE_RETRY_DELAYS) <= checks.EFFECT_AHEAD
    assert max(SEND_RETRY_DELAYS) <= checks.MAIL_AHEAD
    assert SENT_WITHIN == checks.MAIL_IS_NEWS
    longest_s = refund_rules.FIRST_RETRY_DELAY_S * refund_rules.RETRY_FACTOR_MAX * 1.25
    assert max(refund_rules.ACCEPTED_WAIT_S, longest_s, refunds.LEASE_S) * SECOND <= checks.REFUND_AHEAD
    assert max(mail.LEASE_S, refunds.LEASE_S) * SECOND <= checks.LEASE_AHEAD
    assert claiming.DEADLINES_PER_LEASE <= checks.LEASE_DEADLINES
    assert webhook_rules._JITTER <= checks.WEBHOOK_JITTER


def test_a_setting_that_allows_more_moves_the_limit(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    booking = ops.check_out(departure)
    world.change(tables.bookings, booking["id"], expires_at=world.clock() + 40 * DAY)
    invariants = {each.invariant for each in world.examine()}
    assert invariants == {"no instant lies further ahead than its limit allows"}
    longer = doctor.Terms(pending_minutes=10 * 24 * 60)
    assert world.database.read(lambda tx: doctor.examine(tx, world.org, longer)) == []
    world.change(tables.organizations, world.org, pending_minutes=10 * 24 * 60)
    assert world.examine() == []


# Sealed values ---------------------------------------------------------------------------------------------------


def test_values_that_another_key_sealed_are_counted_by_kind(past: Any) -> None:
    def lost(keys: SecretKeys | None) -> list[str]:
        terms = doctor.Terms(openers=None if keys is None else doctor.openers(keys))
        found = past.world.database.read(lambda tx: doctor.examine(tx, terms=terms))
        assert {each.invariant for each in found} <= {sealed.Sealed.invariant}
        return [each.message for each in found]

    assert lost(None) == []
    assert lost(SecretKeys(SECRET)) == []
    assert lost(SecretKeys("another key", SECRET)) == []
    assert lost(SecretKeys("another key")) == [
        "2 of 2 webhook secrets do not open",
        "2 of 2 gift card codes do not open",
        "3 of 3 stored answers do not open",
    ]


def test_a_value_is_opened_for_the_row_that_it_is_kept_in(past: Any) -> None:
    asked: dict[str, set[tuple[str, ...]]] = {}

    def opener(kind: str) -> doctor.Opener:
        return lambda text, row: asked.setdefault(kind, set()).add(row)

    terms = doctor.Terms(openers={kind.name: opener(kind.name) for kind in sealed.KINDS})
    assert past.world.database.read(lambda tx: doctor.examine(tx, terms=terms)) == []
    org = past.world.org
    assert asked == {
        "webhook_secret": {(org, row["endpoint_id"], row["id"]) for row in past.world.rows(tables.webhook_secrets)},
        "gift_card_code": {(org, row["id"]) for row in past.world.rows(tables.gift_cards)},
        "stored_answer": {(org, row["key"]) for row in past.world.rows(tables.idempotency)},
    }


# What must stay silent -------------------------------------------------------------------------------------------


def test_a_customer_whose_address_was_changed_later_is_no_other_customer(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    booking = ops.book(departure, email="Grace@Example.com")
    customer = ops.booking(booking["id"])["customer_id"]
    ops.update_customer(customer, email="hopper@example.com")  # at the same instant
    assert waiting(world) == {}


def test_a_booking_that_was_moved_to_other_tiers_keeps_its_seats(world: World) -> None:
    ops, first = Operations(world), world.experience()
    other = world.experience(
        price_tiers='[{"id":"adult","name":"Adult","seats_per_unit":3,"price":{"amount_minor":89000,"currency":"NOK"}}]'
    )
    world.clock.advance(HOUR)
    here, there = (world.departure(each, starts_at=world.clock() + 90 * DAY) for each in (first, other))
    booking = ops.book(here)
    ops.reschedule(booking["id"], there)
    assert waiting(world) == {}


def test_staff_that_switched_its_mails_on_later_is_owed_none_for_before(world: World) -> None:
    quiet = make_world(world.database, world.clock, notify_staff=False)
    quiet.clock.advance(HOUR)
    Operations(quiet).book(quiet.departure(quiet.experience(), starts_at=quiet.clock() + 90 * DAY))
    assert waiting(quiet) == {}
    quiet.clock.advance(HOUR)
    quiet.change(tables.organizations, quiet.org, notify_staff=True, updated_at=quiet.clock())
    assert waiting(quiet) == {}
