"""The doctor finds nothing in a healthy database, and each thing that can be off in a broken one."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support import rows
from support.creating import create, created
from support.databases import fill, run, unbind
from support.world import DAY, NOON, FixedClock, World, make_world

from booking_core import bookings, doctor, tokens
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.writes import Writes
from booking_core.wire.bookings import BookingCancel


@pytest.fixture
def healthy(fresh_database_url: str) -> Iterator[World]:
    """An organization with some of everything: bookings, one cancelled, an endpoint, a gift card, 20 keys."""
    database = Database(fresh_database_url, clock=(clock := FixedClock()))
    world = make_world(database, clock)
    departure = world.departure(world.experience())
    endpoint = world.insert(
        tables.webhook_endpoints, url="https://example.com", status="enabled", enabled_at=1, created_at=1, updated_at=1
    )
    for event_type in ("booking.created", "booking.cancelled"):
        world.insert(tables.webhook_subscriptions, endpoint_id=endpoint, event_type=event_type)
    created(database, [create(world, departure, f"healthy-{number}") for number in range(3)])
    cancelled = min(world.rows(tables.bookings), key=lambda row: row["booking_number"])
    database.write(lambda tx: _cancel(tx, world, cancelled["id"]))
    fill(fresh_database_url, tables.gift_cards, [rows.gift_card(world.org, card := tokens.new_id(), NOON)])
    entry = {"gift_card_id": card, "booking_id": cancelled["id"], "created_at": NOON}
    world.insert(tables.gift_card_entries, kind="redeem", amount_minor=-500, **entry)
    world.insert(tables.gift_card_entries, kind="restore", amount_minor=500, **entry)
    for _ in range(20):
        world.key()
    world.key(revoked_at=NOON)
    world.key(expires_at=NOON)
    yield world
    database.close()


def _cancel(tx: Tx, world: World, booking_id: str) -> None:
    pending = Writes()
    bookings.cancel(tx, world.caller(), pending, booking_id, BookingCancel())
    tx.write(pending)


@dataclass(frozen=True)
class Harm:
    """What is done to the database, and the invariant that it breaks; constraints of `unbound` are taken away first."""

    invariant: str
    sql: str
    unbound: tuple[str, ...] = ()


HARMS = (
    Harm(
        "seats taken are the seats of pending and confirmed bookings",
        "UPDATE departures SET seats_taken = seats_taken + 1",
    ),
    Harm(
        "seats taken are the seats of pending and confirmed bookings",
        "UPDATE bookings SET seats = seats + 1 WHERE status = 'confirmed'",
    ),
    Harm(
        "no departure is sold beyond what it ever had",
        "UPDATE departures SET seats_taken = seats_ceiling + 1",
        ("departures",),
    ),
    Harm("no departure is sold beyond what it ever had", "UPDATE departures SET seats_taken = -1", ("departures",)),
    Harm("no departure is sold beyond what it ever had", "UPDATE departures SET seats_ceiling = seats_total - 1"),
    Harm(
        "booking numbers are 1 to n without a gap, and n is the counter",
        "UPDATE bookings SET booking_number = 4 WHERE booking_number = 2",
    ),
    Harm(
        "booking numbers are 1 to n without a gap, and n is the counter",
        "UPDATE bookings SET booking_number = 4 WHERE booking_number = 3",
    ),
    Harm(
        "booking numbers are 1 to n without a gap, and n is the counter",
        "UPDATE counters SET last_booking_number = last_booking_number + 1",
    ),
    Harm("event sequences are dense up to the counter", "DELETE FROM events WHERE sequence = 3"),
    Harm(
        "event sequences are dense up to the counter",
        "DELETE FROM events WHERE sequence = (SELECT max(sequence) FROM events)",
    ),
    Harm(
        "event sequences are dense up to the counter",
        "UPDATE counters SET last_event_sequence = last_event_sequence - 1",
    ),
    *(
        Harm("a booking is told created once, confirmed once when it was, cancelled once when it is", sql)
        for sql in (
            "DELETE FROM events WHERE type = 'booking.created'",
            "DELETE FROM events WHERE type = 'booking.confirmed'",
            "DELETE FROM events WHERE type = 'booking.cancelled'",
            "UPDATE events SET type = 'booking.created', occurrence = 9 WHERE type = 'booking.cancelled'",
            "UPDATE bookings SET confirmed_at = NULL WHERE booking_number = 3",
            "UPDATE bookings SET status = 'cancelled', cancelled_at = 1 WHERE booking_number = 3",
        )
    ),
    Harm(
        "a booking is told created before confirmed",
        "UPDATE events SET type = CASE type WHEN 'booking.created' THEN 'booking.confirmed' ELSE 'booking.created' END"
        " WHERE type IN ('booking.created', 'booking.confirmed')",
        ("events",),
    ),
    Harm("every API booking has the stored answer of its key", "DELETE FROM idempotency WHERE key = 'healthy-1'"),
    Harm("every API booking has the stored answer of its key", "DELETE FROM idempotency"),
    Harm(
        "an event has one delivery for each endpoint at most",
        "INSERT INTO deliveries SELECT * FROM deliveries",
        ("deliveries",),
    ),
    Harm("totals add up", "UPDATE bookings SET total_minor = total_minor + 1", ("bookings",)),
    Harm("totals add up", "UPDATE bookings SET total_minor = -1, discount_minor = subtotal_minor + 1", ("bookings",)),
    Harm(
        "a gift card's balance is its face value and its ledger",
        "UPDATE gift_cards SET balance_minor = balance_minor - 1",
    ),
    Harm(
        "a gift card's balance is its face value and its ledger",
        "DELETE FROM gift_card_entries WHERE kind = 'restore'",
    ),
    Harm(
        "at most 20 keys of an organization are active",
        "UPDATE api_keys SET revoked_at = NULL WHERE revoked_at IS NOT NULL",
    ),
)


def found(world: World) -> set[str]:
    """The invariants that the doctor finds broken."""
    return {finding.invariant for finding in world.database.read(doctor.examine)}


def test_nothing_is_found_in_a_healthy_database(healthy: World) -> None:
    assert healthy.rows(tables.deliveries)
    assert healthy.database.read(doctor.examine) == []


def test_nothing_is_found_in_an_empty_database(fresh_database_url: str) -> None:
    database = Database(fresh_database_url)
    assert database.read(doctor.examine) == []
    database.close()


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.sql[:60])
def test_what_is_off_is_found(healthy: World, fresh_database_url: str, harm: Harm) -> None:
    unbind(fresh_database_url, harm.unbound)
    assert found(healthy) == set()
    run(fresh_database_url, harm.sql)
    assert harm.invariant in found(healthy)


def test_every_check_of_the_doctor_is_tried_here() -> None:
    assert {harm.invariant for harm in HARMS} == {check.invariant for check in doctor.CHECKS}


def test_a_finding_says_whose_it_is_and_what_it_is_about(healthy: World, fresh_database_url: str) -> None:
    other = make_world(healthy.database, healthy.clock)
    run(fresh_database_url, "UPDATE departures SET seats_taken = seats_taken + 1")
    (departure,) = healthy.rows(tables.departures)
    (finding,) = healthy.examine()
    assert finding == doctor.Finding(
        "seats taken are the seats of pending and confirmed bookings",
        healthy.org,
        departure["id"],
        "seats_taken is 3, bookings hold 2",
    )
    assert other.examine() == []


@pytest.mark.parametrize("kept_from", [4, 8, 99])
def test_events_that_were_purged_are_not_missed(healthy: World, fresh_database_url: str, kept_from: int) -> None:
    run(fresh_database_url, f"DELETE FROM events WHERE sequence < {kept_from}")
    assert found(healthy) == set()


def test_answers_that_were_purged_are_not_missed(healthy: World, fresh_database_url: str) -> None:
    healthy.clock.advance(40 * DAY)
    departure = healthy.departure(healthy.experience())
    created(healthy.database, [create(healthy, departure, "after-the-purge")])
    run(fresh_database_url, f"DELETE FROM idempotency WHERE created_at < {NOON + DAY}")
    assert found(healthy) == set()
