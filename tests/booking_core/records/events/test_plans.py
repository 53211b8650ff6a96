"""A page of the feed costs the same wherever it lies and whatever it leaves out."""

import contextlib
import random
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from sqlalchemy import select, text
from sqlalchemy.engine import Dialect
from support.world import DAY, NOON, FixedClock, World, make_world

from booking_core.base import tokens
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Compiled, Statement
from booking_core.models.events import EventType, ResourceType
from booking_core.models.pages import Order
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.records import events

MANY = 24_000
RARE = {7_000: EventType.GIFT_CARD_ISSUED, 15_000: EventType.GIFT_CARD_ISSUED}
"""Two events of a type in a feed of thousands."""
STEP = 90 * DAY // MANY
BUSY = "019ab5f2-0000-7000-8000-00000000b057"
"""A departure that changes all the time: a fourth of the feed is about it, until a month ago."""
BUSY_UNTIL = MANY * 2 // 3


class WorkOf(Statement):
    """Asks PostgreSQL how it ran a statement, and what it read for it."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement

    def compiled(self, dialect: Dialect) -> Compiled:
        known = self._statement.compiled(dialect)
        return known._replace(text=f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {known.text}")


class Measured(Tx):
    """Also keeps what the statement that was run last cost: blocks read on PostgreSQL, steps taken by SQLite."""

    plan = ""
    work = 0

    def _run(self, statement: Statement, parameters: dict[str, Any]) -> Any:
        if self.dialect.name == "sqlite":
            self._measure_sqlite(statement.compiled(self.dialect), parameters)
        elif not isinstance(statement, WorkOf):
            ((((shown,),),),) = [self.all(WorkOf(statement), **parameters)]
            self.plan, root = orjson.dumps(shown).decode(), shown["Plan"]
            self.work = root["Shared Hit Blocks"] + root["Shared Read Blocks"]
        return super()._run(statement, parameters)

    def _measure_sqlite(self, compiled: Compiled, parameters: dict[str, Any]) -> None:
        given, self.work = compiled.constants | parameters, 0

        def step() -> None:
            self.work += 1

        with contextlib.closing(sqlite3.connect(str(self._database.url.database))) as connection:
            shown = connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", given).fetchall()
            self.plan = "\n".join(row[-1] for row in shown)
            connection.set_progress_handler(step, 1)
            connection.execute(compiled.text, given).fetchall()


@pytest.fixture(scope="module")
def feed(backend: str, new_database_url: Callable[[str], str]) -> Iterator[World]:
    """An organization with thousands of events over ninety days."""
    clock, rng = FixedClock(), random.Random(7)
    database = Database(new_database_url(backend), clock=clock)
    world = make_world(database, clock)
    often = [EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, EventType.CUSTOMER_CREATED]
    with database.writing() as tx:
        for sequence in range(1, MANY + 1):
            is_busy = sequence % 4 == 0 and sequence < BUSY_UNTIL
            kind = RARE.get(sequence) or (EventType.DEPARTURE_UPDATED if is_busy else rng.choice(often))
            tx.insert(
                tables.events,
                organization_id=world.org,
                sequence=sequence,
                id=tokens.new_id(),
                type=kind.value,
                resource_type=kind.resource_type.value,
                resource_id=BUSY if kind is EventType.DEPARTURE_UPDATED else tokens.new_id(),
                occurrence=sequence if kind is EventType.DEPARTURE_UPDATED else 0,
                body=f'{{"sequence":{sequence}}}',
                created_at=NOON - 90 * DAY + sequence * STEP,
            )
    if not database.is_sqlite:
        with database.reading() as tx:
            tx.run(Statement(text("ANALYZE events")))
    yield world
    database.close()


EVERYTHING: tuple[Scope, ...] = ()
ONLY_READ = tuple(READ_SCOPES)
SINCE, UNTIL = {"created_since": NOON - 60 * DAY}, {"created_until": NOON - 30 * DAY}
LATELY = {"created_since": NOON - 29 * DAY}
"""A period in which neither a rare event lies nor one of the busy departure."""
RESOURCE = {"resource_id": "019ab5f2-0000-7000-8000-000000000000"}
OF_BUSY = {"resource_id": BUSY}
WORK = {"sqlite": 15_000, "postgresql": 200}
"""Several times what a page of every readable type costs, and a fraction of what reading the feed does."""

ASKED: list[tuple[tuple[Scope, ...], dict[str, Any]]] = [
    *((scopes, bounds) for scopes in (EVERYTHING, ONLY_READ) for bounds in ({}, SINCE, UNTIL, SINCE | UNTIL)),
    (EVERYTHING, {"types": ["gift_card.issued"]}),
    (EVERYTHING, {"types": ["webhook.*", "gift_card.*"]}),
    (EVERYTHING, {"types": ["webhook.*", "gift_card.*"]} | SINCE),
    (EVERYTHING, RESOURCE),
    (ONLY_READ, RESOURCE),
    (EVERYTHING, RESOURCE | SINCE),
    (EVERYTHING, RESOURCE | SINCE | UNTIL | {"types": ["booking.*"]}),
    # Filters that never occur together.
    (EVERYTHING, {"types": ["gift_card.issued"]} | LATELY),
    (EVERYTHING, {"types": ["gift_card.issued", "departure.updated"]} | LATELY),
    (EVERYTHING, OF_BUSY | LATELY),
    (ONLY_READ, OF_BUSY | LATELY),
    (EVERYTHING, OF_BUSY | LATELY | {"types": ["departure.updated"]}),
    (EVERYTHING, OF_BUSY | {"types": ["booking.*", "gift_card.issued"]}),
    (EVERYTHING, OF_BUSY | {"resource_type": ResourceType.CUSTOMER}),
    (EVERYTHING, RESOURCE | {"types": ["departure.updated"]}),
    # A resource with as many events as the rest.
    (EVERYTHING, OF_BUSY),
    (EVERYTHING, OF_BUSY | SINCE),
    (EVERYTHING, OF_BUSY | SINCE | UNTIL),
    (EVERYTHING, OF_BUSY | {"types": ["departure.updated"]}),
]


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize(("scopes", "asked"), ASKED)
def test_a_page_reads_little_more_than_it_shows(
    feed: World, scopes: tuple[Scope, ...], asked: dict[str, Any], order: Order
) -> None:
    caller = feed.caller(*scopes)
    with feed.database.reading() as tx:
        measured, cursor = Measured(feed.database, tx._connection), None
        for _ in range(3):
            page = events.find(measured, caller, PageRequest(order=order, starting_after=cursor), **asked)
            cursor = page["resume_cursor"]
            assert 0 < measured.work < WORK[tx.dialect.name]
            for wasteful in ("Seq Scan", "SCAN events", "SCAN other"):
                assert wasteful not in measured.plan


def test_reading_the_whole_feed_would_be_noticed(feed: World) -> None:
    everything = Statement(select(tables.events).order_by(tables.events.c.body))
    with feed.database.reading() as tx:
        measured = Measured(feed.database, tx._connection)
        measured.all(everything)
        assert measured.work > 2 * WORK[tx.dialect.name]
        assert "Seq Scan" in measured.plan or "SCAN events" in measured.plan
