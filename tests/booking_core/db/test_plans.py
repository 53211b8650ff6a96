"""The cost of the frequent statements among 40,000 bookings: each finds its rows by an index, and page 1,000 costs no
more than page 1.

A cost is a number of pages read on PostgreSQL, and of steps of the virtual machine on SQLite. Bounds are several times
the need, and a fraction of the cost of reading a table.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from support.databases import due as due_rows
from support.databases.databases import analyze, connect, fill, is_sqlite, run
from support.databases.plans import Plan, explaining, plan_of
from support.world import rows
from support.world.creating import create
from support.world.world import DAY, NOON, FixedClock, World, make_world, organization_row

from booking_core import bookings, customers, payments
from booking_core.base import cursors, tokens
from booking_core.base.clock import SECOND
from booking_core.base.cursors import Binding
from booking_core.bookings import BookingConditions, BookingRequest, Search, reservations, storefront
from booking_core.bookings import store as bookings_store
from booking_core.bookings.by_guest import OFFERED_MAX
from booking_core.bookings.store.lists import LIST as BOOKINGS_LIST
from booking_core.bookings.store.lists import SLICE
from booking_core.catalogue import departures, experiences, holds
from booking_core.catalogue.experiences.service import LIST as EXPERIENCES_LIST
from booking_core.customers.store import LIST as CUSTOMERS_LIST
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.models.bookings import (
    BookingGuestChange,
    BookingOrder,
    BookingSource,
    BookingStatus,
    CancelReason,
    GuestInput,
    GuestLineInput,
    PaymentMode,
)
from booking_core.models.events import EventType, ResourceType
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.pages import Order
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.organizations import keys
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards.store import LIST as GIFT_CARDS_LIST
from booking_core.payments.gift_cards.store import TRANSACTIONS
from booking_core.records import events

with_bookings = pytest.mark.exhaustive(but="postgresql")
with_lists = pytest.mark.exhaustive(but="sqlite")
"""Each of the two databases takes seconds to fill, so `make test` fills one of them on each server."""
BOOKINGS, OTHERS = 40_000, 4_000
EXPERIENCES = 20
DEPARTURES_OF_EACH = 200
ORGANIZATIONS = 2_000
LISTED = 20_000
"""Customers, experiences and gift cards each in the database with long lists."""
RARE = 3
"""The rows among them that differ from the others."""
EVENTS = 24_000
LIMIT = 25
PAGE = 1_000
SHARED = "every tenth booking"
"""An external reference that many bookings share."""
UNKNOWN = "00000000-0000-4000-8000-000000000000"
OFTEN_USED = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
"""A card with 200 of 20,000 transactions."""
BUSY = "019ab5f2-0000-7000-8000-00000000b057"
"""A departure that changes all the time: a fourth of the feed is about it, until a month ago."""
ADULT = [GuestLineInput(tier_id="adult", count=1)]
STANDARD = [{"tier_id": "standard", "count": 1}]

LARGE = {
    *("bookings", "departures", "events", "customers", "timeline", "api_keys", "idempotency", "counters"),
    *("organizations", "holds"),
}
"""Tables that no request may read from one end to the other."""


@dataclass(frozen=True)
class Filled:
    """A database of a service that has been running for a while, and rows that requests name."""

    url: str
    plans_of: Callable[[Callable[[Tx], Any]], list[Plan]]
    world: World
    experience: str = ""
    """An experience of the 20, which has every twentieth booking."""
    key: str = ""

    def stored(self, table: str, count: int = 1, *, column: str = "id", where: str = "") -> list[str]:
        """Return a column of the first rows of the organization by id."""
        with connect(self.url) as connection:
            query = f"SELECT {column} FROM {table} WHERE organization_id = '{self.world.org}' {where} ORDER BY id"
            return [str(row[0]) for row in connection.execute(f"{query} LIMIT {count}").fetchall()]

    @property
    def booking(self) -> str:
        return self.stored("bookings")[0]

    @property
    def departure(self) -> str:
        return self.stored("departures")[0]

    def check(self, plans: list[Plan], cost: tuple[int, int] | None, index: str = "") -> None:
        """Check that no large table is read whole, that the statements cost less than that together on SQLite and on
        PostgreSQL, and that an index is used."""
        text = "\n".join(map(str, plans))
        assert plans
        assert not [plan for plan in plans if plan.scanned & LARGE], text
        if cost:
            assert sum(plan.cost for plan in plans) < cost[0 if is_sqlite(self.url) else 1], text
        assert not index or any(name.startswith(index) for plan in plans for name in plan.indexes), text


@pytest.fixture(scope="module")
def filled(backend: str, new_database_url: Callable[[str], str]) -> Iterator[Filled]:
    """A database with the bookings."""
    url = new_database_url(backend)
    with closing(Database(url)) as database:
        world, other = (make_world(database, FixedClock()) for _ in range(2))
        experience = fill_bookings(url, world, BOOKINGS)
        fill_bookings(url, other, OTHERS)
        fill_around(url, world, world.rows(tables.departures)[0]["id"])
        fill_timelines(url, world)
        key = world.key()
        analyze(url)
        with explaining(url, at=NOON) as plans_of:
            yield Filled(url, plans_of, world, experience, key)


@pytest.fixture(scope="module")
def listed(backend: str, new_database_url: Callable[[str], str]) -> Iterator[Filled]:
    """A database with the other long lists, and the feed: so many experiences would change the plans of bookings."""
    url = new_database_url(backend)
    with closing(Database(url)) as database:
        world = make_world(database, FixedClock())
        fill_lists(url, world.org)
        fill_feed(url, world.org)
        analyze(url)
        with explaining(url, at=NOON) as plans_of:
            yield Filled(url, plans_of, world)


def fill_bookings(url: str, world: World, count: int) -> str:
    """Bookings over a year, of 20 experiences, one in a hundred pending; the id of one experience."""
    ids = rows.ids(hash(world.org))
    tours = [rows.experience(world.org, next(ids), NOON) for _ in range(EXPERIENCES)]
    fill(url, tables.experiences, tours)
    leaving = list(rows.departures(world.org, [tour["id"] for tour in tours], NOON + DAY, DEPARTURES_OF_EACH))
    leaving = [departure | {"seats_taken": count // len(leaving)} for departure in leaving]
    fill(url, tables.departures, leaving)

    def one(number: int) -> rows.Row:
        leaves = leaving[number * 7 % len(leaving)]
        at = NOON + number * (365 * DAY // count)
        columns = {
            "status": "pending" if number % 100 == 0 else "confirmed",
            "booking_number": number + 1,
            "external_reference": {0: f"A-{number}", 5: SHARED}.get(number % 10),
        }
        return rows.booking(world.org, next(ids), leaves["id"], leaves["experience_id"], at, **columns)

    fill(url, tables.bookings, map(one, range(count)))
    run(url, f"UPDATE counters SET last_booking_number = {count} WHERE organization_id = '{world.org}'")
    return str(tours[3]["id"])


def fill_around(url: str, world: World, departure_id: str) -> None:
    """Customers, answers and holds of the organization, and many organizations beside it with their keys."""
    ids = rows.ids(2)
    fill(url, tables.customers, (rows.customer(world.org, next(ids), NOON + n) for n in range(5_000)))
    answer = {"organization_id": world.org, "fingerprint": "f" * 64, "status": 201, "body_sealed": "s" * 1_500}
    fill(url, tables.idempotency, (answer | {"key": f"old-{n}", "created_at": NOON} for n in range(5_000)))
    ended = {"organization_id": world.org, "seats": 1, "departure_id": departure_id}
    times = ({"id": next(ids), "created_at": NOON - n, "expires_at": NOON - n} for n in range(10_000))
    fill(url, tables.holds, (ended | time for time in times))
    beside = [organization_row(NOON, id=next(ids)) for _ in range(ORGANIZATIONS)]
    fill(url, tables.organizations, beside)
    fill(url, tables.counters, ({"organization_id": row["id"]} for row in beside))
    key = {"name": "key", "prefix": "svc_00000000", "scopes": "[]", "created_at": NOON}
    fill(
        url,
        tables.api_keys,
        (
            key | {"organization_id": row["id"], "id": row["id"], "key_hash": tokens.sha256_hex(row["id"].encode())}
            for row in beside
        ),
    )


def fill_timelines(url: str, world: World) -> None:
    """Gives each customer 20 of the bookings, with two entries of their timeline each."""
    with connect(url) as connection:
        of_world = f"WHERE organization_id = '{world.org}' ORDER BY id"
        booked = [str(row[0]) for row in connection.execute(f"SELECT id FROM bookings {of_world}").fetchall()]
        whose = [str(row[0]) for row in connection.execute(f"SELECT id FROM customers {of_world}").fetchall()]
    ids = rows.ids(3)

    def entry(number: int) -> rows.Row:
        about = {"customer_id": whose[number // 2 // 20 % len(whose)], "booking_id": booked[number // 2]}
        kind = ("booking_created", "booking_confirmed")[number % 2]
        entered = {"organization_id": world.org, "created_at": NOON + number, "id": next(ids), "data": "{}"}
        return entered | about | {"kind": kind}

    fill(url, tables.timeline, map(entry, range(2 * len(booked))))


def fill_lists(url: str, org: str) -> None:
    """Customers, experiences and cards; a few differ from the others, in the middle of their lists."""
    ids, start = rows.ids(9), NOON - LISTED

    def changed(number: int) -> int:
        return NOON if LISTED // 2 <= number < LISTED // 2 + RARE else NOON - DAY

    def card_of(row_id: str, at: int, number: int) -> rows.Row:
        """Return a card: used up, except for a few of every other kind."""
        kinds: dict[int, dict[str, Any]] = {
            0: {"balance_minor": 100},
            1: {"balance_minor": 100, "expires_at": NOON + 36_500 * DAY},
            2: {"deactivated_at": NOON},
        }
        plain = {"initial_minor": 100, "balance_minor": 0, "expires_at": None, "deactivated_at": None}
        return (
            rows.gift_card(org, row_id, at)
            | plain
            | {"updated_at": changed(number)}
            | kinds.get(number - LISTED // 2, {})
        )

    fill(url, tables.customers, (rows.customer(org, next(ids), start + n) for n in range(LISTED)))
    tours = (
        rows.experience(org, next(ids), start + n) | {"is_published": n >= RARE, "updated_at": changed(n)}
        for n in range(LISTED)
    )
    fill(url, tables.experiences, tours)
    cards = [card_of(next(ids), start + n, n) for n in range(LISTED)]
    fill(url, tables.gift_cards, [*cards, card_of(OFTEN_USED, NOON - DAY, 0)])
    spent = {"organization_id": org, "booking_id": None, "kind": "adjust", "amount_minor": -1, "balance_minor": 0}
    entries = (
        spent | {"id": next(ids), "created_at": start + n, "gift_card_id": OFTEN_USED if n % 100 == 0 else card["id"]}
        for n, card in enumerate(cards)
    )
    fill(url, tables.gift_card_entries, entries)


def fill_feed(url: str, org: str) -> None:
    """Events of ninety days, two of them of a rare type."""
    rng, step = random.Random(7), 90 * DAY // EVENTS
    often = [EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, EventType.CUSTOMER_CREATED]

    def event(sequence: int) -> rows.Row:
        is_busy = sequence % 4 == 0 and sequence < EVENTS * 2 // 3
        kind = EventType.DEPARTURE_UPDATED if is_busy else rng.choice(often)
        if sequence in (7_000, 15_000):
            kind, is_busy = EventType.GIFT_CARD_ISSUED, False
        about = {"type": kind.value, "resource_type": kind.resource_type.value, "body": f'{{"sequence":{sequence}}}'}
        about |= {"resource_id": BUSY if is_busy else tokens.new_id(), "occurrence": sequence if is_busy else 0}
        return rows.event(org, tokens.new_id(), sequence, NOON - 90 * DAY + sequence * step) | about

    fill(url, tables.events, map(event, range(1, EVENTS + 1)))
    run(url, f"UPDATE counters SET last_event_sequence = {EVENTS} WHERE organization_id = '{org}'")


# Requests --------------------------------------------------------------------------------------------------------

Call = Callable[[Tx, Filled], object]
DAYS = {"date_from": date(2027, 1, 1), "date_to": date(2027, 1, 7)}
ONE_DAY = {"date_from": date(2027, 1, 1), "date_to": date(2027, 1, 1)}
PARTY = bookings.Party(guests=ADULT)
GUEST = BookingGuestChange(name="Grace", email="grace@example.com")


def request(verb: Callable[..., object], *names: str, **options: Any) -> Call:
    """Return a call of a function of the core with rows of the organization."""
    return lambda tx, filled: verb(tx, filled.world.caller(), *(getattr(filled, name) for name in names), **options)


def quote(tx: Tx, filled: Filled) -> object:
    unique = {"external_reference": "A-70", "external_reference_unique": True}
    order = BookingOrder(departure_id=filled.departure, guests=ADULT, hold_id=UNKNOWN, **unique)
    return bookings.quote(tx, filled.world.caller(), order)


def offered(tx: Tx, filled: Filled) -> object:
    window = {"at": NOON, "before": NOON + 92 * DAY, "limit": OFFERED_MAX}
    return bookings_store.find_offered(tx, filled.world.org, filled.experience, **window)


def book(tx: Tx, filled: Filled) -> object:
    guest = GuestInput(name="A guest", email="staff@example.com")
    how = {"source": BookingSource.ADMIN, "payment": PaymentMode.INVOICE}
    guests = [GuestLineInput(tier_id="standard", count=1)]
    order = BookingRequest(departure_id=filled.departure, guests=guests, customer=guest, **how)
    return bookings.create(tx, filled.world.caller(), order)


def book_batch(count: int) -> Call:
    def work(tx: Tx, filled: Filled) -> object:
        guests = [{"name": "A guest", "email": f"new{number}@example.com"} for number in range(count)]
        leaving = enumerate(filled.stored("departures", count))
        creates = [
            create(filled.world, departure, f"plan-key-{n}", guests=STANDARD, customer=guests[n])
            for n, departure in leaving
        ]
        return bookings.create_many(tx, creates)

    return work


def move(verb: Callable[..., object]) -> Call:
    return lambda tx, filled: verb(tx, filled.world.caller(), filled.booking, filled.stored("departures", 2)[1])


def report(tx: Tx, filled: Filled) -> object:
    caller = filled.world.caller()
    today = caller.organization.zone.wall(caller.at).date()
    around = {"date_from": today - timedelta(days=3), "date_to": today + timedelta(days=3)}
    return bookings.get_report(tx, caller, **around)


def identify(count: int) -> Call:
    texts = [tokens.new_api_key() for _ in range(count - 1)]
    return lambda tx, filled: keys.identify_many(tx, [filled.key, *texts], filled.world.installation)


def start_of(tx: Tx, filled: Filled) -> object:
    return departures.find_between(tx, filled.world.caller(), NOON, NOON, experience_id=filled.experience)


def reserved(tx: Tx, filled: Filled) -> object:
    return reservations.of_bookings(tx, filled.world.caller(), [filled.booking])


def held_by_others(tx: Tx, filled: Filled) -> object:
    return holds.seats_held_by_others(tx, filled.world.org, filled.departure, own_ids=[UNKNOWN], at=NOON)


REQUESTS: dict[str, tuple[Call, tuple[int, int] | None, str]] = {
    "get": (request(bookings.get, "booking"), (5_000, 15), ""),
    "number": (lambda tx, f: bookings.resolve_id(tx, f.world.organization, str(BOOKINGS // 2)), (5_000, 10), ""),
    "availability": (request(departures.find_available, **DAYS), (400_000, 400), ""),
    "availability of one": (
        lambda tx, f: departures.find_available(tx, f.world.caller(), experience_id=f.experience, **DAYS),
        (400_000, 400),
        "",
    ),
    "departures": (request(bookings.find_departures, **ONE_DAY), (400_000, 1_500), ""),
    "manifest": (request(bookings.manifest, "departure"), (100_000, 400), ""),
    "report": (report, None, ""),
    "quote": (quote, (51_000, 150), "ix_bookings_external_reference"),
    "departures to move to": (offered, (17_000, 600), ""),
    "create": (book, None, ""),
    "create a batch of 1": (book_batch(1), None, ""),
    "create a batch of 32": (book_batch(32), None, ""),
    "cancel": (request(bookings.cancel, "booking", reason=CancelReason.API), None, ""),
    "preview of a move": (move(bookings.preview_reschedule), None, ""),
    "move": (move(bookings.reschedule), None, ""),
    "guest": (request(bookings.change_guest, "booking", change=GUEST), None, ""),
    "preview of a party": (request(bookings.preview_party, "booking", party=PARTY), None, ""),
    "party": (request(bookings.change_party, "booking", party=PARTY), None, ""),
    "departure by its start": (start_of, (5_000, 60), ""),
    "reservation": (request(reservations.find, "booking"), (5_000, 15), ""),
    "reservations of bookings": (reserved, (5_000, 60), ""),
    "number of a refund": (request(payments.next_refund_number, "booking"), None, ""),
    "redemption": (request(gift_cards.lock_redemption, "booking"), None, ""),
    "cancel a departure": (request(bookings.cancel_departure_batch, "departure"), None, ""),
    "one key": (identify(1), (1_000, 20), ""),
    "32 keys": (identify(32), (20_000, 175), ""),
    "closed departures": (
        lambda tx, filled: bookings.CLOSED.find(tx, filled.world.org, after=None, limit=1),
        None,
        "",
    ),
    "organizations with closed departures": (lambda tx, _: due_rows.organizations(tx, bookings.CLOSED), None, ""),
    "expiring keys": (lambda tx, _: due_rows.organizations(tx, keys.EXPIRING), None, "ix_api_keys_unwarned"),
    "holds of others": (held_by_others, None, "ix_holds_organization_id_departure_id_expires_at"),
    "live holds": (
        lambda tx, filled: holds.count_live(tx, filled.world.org, NOON + DAY),
        None,
        "ix_holds_organization_id_created_at",
    ),
}
"""Requests and work of the worker, with their highest cost (on SQLite, on PostgreSQL) where it is bounded, and an
index. Their writes are explained, too."""


@with_bookings
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_looks_up_its_own_rows(filled: Filled, name: str) -> None:
    call, cost, index = REQUESTS[name]
    filled.check(filled.plans_of(lambda tx: call(tx, filled)), cost, index)


@with_bookings
@pytest.mark.parametrize(
    ("table", "find"),
    [("departures", departures.organizations_of), ("bookings", bookings.organization_of)],
    ids=["departure", "booking"],
)
def test_the_owner_of_a_row_is_found_without_a_scan(filled: Filled, table: str, find: Callable[..., object]) -> None:
    (plan,) = filled.plans_of(lambda tx: find(tx, filled.stored(table)[0]))
    assert table not in plan.scanned, str(plan)


@with_bookings
def test_old_holds_are_found_by_an_index_of_their_creation(filled: Filled) -> None:
    with closing(Database(filled.url)) as database, database.writing() as tx:
        bounds = {"before": NOON - 9_990, "ended_before": NOON, "limit": 2_000}
        plan = plan_of(tx, storefront._PURGE, organization_id=filled.world.org, **bounds)
    assert "ix_holds_organization_id_created_at" in plan
    assert "Seq Scan" not in plan


@with_bookings
def test_availability_reads_no_holds_that_have_ended(filled: Filled) -> None:
    plans = filled.plans_of(lambda tx: departures.find_available(tx, filled.world.caller(), **DAYS))
    assert not [plan for plan in plans if "ix_holds_organization_id_created_at" in plan.indexes], plans


@with_bookings
@pytest.mark.parametrize("due", [False, True], ids=["nothing is due", "some are due"])
def test_a_sweep_that_runs_every_second_looks_only_at_what_is_due(
    filled: Filled, due: bool, fresh_database_url: str
) -> None:
    if due:
        ids = "', '".join(filled.stored("bookings", 20, where="AND status = 'pending'"))
        run(filled.url, f"UPDATE bookings SET expires_at = {NOON} WHERE id IN ('{ids}')")

    def sweep(tx: Tx) -> None:
        act = lambda tx, owner, ids: bookings.abandon(tx, filled.world.installation, owner, ids)  # noqa: E731
        for owner in due_rows.organizations(tx, bookings.EXPIRED):
            due_rows.process(tx, owner, bookings.EXPIRED, act)

    plans = filled.plans_of(sweep)
    filled.check(plans, None, "ix_bookings_pending_expires_at")
    assert (len(plans) > 3) == due
    (plan,) = filled.plans_of(lambda tx: due_rows.organizations(tx, bookings.CANCELLING))
    assert "ix_departures_cancelling" in plan.indexes  # SQLite calls it a scan; there is nothing in it
    with explaining(fresh_database_url) as plans_of:
        (in_empty_tables,) = plans_of(lambda tx: due_rows.organizations(tx, bookings.CANCELLING))
    assert plan.cost <= in_empty_tables.cost + 3, str(plan)  # pages of the index, in PostgreSQL


# Lists -----------------------------------------------------------------------------------------------------------

MATCHED_BY_MANY: dict[str | None, int] = {
    None: PAGE,
    "status": PAGE,
    "experience_id": 60,
    "updated_since": PAGE,
    "external_reference": 120,
}
"""Filters that many bookings match, with a page far along. They come before the filters that few match: PostgreSQL
would keep other plans for those."""


def filters_of(filled: Filled, name: str | None) -> dict[str, Any]:
    many = {"status": BookingStatus.CONFIRMED, "experience_id": filled.experience}
    many |= {"updated_since": NOON, "external_reference": SHARED}
    return {name: many[name]} if name else {}


def cursor_of(filled: Filled, order: Order, filters: dict[str, Any], page: int) -> str:
    """Return the cursor of that page."""
    direction = "ASC" if order is Order.ASC else "DESC"
    where = "".join(f" AND {name} = '{value}'" for name, value in filters.items() if name != "updated_since")
    with connect(filled.url) as connection:
        created_at, row_id = connection.execute(
            f"SELECT created_at, id FROM bookings WHERE organization_id = '{filled.world.org}'{where}"
            f" ORDER BY created_at {direction}, id {direction} LIMIT 1 OFFSET {(page - 1) * LIMIT - 1}"
        ).fetchone()
    binding = Binding(filled.world.org, "bookings", order, tuple(sorted(filters.items())))
    return cursors.encode_row(filled.world.caller().secret_keys, binding, created_at, str(row_id))


@with_bookings
@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("name", MATCHED_BY_MANY)
def test_a_page_far_along_costs_what_the_first_one_costs(filled: Filled, name: str | None, order: Order) -> None:
    filters = filters_of(filled, name)

    def plan(start: str | None = None) -> Plan:
        caller, page = filled.world.caller(), PageRequest(LIMIT, order, start)
        (plan,) = filled.plans_of(lambda tx: bookings.find(tx, caller, page, BookingConditions(**filters)))
        return plan

    plan()  # the first statement of a connection reads the schema too
    first, later = plan(), plan(cursor_of(filled, order, filters, MATCHED_BY_MANY[name]))
    index = "ix_bookings_external_reference" if name == "external_reference" else "ix_bookings_organization_id_"
    for page in (first, later):
        # PostgreSQL joins the twenty experiences in one of two ways: 120 pages, or 136.
        filled.check([page], (18_000, 160), index)
    assert (first.rows, later.rows) == (LIMIT + 1, LIMIT + 1)
    assert later.cost <= first.cost * 1.1 + 5, f"{first}\n{later}"


@with_bookings
@pytest.mark.parametrize("order", list(Order))
def test_a_plan_that_few_matches_have_settled_serves_many(filled: Filled, order: Order) -> None:
    caller, page = filled.world.caller(), PageRequest(LIMIT, order)
    rare, frequent = NOON + 365 * DAY - 600 * SECOND, NOON
    with explaining(filled.url, at=NOON) as plans_of:  # a connection without other plans
        plans_of(lambda tx: bookings.find(tx, caller, page, BookingConditions(updated_since=rare)))
        plans = plans_of(lambda tx: bookings.find(tx, caller, page, BookingConditions(updated_since=frequent)))
    filled.check(plans, (60_000, 400))
    assert plans[-1].rows == LIMIT + 1


Find = Callable[[Tx, Filled, PageRequest], Any]
CHEAP, SORTED = (18_000, 120), (50_000, 3_500)
OTHER_LIST = (30_000, 400)
JANUARY = {"departure_from": date(2030, 1, 1), "departure_to": date(2030, 1, 31)}
AT_NOON = {"updated_since": NOON - 1}


def of_bookings(**filters: Any) -> Find:
    return lambda tx, filled, page: bookings.find(tx, filled.world.caller(), page, BookingConditions(**filters))


def of_customer(name: str, column: str) -> Find:
    """Return a list of the bookings of a customer, who has 20 of them."""

    def find(tx: Tx, filled: Filled, page: PageRequest) -> object:
        value = filled.stored("customers", column=column)[0].upper()
        filters = BookingConditions(**{name: value if name == "email" else value.lower()})
        return bookings.find(tx, filled.world.caller(), page, filters)

    return find


def of_days(count: int) -> Find:
    """Return a list of the bookings of days: 500 a day."""
    first = date(2027, 1, 1)
    return of_bookings(departure_from=first, departure_to=first + timedelta(days=count - 1))


def search(name: str, value: Callable[[Filled], Any], **filters: Any) -> Find:
    return lambda tx, filled, page: bookings.search(
        tx, filled.world.caller(), page, Search(**{name: value(filled)}, **filters)
    )


def of_cards(**filters: Any) -> Find:
    return lambda tx, filled, page: gift_cards.find(tx, filled.world.caller(), page, **filters)


def of_experiences(**filters: Any) -> Find:
    return lambda tx, filled, page: experiences.find(tx, filled.world.caller(), page, **filters)


def of_customers(email: str | None = None) -> Find:
    return lambda tx, filled, page: customers.find(tx, filled.world.caller(), page, email=email)


def of_transactions(tx: Tx, filled: Filled, page: PageRequest) -> object:
    return gift_cards.find_transactions(tx, filled.world.caller(), page, OFTEN_USED)


FILTERS: dict[str, tuple[Find, tuple[int, int], int]] = {
    "bookings, status": (of_bookings(status=BookingStatus.CANCELLED), CHEAP, 0),
    "bookings, experience_id": (of_bookings(experience_id=UNKNOWN), CHEAP, 0),
    "bookings, updated_since": (of_bookings(updated_since=NOON + 365 * DAY - 600 * SECOND), CHEAP, 1),
    "bookings, window": (of_bookings(**JANUARY), CHEAP, 0),
    "bookings, window and status": (of_bookings(**JANUARY, status=BookingStatus.CONFIRMED), CHEAP, 0),
    "bookings, departure_id": (of_bookings(departure_id=UNKNOWN), CHEAP, 0),
    "bookings, customer_id": (of_bookings(customer_id=UNKNOWN), CHEAP, 0),
    "bookings, number": (of_bookings(number=BOOKINGS + 1), CHEAP, 0),
    "bookings, number and status": (of_bookings(number=7, status=BookingStatus.CANCELLED), CHEAP, 0),
    "bookings, unknown reference": (of_bookings(external_reference="unknown"), CHEAP, 0),
    "bookings, external_reference": (of_bookings(external_reference="A-70"), CHEAP, 1),
    "bookings, reference and status": (
        of_bookings(external_reference="A-70", status=BookingStatus.CANCELLED),
        CHEAP,
        0,
    ),
    "bookings, email_key": (of_bookings(email="nobody@example.com"), CHEAP, 0),
    "bookings, email and departure": (of_bookings(email="nobody@example.com", departure_id=UNKNOWN), CHEAP, 0),
    "bookings, id of a known customer": (of_customer("customer_id", "id"), (150_000, 350), 20),
    "bookings, address of a known customer": (of_customer("email", "email"), (150_000, 350), 20),
    # The bookings of a day are sorted; of 92 days, a walk soon meets a page of them.
    "bookings, a day": (of_days(1), SORTED, 26),
    "bookings, 92 days": (of_days(92), SORTED, 26),
    "search, number": (search("number", lambda _: BOOKINGS // 2), (12_000, 350), 1),
    "search, email": (search("email", lambda f: f.stored("customers", column="email")[0]), (12_000, 350), 20),
    "search, departure": (search("departure_id", lambda filled: filled.departure), (12_000, 350), 10),
    "search, departure and status": (
        search("departure_id", lambda filled: filled.departure, status=BookingStatus.CONFIRMED),
        (12_000, 350),
        10,
    ),
    "customers, all": (of_customers(), OTHER_LIST, 26),
    "customers, email_key": (of_customers("nobody@example.com"), OTHER_LIST, 0),
    "experiences, all": (of_experiences(), OTHER_LIST, 26),
    "experiences, published": (of_experiences(published=False), OTHER_LIST, RARE),
    "experiences, updated_since": (of_experiences(**AT_NOON), OTHER_LIST, RARE),
    "experiences, unpublished, updated since": (of_experiences(published=False, **AT_NOON), OTHER_LIST, 0),
    "experiences, published, updated since": (of_experiences(published=True, **AT_NOON), OTHER_LIST, RARE),
    "gift cards, all": (of_cards(), OTHER_LIST, 26),
    "gift cards, active": (of_cards(status=GiftCardStatus.ACTIVE), OTHER_LIST, 2),
    "gift cards, expired": (of_cards(status=GiftCardStatus.EXPIRED), OTHER_LIST, 26),
    "gift cards, inactive": (of_cards(status=GiftCardStatus.INACTIVE), OTHER_LIST, 1),
    "gift cards, updated_since": (of_cards(**AT_NOON), OTHER_LIST, RARE),
    "gift cards, active, updated since": (of_cards(status=GiftCardStatus.ACTIVE, **AT_NOON), OTHER_LIST, 2),
    "gift cards, inactive, updated since": (of_cards(status=GiftCardStatus.INACTIVE, **AT_NOON), OTHER_LIST, 1),
    "transactions, gift_card_id": (of_transactions, OTHER_LIST, 26),
}
"""Pages with filters, their highest cost, and the rows of the last statement: one more than a full page shows."""


OF_BOOKINGS = "bookings", "search"
OF_OTHERS = "customers", "experiences", "gift cards", "transactions"


@pytest.mark.exhaustive(
    but=(*(f"postgresql-{name}" for name in OF_BOOKINGS), *(f"sqlite-{name}" for name in OF_OTHERS))
)
@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("name", FILTERS)
def test_a_page_with_a_filter_costs_no_more_than_it_shows(
    request: pytest.FixtureRequest, name: str, order: Order, backend: str
) -> None:
    find, cost, count = FILTERS[name]
    among: Filled = request.getfixturevalue("filled" if name.startswith(OF_BOOKINGS) else "listed")
    page = PageRequest(LIMIT, order)
    among.plans_of(lambda tx: find(tx, among, page))  # then the planner has settled
    plans = among.plans_of(lambda tx: find(tx, among, page))
    among.check(plans, cost)
    assert plans[-1].rows == count or name == "bookings, updated_since", plans[-1]


def test_no_filter_of_a_list_is_without_a_plan() -> None:
    lists = {
        "bookings": BOOKINGS_LIST,
        "customers": CUSTOMERS_LIST,
        "experiences": EXPERIENCES_LIST,
        "gift cards": GIFT_CARDS_LIST,
        "transactions": TRANSACTIONS,
    }
    filters = {f"{name}, {key}" for name, keyset_list in lists.items() for key in keyset_list.filters}
    assert filters - FILTERS.keys() == set()


@with_bookings
@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("by", [{"name": "nobody"}, {"email": "nobody@example.com"}], ids=["name", "unknown address"])
def test_a_search_by_text_walks_the_list_of_its_organization_in_slices(
    filled: Filled, by: dict[str, str], order: Order
) -> None:
    caller, page = filled.world.caller(), PageRequest(LIMIT, order)
    plans = [p for p in filled.plans_of(lambda tx: bookings.search(tx, caller, page, Search(**by))) if p.rows]
    assert [plan.rows for plan in plans[:2]] == [SLICE, SLICE]
    assert sum(plan.rows for plan in plans) == BOOKINGS  # none of another organization
    for plan in plans:
        filled.check([plan], (60_000, 3 * SLICE))
        assert plan.indexes == {"ix_bookings_organization_id_created_at_id"}, str(plan)


# The feed --------------------------------------------------------------------------------------------------------

EVERYTHING: tuple[Scope, ...] = ()
ONLY_READ = tuple(READ_SCOPES)
SINCE, UNTIL = {"created_since": NOON - 60 * DAY}, {"created_until": NOON - 30 * DAY}
LATELY = {"created_since": NOON - 29 * DAY}
"""A period without rare events and without events of the busy departure."""
OF_NOBODY, OF_BUSY = {"resource_id": "019ab5f2-0000-7000-8000-000000000000"}, {"resource_id": BUSY}
RARE_TYPE: dict[str, Any] = {"types": ["gift_card.issued"]}
PREFIXES: dict[str, Any] = {"types": ["webhook.*", "gift_card.*"]}
UPDATES: dict[str, Any] = {"types": ["departure.updated"]}
FEED: dict[str, tuple[tuple[Scope, ...], dict[str, Any]]] = {
    **{
        f"{key} key, {name}": (scopes, bounds)
        for key, scopes in (("every", EVERYTHING), ("reading", ONLY_READ))
        for name, bounds in (
            ("no bounds", {}),
            ("since", SINCE),
            ("until", UNTIL),
            ("since and until", SINCE | UNTIL),
            ("no resource", OF_NOBODY),
            ("busy, lately", OF_BUSY | LATELY),
        )
    },
    "rare type": (EVERYTHING, RARE_TYPE),
    "prefixes": (EVERYTHING, PREFIXES),
    "prefixes, since": (EVERYTHING, PREFIXES | SINCE),
    "no resource, since": (EVERYTHING, OF_NOBODY | SINCE),
    "no resource, since and until, type": (EVERYTHING, OF_NOBODY | SINCE | UNTIL | {"types": ["booking.*"]}),
    # Filters that never occur together.
    "rare type, lately": (EVERYTHING, RARE_TYPE | LATELY),
    "rare and busy types, lately": (EVERYTHING, {"types": ["gift_card.issued", "departure.updated"]} | LATELY),
    "busy, lately, its type": (EVERYTHING, OF_BUSY | LATELY | UPDATES),
    "busy, other types": (EVERYTHING, OF_BUSY | {"types": ["booking.*", "gift_card.issued"]}),
    "busy, other kind of resource": (EVERYTHING, OF_BUSY | {"resource_type": ResourceType.CUSTOMER}),
    "no resource, busy type": (EVERYTHING, OF_NOBODY | UPDATES),
    # A resource with as many events as the rest.
    "busy": (EVERYTHING, OF_BUSY),
    "busy, since": (EVERYTHING, OF_BUSY | SINCE),
    "busy, since and until": (EVERYTHING, OF_BUSY | SINCE | UNTIL),
    "busy, its type": (EVERYTHING, OF_BUSY | UPDATES),
}
FEED_COST = {"sqlite": 15_000, "postgresql": 200}


@with_lists
@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("name", FEED)
def test_a_page_of_the_feed_reads_little_more_than_it_shows(
    listed: Filled, name: str, order: Order, backend: str
) -> None:
    (scopes, filters), resume = FEED[name], [None]

    def find(tx: Tx) -> None:
        page = PageRequest(order=order, starting_after=resume[-1])
        resume.append(events.find(tx, listed.world.caller(*scopes), page, **filters)["resume_cursor"])

    for _ in range(3):
        (plan,) = listed.plans_of(find)
        assert 0 < plan.cost < FEED_COST[backend], str(plan)
        assert not plan.scanned & {"events", "other"}, str(plan)


@with_lists
def test_reading_the_whole_feed_would_be_noticed(listed: Filled, backend: str) -> None:
    everything = Statement(select(tables.events).order_by(tables.events.c.body))
    (plan,) = listed.plans_of(lambda tx: tx.all(everything))
    assert plan.cost > 2 * FEED_COST[backend]
    assert "events" in plan.scanned
