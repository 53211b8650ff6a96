"""A transaction collects its writes, sends them together, and can drop the writes of a refused part."""

import re
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import bindparam, func, select
from support.world.world import World

from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import POSTGRESQL, Statement
from booking_core.db.unit_of_work import Update, as_one_statement
from booking_core.records import idempotency
from booking_core.records.idempotency import Answer, Once

BUMP = Update("bump", tables.counters, adds=("last_booking_number",))
BUMP_EVENTS = Update("bump_events", tables.counters, adds=("last_event_sequence",))
_ENTRIES = Statement(
    select(tables.timeline.c.kind).where(tables.timeline.c.organization_id == bindparam("o")).order_by("kind")
)
_ANYTHING = Statement(select(func.count()).select_from(tables.retention_clock))


def bump(tx: Tx, world: World, by: int = 1) -> None:
    tx.update(BUMP, organization_id=world.org, last_booking_number=by)


def note(tx: Tx, world: World, kind: str, **columns: object) -> None:
    row = {"id": tokens.new_id(), "customer_id": tokens.new_id(), "kind": kind, "data": "{}", "created_at": 1}
    tx.insert(tables.timeline, organization_id=world.org, **row | columns)


def counters(world: World) -> tuple[int, ...]:
    (row,) = world.rows(tables.counters)
    return row["last_booking_number"], row["last_event_sequence"]


def entries(world: World) -> list[str]:
    return sorted(row["kind"] for row in world.rows(tables.timeline))


# Sending -----------------------------------------------------------------------------------------------------------


def test_collected_rows_are_sent_at_the_commit_together(world: World, statements: list[str]) -> None:
    with world.database.writing() as tx:
        note(tx, world, "one")
        note(tx, world, "two")
        bump(tx, world)
        assert statements == []
    assert len(statements) == (2 if world.database.is_sqlite else 1)
    assert (entries(world), counters(world)) == (["one", "two"], (1, 0))


def test_a_read_sees_the_rows_collected_before_it(world: World) -> None:
    with world.database.writing() as tx:
        note(tx, world, "one")
        assert [row[0] for row in tx.all(_ENTRIES, o=world.org)] == ["one"]


def test_a_statement_without_autoflush_leaves_the_rows_collected(world: World, statements: list[str]) -> None:
    with world.database.writing() as tx:
        note(tx, world, "one")
        with tx.no_autoflush():
            assert tx.all(_ENTRIES, o=world.org) == []
        assert len(statements) == 1
        assert len(tx.all(_ENTRIES, o=world.org)) == 1


def test_tables_are_sent_before_those_that_refer_to_them(world: World) -> None:
    """SQLite checks a foreign key with each row."""
    endpoint = tokens.new_id()
    row = {"url": "https://x.org", "status": "enabled", "enabled_at": 1, "created_at": 1, "updated_at": 1}
    with world.database.writing() as tx:
        keys = {"organization_id": world.org, "endpoint_id": endpoint}
        tx.insert(tables.webhook_subscriptions, **keys, event_type="customer.created", from_sequence=0)
        tx.insert(tables.webhook_endpoints, organization_id=world.org, id=endpoint, **row)
    assert len(world.rows(tables.webhook_subscriptions)) == 1


def test_rows_of_one_table_may_name_other_columns(world: World) -> None:
    with world.database.writing() as tx:
        note(tx, world, "one")
        note(tx, world, "two", booking_id=tokens.new_id())
    assert entries(world) == ["one", "two"]


def test_a_row_that_is_updated_twice_gets_both_updates(world: World) -> None:
    with world.database.writing() as tx:
        bump(tx, world)
        bump(tx, world, 2)
        tx.update(BUMP_EVENTS, organization_id=world.org, last_event_sequence=5)
    assert counters(world) == (3, 5)


@pytest.mark.usefixtures("postgresql_only")
def test_a_transaction_that_is_run_again_begins_with_nothing_collected(world: World) -> None:
    runs = []

    def work(tx: Tx) -> None:
        bump(tx, world)
        runs.append(1)
        if len(runs) < 3:
            raise psycopg.errors.SerializationFailure

    world.database.write(work)
    assert len(runs) == 3
    assert counters(world) == (1, 0)


def test_a_read_only_connection_refuses_to_collect(world: World) -> None:
    with world.database.reading() as tx:
        for write in (lambda: note(tx, world, "one"), lambda: bump(tx, world)):
            with pytest.raises(RuntimeError, match="read-only"):
                write()


# Discarding --------------------------------------------------------------------------------------------------------


def refused(tx: Tx, act: Callable[[], object]) -> None:
    def work() -> None:
        with tx.discard_on_error():
            act()
            raise NotFound

    with pytest.raises(NotFound):
        work()


def test_a_refusal_drops_what_was_collected_inside_and_nothing_else(world: World) -> None:
    with world.database.writing() as tx:
        note(tx, world, "before")
        refused(tx, lambda: (note(tx, world, "refused"), bump(tx, world, 100)))
        bump(tx, world)
        note(tx, world, "later")
    assert (entries(world), counters(world)) == (["before", "later"], (1, 0))


def test_work_that_is_not_refused_is_kept(world: World) -> None:
    with world.database.writing() as tx:
        with tx.discard_on_error():
            note(tx, world, "kept")
        refused(tx, lambda: note(tx, world, "refused"))
    assert entries(world) == ["kept"]


def test_rows_from_before_may_be_sent_inside(world: World) -> None:
    def read_and_collect(tx: Tx) -> None:
        tx.all(_ANYTHING)
        note(tx, world, "refused")

    with world.database.writing() as tx:
        note(tx, world, "before")
        refused(tx, lambda: read_and_collect(tx))
    assert entries(world) == ["before"]


def test_an_inner_refusal_keeps_the_rows_of_the_outer_work(world: World) -> None:
    with world.database.writing() as tx:
        with tx.discard_on_error():
            note(tx, world, "outer")
            refused(tx, lambda: note(tx, world, "inner"))
        assert len(tx.all(_ENTRIES, o=world.org)) == 1
    assert entries(world) == ["outer"]


def test_a_refusal_after_its_rows_were_sent_is_a_programming_error(world: World) -> None:
    def work(tx: Tx) -> None:
        with tx.discard_on_error():
            note(tx, world, "sent")
            tx.all(_ANYTHING)
            raise NotFound

    with pytest.raises(RuntimeError, match="sent before they were refused"):
        world.database.write(work)
    assert entries(world) == []


def test_a_stored_refusal_writes_its_answer_alone(world: World) -> None:
    actor = Actor(installation=world.installation, organization=world.organization, at=world.clock())
    refusal = Answer(409, b"{}")

    def work(tx: Tx) -> Answer:
        note(tx, world, "before")

        def act() -> Answer:
            note(tx, world, "refused")
            raise Conflict("some_reason", "It is refused.")

        return idempotency.execute(tx, actor, Once("a-key-of-a-test", "f"), act, lambda _: refusal)

    assert world.database.write(work) == refusal
    assert entries(world) == ["before"]
    assert [row["status"] for row in world.rows(tables.idempotency)] == [409]


# Savepoints --------------------------------------------------------------------------------------------------------


def test_a_savepoint_that_fails_drops_its_rows_alone(world: World) -> None:
    def fail(tx: Tx) -> None:
        bump(tx, world, 100)
        note(tx, world, "refused")
        raise NotFound

    with world.database.writing() as tx:
        note(tx, world, "before")
        with pytest.raises(NotFound):
            tx.in_savepoint(fail)
        bump(tx, world)
    assert (entries(world), counters(world)) == (["before"], (1, 0))


def test_a_savepoint_sends_its_rows_before_it_is_released(world: World, statements: list[str]) -> None:
    with world.database.writing() as tx:
        bump(tx, world)
        tx.in_savepoint(lambda tx: note(tx, world, "inside"))
        assert len(statements) == 2
    assert (entries(world), counters(world)) == (["inside"], (1, 0))


def test_a_table_is_written_after_the_tables_that_it_refers_to() -> None:
    """Citus checks the foreign keys of each part of a statement when the part ends."""
    written = [tables.gift_card_entries, BUMP, tables.timeline, tables.bookings, tables.gift_cards, tables.customers]
    text = as_one_statement(tuple((table, ("organization_id",)) for table in written)).compiled(POSTGRESQL).text
    order = re.findall(r"(?:INSERT INTO|UPDATE) (\w+)", text)
    first = ["customers", "bookings", "gift_cards", "gift_card_entries"]
    assert [table for table in order if table in first] == first
    assert order.index("gift_card_entries") < order.index("counters") < order.index("timeline")
