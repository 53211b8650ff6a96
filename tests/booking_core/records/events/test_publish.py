"""Events are numbered densely, rendered once, and bring a delivery for each endpoint that asked for them."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson
import pytest
from sqlalchemy import Table, bindparam, select, text
from support.hooks import Hooks, follow, queue_rows
from support.plans import plan_of
from support.threads import together
from support.world import FixedClock, World, make_world

from booking_core.base import tokens
from booking_core.base.errors import NotFound, Unavailable
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement, as_json
from booking_core.models.events import Envelope, EventType
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.records.events.publish import _LOCK_SEQUENCES

UUID_V8 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CARD = b'{"id":"c","balance":{"amount_minor":1,"currency":"NOK"}}'


def read(world: World, table: Table) -> list[dict[str, Any]]:
    """Return the organization's rows, in the order of their first key after it."""
    query = select(table).where(table.c.organization_id == bindparam("o", type_=tables.Id))
    found = world.database.read(lambda tx: tx.all(Statement(query.order_by(table.primary_key.columns[1])), o=world.org))
    return [dict(zip(table.c.keys(), row, strict=True)) for row in found]


def publish(world: World, *new_events: NewEvent) -> list[str]:
    def work(tx: Tx) -> list[str]:
        return events.publish(tx, world.organization, new_events, at=world.clock())

    return world.database.write(work)


def endpoint(world: World, *types: EventType, **columns: Any) -> str:
    now = world.clock()
    row = {"url": "https://example.com", "status": "enabled", "enabled_at": now, "created_at": now, "updated_at": now}
    endpoint_id = world.insert(tables.webhook_endpoints, **(row | columns))
    if "deleted_at" not in columns:
        follow(world, endpoint_id, *types, status=columns.get("status", "enabled"))
    return endpoint_id


def deliveries(world: World) -> list[dict[str, Any]]:
    """Return the deliveries as the API shows them, though no worker has seen them yet."""
    return Hooks(world).deliveries()


def redeemed(resource_id: str | None = None, **extra: Any) -> NewEvent:
    return NewEvent(EventType.GIFT_CARD_REDEEMED, resource_id or tokens.new_id(), CARD, extra)


# Numbers ---------------------------------------------------------------------------------------------------------


def test_numbers_go_on_where_they_stood(world: World) -> None:
    def lock(numbers: int, sequences: int) -> tuple[int, int]:
        return world.database.write(lambda tx: events.lock_sequences(tx, {world.org: (numbers, sequences)}))[world.org]

    assert lock(1, 3) == (0, 0)
    assert lock(0, 0) == (1, 3)
    assert lock(2, 1) == (1, 3)
    assert lock(0, 0) == (3, 4)


def test_many_organizations_are_numbered_by_one_statement(
    world: World, new_world: Callable[..., World], statements: list[str]
) -> None:
    others = [new_world() for _ in range(3)]
    statements.clear()
    wanted = {each.org: (1, i) for i, each in enumerate([world, *others])}
    before = world.database.write(lambda tx: events.lock_sequences(tx, wanted))
    assert before == dict.fromkeys(wanted, (0, 0))
    assert len(statements) == 1


def test_batches_that_meet_in_several_organizations_never_deadlock(
    world: World, new_world: Callable[..., World]
) -> None:
    organizations = [world.org, *(new_world().org for _ in range(3))]

    def work(order: list[str]) -> None:
        for _ in range(15):
            with world.database.writing() as tx:  # without the second try that would settle a deadlock
                events.lock_sequences(tx, dict.fromkeys(order, (1, 1)))

    orders = [organizations, organizations[::-1], organizations[2:] + organizations[:2], organizations[1:3]]
    together(*(partial(work, order) for order in orders))
    last = world.database.write(lambda tx: events.lock_sequences(tx, dict.fromkeys(organizations, (0, 0))))
    assert sorted(last.values()) == [(45, 45), (45, 45), (60, 60), (60, 60)]


# Events ----------------------------------------------------------------------------------------------------------


def test_an_envelope_is_what_the_wire_calls_one(world: World) -> None:
    card, booking = tokens.new_id(), tokens.new_id()
    amount = {"amount_minor": 500, "currency": "NOK"}
    (event_id,) = publish(world, redeemed(card, redeemed_amount=amount, booking_id=booking))
    (row,) = read(world, tables.events)
    envelope = orjson.loads(row["body"])
    assert Envelope.model_validate(envelope).to_json() == envelope
    assert list(envelope) == ["id", "type", "created_at", "api_version", "sequence", "data"]
    assert envelope == {
        "id": event_id,
        "type": "gift_card.redeemed",
        "created_at": "2026-11-21T13:00:00+01:00",
        "api_version": "2026-09-09",
        "sequence": 1,
        "data": {"object": orjson.loads(CARD), "redeemed_amount": amount, "booking_id": booking},
    }
    assert f'"object":{CARD.decode()}' in row["body"]
    assert (row["id"], row["resource_type"], row["resource_id"]) == (event_id, "gift_card", card)
    assert row["created_at"] == world.clock()


def test_events_of_one_transaction_follow_each_other(world: World) -> None:
    first = publish(world, redeemed(), redeemed())
    second = publish(world, redeemed())
    assert [(row["sequence"], row["id"]) for row in read(world, tables.events)] == list(enumerate(first + second, 1))


def test_a_resource_sees_some_types_once_and_others_often(world: World) -> None:
    booking = tokens.new_id()
    moved = NewEvent(EventType.BOOKING_RESCHEDULED, booking, b"{}")
    created = NewEvent(EventType.BOOKING_CREATED, booking, b"{}")
    publish(world, created, moved, moved)
    with pytest.raises((sqlite3.IntegrityError, Unavailable)):
        publish(world, created)
    assert [row["occurrence"] for row in read(world, tables.events)] == [0, 2, 3]


def test_what_is_not_committed_uses_no_number(world: World) -> None:
    def fail(tx: Tx) -> None:
        events.lock_sequences(tx, {world.org: (1, 1)})
        raise NotFound

    with pytest.raises(NotFound):
        world.database.write(fail)
    publish(world, redeemed())
    assert [row["sequence"] for row in read(world, tables.events)] == [1]


def test_numbering_and_writing_are_all_that_an_event_costs(world: World, statements: list[str]) -> None:
    publish(world, *(redeemed() for _ in range(20)))
    assert len(statements) == 2


# Deliveries ------------------------------------------------------------------------------------------------------


def test_each_endpoint_that_subscribed_gets_one_delivery(world: World, new_world: Callable[..., World]) -> None:
    other = new_world()
    endpoint(other, EventType.GIFT_CARD_REDEEMED)
    one = endpoint(world, EventType.GIFT_CARD_REDEEMED, EventType.BOOKING_CREATED)
    two = endpoint(world, EventType.GIFT_CARD_REDEEMED)
    endpoint(world, EventType.BOOKING_CREATED)
    card = tokens.new_id()
    first, second = publish(world, redeemed(card), redeemed(card))
    found = deliveries(world)
    pairs = {(row["event_id"], row["endpoint_id"]) for row in found}
    assert pairs == {(event, each) for event in (first, second) for each in (one, two)}
    assert len(found) == 4
    assert deliveries(other) == []
    now = world.clock()
    for row in found:
        assert row == row | {
            "event_type": "gift_card.redeemed",
            "event_sequence": 1 if row["event_id"] == first else 2,
            "status": "queued",
            "failure_reason": None,
            "trigger": "event",
            "attempt_count": 0,
            "max_attempts": 6,
            "next_attempt_at": now,
            "completed_at": None,
            "created_at": now,
            "updated_at": now,
        }


@pytest.mark.parametrize("status", ["disabled", "auto_disabled"])
def test_an_endpoint_that_is_off_gets_a_failed_delivery_to_recover_later(world: World, status: str) -> None:
    endpoint(world, EventType.GIFT_CARD_REDEEMED, status=status)
    publish(world, redeemed())
    (row,) = deliveries(world)
    assert (row["status"], row["failure_reason"]) == ("failed", "endpoint_disabled")
    assert (row["next_attempt_at"], row["completed_at"]) == (None, world.clock())


def test_a_deleted_endpoint_gets_nothing(world: World) -> None:
    endpoint(world, EventType.GIFT_CARD_REDEEMED, deleted_at=world.clock())
    publish(world, redeemed())
    assert deliveries(world) == []


def test_an_endpoint_is_never_sent_events_about_itself(world: World) -> None:
    failing = endpoint(world, EventType.WEBHOOK_AUTO_DISABLED)
    watching = endpoint(world, EventType.WEBHOOK_AUTO_DISABLED)
    publish(world, NewEvent(EventType.WEBHOOK_AUTO_DISABLED, failing, b"{}"))
    assert [row["endpoint_id"] for row in deliveries(world)] == [watching]


def test_a_ping_reaches_no_subscriber(world: World) -> None:
    endpoint(world, *(kind for kind in EventType if kind is not EventType.PING))
    publish(world, NewEvent(EventType.PING, None, b"{}"))
    assert deliveries(world) == []
    (row,) = read(world, tables.events)
    assert (row["resource_type"], row["resource_id"]) == ("webhook", None)


def test_deliveries_have_canonical_ids_before_they_have_rows(world: World) -> None:
    for _ in range(3):
        endpoint(world, EventType.GIFT_CARD_REDEEMED)
    publish(world, *(redeemed() for _ in range(100)))
    made = deliveries(world)
    queue_rows(world)
    assert {row["id"] for row in read(world, tables.deliveries)} == {row["id"] for row in made}
    assert len({row["id"] for row in made}) == 300
    assert all(UUID_V8.fullmatch(row["id"]) for row in made)
    # Events that were published together are close together in an index.
    assert all(row["id"][:13] == row["event_id"][:13] for row in made)


# Plans -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(fresh_database_url: str, clock: FixedClock) -> Iterator[World]:
    """An organization among thousands, each with two endpoints."""
    database = Database(fresh_database_url, clock=clock)
    world = make_world(database, clock)
    now = clock()
    settings = {name: getattr(world.organization, name) for name in world.organization.__slots__}
    others = [tokens.new_id() for _ in range(3_000)]
    with database.writing() as tx:
        for other in others:
            tx.insert(tables.organizations, **settings | {"id": other, "slug": other})
        for other in others:
            tx.insert(tables.counters, organization_id=other)
        at = {"enabled_at": now, "created_at": now, "updated_at": now}
        for organization_id in [world.org, *others, world.org, *others]:
            one, kind = tokens.new_id(), EventType.GIFT_CARD_REDEEMED.value
            own = {"organization_id": organization_id}
            tx.insert(tables.webhook_endpoints, **own, id=one, url="https://x.org", status="enabled", **at)
            tx.insert(tables.webhook_subscriptions, **own, endpoint_id=one, event_type=kind, from_sequence=0)
    if not database.is_sqlite:
        with database.writing() as tx:
            tx.run(Statement(text("ANALYZE")))
    yield world
    database.close()


def test_numbering_never_reads_the_rows_of_every_organization(crowd: World) -> None:
    numbers = {"organization_id": crowd.org, "last_booking_number": 1, "last_event_sequence": 2}
    with crowd.database.writing() as tx:
        shown = plan_of(tx, _LOCK_SEQUENCES, wanted=as_json([numbers]))
    assert "Seq Scan" not in shown
    assert re.findall(r"SCAN (counters|webhook_\w+)", shown) == []
