"""A page of the feed costs the same at every place and with every filter."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import select
from support import rows
from support.databases import analyze, fill
from support.plans import Plan, explaining
from support.world import DAY, NOON, FixedClock, World, make_world

from booking_core.base import tokens
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
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


Ask = Callable[[Callable[[Tx], Any]], list[Plan]]


@pytest.fixture(scope="module")
def feed(backend: str, new_database_url: Callable[[str], str]) -> Iterator[tuple[World, Ask]]:
    """An organization with thousands of events over ninety days, and the function that explains statements."""
    url, clock, rng = new_database_url(backend), FixedClock(), random.Random(7)
    database = Database(url, clock=clock)
    world = make_world(database, clock)
    often = [EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, EventType.CUSTOMER_CREATED]

    def event(sequence: int) -> rows.Row:
        is_busy = sequence % 4 == 0 and sequence < BUSY_UNTIL
        kind = RARE.get(sequence) or (EventType.DEPARTURE_UPDATED if is_busy else rng.choice(often))
        about = {"type": kind.value, "resource_type": kind.resource_type.value, "body": f'{{"sequence":{sequence}}}'}
        if kind is EventType.DEPARTURE_UPDATED:
            about |= {"resource_id": BUSY, "occurrence": sequence}
        else:
            about |= {"resource_id": tokens.new_id(), "occurrence": 0}
        return rows.event(world.org, tokens.new_id(), sequence, NOON - 90 * DAY + sequence * STEP) | about

    fill(url, tables.events, map(event, range(1, MANY + 1)))
    analyze(url)
    with explaining(url) as ask:
        yield world, ask
    database.close()


EVERYTHING: tuple[Scope, ...] = ()
ONLY_READ = tuple(READ_SCOPES)
SINCE, UNTIL = {"created_since": NOON - 60 * DAY}, {"created_until": NOON - 30 * DAY}
LATELY = {"created_since": NOON - 29 * DAY}
"""A period without rare events and without events of the busy departure."""
RESOURCE = {"resource_id": "019ab5f2-0000-7000-8000-000000000000"}
OF_BUSY = {"resource_id": BUSY}
WORK = {"sqlite": 15_000, "postgresql": 200}
"""Several times the cost of a page of every readable type, and a fraction of the cost of reading the feed."""

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
    feed: tuple[World, Ask], scopes: tuple[Scope, ...], asked: dict[str, Any], order: Order, backend: str
) -> None:
    (world, ask), cursors = feed, [None]

    def find(tx: Tx) -> None:
        page = events.find(tx, world.caller(*scopes), PageRequest(order=order, starting_after=cursors[-1]), **asked)
        cursors.append(page["resume_cursor"])

    for _ in range(3):
        (plan,) = ask(find)
        assert 0 < plan.cost < WORK[backend], str(plan)
        assert not plan.scanned & {"events", "other"}, str(plan)


def test_reading_the_whole_feed_would_be_noticed(feed: tuple[World, Ask], backend: str) -> None:
    everything = Statement(select(tables.events).order_by(tables.events.c.body))
    (plan,) = feed[1](lambda tx: tx.all(everything))
    assert plan.cost > 2 * WORK[backend]
    assert "events" in plan.scanned
