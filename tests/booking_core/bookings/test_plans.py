"""The cost of the frequent queries among 40,000 bookings: an index for each, and page 1,000 costs no more than page
1."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest
from support import due as due_rows
from support import rows
from support.creating import create
from support.databases import analyze, connect, fill, is_sqlite, run
from support.plans import Plan, explaining
from support.world import DAY, NOON, FixedClock, World, make_world, organization_row

from booking_core import bookings, payments
from booking_core.base import cursors, tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Caller
from booking_core.base.cursors import Binding
from booking_core.bookings import BookingRequest, Search, store
from booking_core.bookings.reschedule import OFFERED_MAX
from booking_core.bookings.store.lists import SLICE
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.models.bookings import (
    BookingOrder,
    BookingSource,
    BookingStatus,
    CancelReason,
    GuestInput,
    GuestLineInput,
    PaymentMode,
)
from booking_core.models.pages import Order
from booking_core.organizations import keys
from booking_core.payments import gift_cards
from booking_core.records import events

BOOKINGS = 40_000
OTHERS = 4_000
EXPERIENCES = 20
DEPARTURES_OF_EACH = 200
ORGANIZATIONS = 2_000
EVENTS = 20_000
LIMIT = 25
PAGE = 1_000
SHARED = "every tenth booking"
"""An external reference that many bookings share."""

LARGE = {
    *("bookings", "departures", "events", "customers", "timeline"),
    *("api_keys", "idempotency", "counters", "organizations"),
}
"""Tables that no request may read from one end to the other."""


@dataclass(frozen=True)
class Filled:
    """A database of a service that has been running for a while."""

    url: str
    world: World
    plans_of: Callable[[Callable[[Tx], Any]], list[Plan]]
    experience: str
    """An experience of the 20, which has every twentieth booking."""
    key: str


@pytest.fixture(scope="module")
def filled(backend: str, new_database_url: Callable[[str], str]) -> Iterator[Filled]:
    url = new_database_url(backend)
    database = Database(url)
    world, other = (make_world(database, FixedClock()) for _ in range(2))
    experience = _fill_bookings(url, world, BOOKINGS)
    _fill_bookings(url, other, OTHERS)
    _fill_around(url, world)
    key = world.key()
    analyze(url)
    with explaining(url, at=NOON) as plans_of:
        yield Filled(url, world, plans_of, experience, key)
    database.close()


def _fill_bookings(url: str, world: World, count: int) -> str:
    """Bookings over a year, of 20 experiences, one in a hundred pending; the id of one experience."""
    made = rows.ids(hash(world.org))
    experiences = [rows.experience(world.org, next(made), NOON) for _ in range(EXPERIENCES)]
    fill(url, tables.experiences, experiences)
    leaving = list(rows.departures(world.org, [each["id"] for each in experiences], NOON + DAY, DEPARTURES_OF_EACH))
    leaving = [each | {"seats_taken": count // len(leaving)} for each in leaving]
    fill(url, tables.departures, leaving)

    def one(number: int) -> rows.Row:
        leaves = leaving[number * 7 % len(leaving)]
        at = NOON + number * (365 * DAY // count)
        own = {
            "status": "pending" if number % 100 == 0 else "confirmed",
            "booking_number": number + 1,
            "external_reference": {0: f"A-{number}", 5: SHARED}.get(number % 10),
        }
        return rows.booking(world.org, next(made), leaves["id"], leaves["experience_id"], at, **own)

    fill(url, tables.bookings, map(one, range(count)))
    run(url, f"UPDATE counters SET last_booking_number = {count} WHERE organization_id = '{world.org}'")
    return str(experiences[3]["id"])


def _fill_around(url: str, world: World) -> None:
    """Events and customers of the organization, and many organizations beside it, with their keys and counters."""
    made = rows.ids(2)
    fill(url, tables.events, (rows.event(world.org, next(made), n + 1, NOON + n * SECOND) for n in range(EVENTS)))
    run(url, f"UPDATE counters SET last_event_sequence = {EVENTS} WHERE organization_id = '{world.org}'")
    fill(url, tables.customers, (rows.customer(world.org, next(made), NOON + n) for n in range(5_000)))
    _fill_timelines(url, world)
    answer = {"organization_id": world.org, "fingerprint": "f" * 64, "status": 201, "body_sealed": "s" * 1_500}
    fill(url, tables.idempotency, (answer | {"key": f"old-{n}", "created_at": NOON} for n in range(5_000)))
    beside = [organization_row(NOON, id=next(made)) for _ in range(ORGANIZATIONS)]
    fill(url, tables.organizations, beside)
    fill(url, tables.counters, ({"organization_id": each["id"]} for each in beside))
    fill(url, tables.api_keys, (_key(each["id"], next(made)) for each in beside))


def _key(organization_id: str, key_id: str) -> rows.Row:
    return {
        "organization_id": organization_id,
        "id": key_id,
        "name": "key",
        "prefix": "svc_00000000",
        "key_hash": tokens.sha256_hex(key_id.encode()),
        "scopes": "[]",
        "created_at": NOON,
    }


def _fill_timelines(url: str, world: World) -> None:
    """Gives each customer 20 of the bookings, with two entries of their timeline each."""
    with connect(url) as connection:
        own = f"WHERE organization_id = '{world.org}' ORDER BY id"
        booked = [str(row[0]) for row in connection.execute(f"SELECT id FROM bookings {own}").fetchall()]
        whose = [str(row[0]) for row in connection.execute(f"SELECT id FROM customers {own}").fetchall()]
    made = rows.ids(3)

    def entry(number: int) -> rows.Row:
        return {
            "organization_id": world.org,
            "customer_id": whose[number // 2 // 20],
            "created_at": NOON + number,
            "id": next(made),
            "booking_id": booked[number // 2],
            "kind": ("booking_created", "booking_confirmed")[number % 2],
            "data": "{}",
        }

    fill(url, tables.timeline, map(entry, range(2 * len(booked))))


# Lists -----------------------------------------------------------------------------------------------------------


MATCHED_BY_MANY = {
    None: PAGE,
    "status": PAGE,
    "experience_id": 60,
    "updated_since": PAGE,
    "external_reference": 120,
}
"""Filters that many bookings match, with a page far along their list."""


def filters_of(filled: Filled, name: str | None) -> dict[str, Any]:
    many = {"status": BookingStatus.CONFIRMED, "experience_id": filled.experience}
    many |= {"updated_since": NOON, "external_reference": SHARED}
    return {name: many[name]} if name else {}


def page_plan(filled: Filled, order: Order, filters: dict[str, Any], start: str | None = None) -> Plan:
    """Return the plan of one page of bookings."""
    caller, page = filled.world.caller(), PageRequest(LIMIT, order, start)
    (plan,) = filled.plans_of(lambda tx: bookings.find(tx, caller, page, **filters))
    return plan


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


def assert_cheap(plan: Plan, filled: Filled, most: int = 120) -> None:
    """Check that no large table is read whole, and that the cost is at most the cost of a page of 25.

    SQLite counts a step for each column that is carried along.
    """
    assert not plan.scanned & LARGE, str(plan)
    assert plan.cost < (18_000 if is_sqlite(filled.url) else most), str(plan)


def test_a_quote_looks_its_departure_and_its_reference_up(filled: Filled) -> None:
    order = BookingOrder(
        departure_id=known(filled).first,
        guests=ADULT,
        hold_id=UNKNOWN,
        external_reference="A-70",
        external_reference_unique=True,
    )
    plans = filled.plans_of(lambda tx: bookings.quote(tx, filled.world.caller(), order))
    assert len(plans) == 3
    for plan in plans:
        assert not plan.scanned & LARGE, str(plan)
        assert plan.cost < (17_000 if is_sqlite(filled.url) else 50), str(plan)
    assert "ix_bookings_external_reference" in plans[1].indexes, str(plans[1])


def test_the_departures_that_a_guest_can_move_to_are_looked_up(filled: Filled) -> None:
    window = {"at": NOON, "before": NOON + 92 * DAY, "limit": OFFERED_MAX}
    (plan,) = filled.plans_of(lambda tx: store.find_offered(tx, filled.world.org, filled.experience, **window))
    assert not plan.scanned & LARGE, str(plan)
    assert plan.rows <= OFFERED_MAX
    assert plan.cost < (17_000 if is_sqlite(filled.url) else 600), str(plan)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("name", MATCHED_BY_MANY)
def test_a_page_far_along_costs_what_the_first_one_costs(filled: Filled, name: str | None, order: Order) -> None:
    filters = filters_of(filled, name)
    page_plan(filled, order, filters)  # the first statement of a connection reads the schema too
    first = page_plan(filled, order, filters)
    later = page_plan(filled, order, filters, cursor_of(filled, order, filters, MATCHED_BY_MANY[name]))
    assert (first.rows, later.rows) == (LIMIT + 1, LIMIT + 1)
    for plan in (first, later):
        # By a reference PostgreSQL joins the twenty experiences in another way.
        assert_cheap(plan, filled, most=160 if name == "external_reference" else 120)
        own = ("ix_bookings_organization_id_", "ix_bookings_external_reference")
        assert any(index.startswith(own) for index in plan.indexes), str(plan)
    assert later.cost <= first.cost * 1.1 + 5, f"{first}\n{later}"


UNKNOWN = "00000000-0000-4000-8000-000000000000"
JANUARY = {"departure_from": date(2030, 1, 1), "departure_to": date(2030, 1, 31)}
MATCHED_BY_FEW: dict[str, dict[str, Any]] = {
    "status": {"status": BookingStatus.CANCELLED},
    "experience": {"experience_id": UNKNOWN},
    "updated_since": {"updated_since": NOON + 365 * DAY - 600 * SECOND},
    "departure": JANUARY,
    "departure and status": {**JANUARY, "status": BookingStatus.CONFIRMED},
    "one departure": {"departure_id": UNKNOWN},
    "customer": {"customer_id": UNKNOWN},
    "number": {"booking_number": BOOKINGS + 1},
    "number and status": {"booking_number": 7, "status": BookingStatus.CANCELLED},
    "unknown reference": {"external_reference": "unknown"},
    "reference": {"external_reference": "A-70"},
    "reference and status": {"external_reference": "A-70", "status": BookingStatus.CANCELLED},
    "email": {"email": "nobody@example.com"},
    "email and one departure": {"email": "nobody@example.com", "departure_id": UNKNOWN},
}


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("name", MATCHED_BY_FEW)
def test_a_filter_that_few_match_does_not_search_among_all(filled: Filled, name: str, order: Order) -> None:
    plan = page_plan(filled, order, MATCHED_BY_FEW[name])
    assert plan.rows < LIMIT
    assert_cheap(plan, filled)


@pytest.mark.parametrize("order", list(Order))
def test_the_bookings_of_a_customer_are_read_by_their_timeline(filled: Filled, order: Order) -> None:
    """Only 20 of 40,000 bookings: a page shows all of them."""
    (customer_id,), (address,) = (stored(filled, "customers", column=column) for column in ("id", "email"))
    for filters in ({"customer_id": customer_id}, {"email": address.upper()}):
        plan = page_plan(filled, order, filters)
        assert plan.rows == 20
        assert not plan.scanned & LARGE, str(plan)
        assert is_sqlite(filled.url) or plan.cost < 350, str(plan)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("days", [1, 92])
def test_a_window_of_departures_costs_a_page_or_what_departs_in_it(filled: Filled, order: Order, days: int) -> None:
    """A day has 500 bookings, which are sorted; 92 days have nearly half of all, so a scan soon finds a page of them.
    PostgreSQL has kept the plan of one query when the other runs."""
    first = date(2027, 1, 1)
    filters = {"departure_from": first, "departure_to": first + timedelta(days=days - 1)}
    page_plan(filled, order, filters)
    plan = page_plan(filled, order, filters)
    assert plan.rows == LIMIT + 1
    assert not plan.scanned & LARGE, str(plan)
    assert plan.cost < (50_000 if is_sqlite(filled.url) else 3_500), str(plan)


# What staff looks for ---------------------------------------------------------------------------------------------


def search_plans(filled: Filled, order: Order, **wanted: Any) -> list[Plan]:
    caller, page = filled.world.caller(), PageRequest(LIMIT, order)
    return filled.plans_of(lambda tx: bookings.search(tx, caller, page, Search(**wanted)))


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("by", ["number", "email", "departure", "departure and status"])
def test_a_search_by_number_address_or_departure_reads_what_it_finds(filled: Filled, by: str, order: Order) -> None:
    of_departure = {"departure_id": known(filled).first}
    wanted: dict[str, Any] = {
        "number": {"number": BOOKINGS // 2},
        "email": {"email": stored(filled, "customers", column="email")[0]},
        "departure": of_departure,
        "departure and status": {**of_departure, "status": BookingStatus.CONFIRMED},
    }[by]
    search_plans(filled, order, **wanted)  # then the planner has settled
    plans = search_plans(filled, order, **wanted)
    assert plans[-1].rows == {"number": 1, "email": 20}.get(by, plans[-1].rows) > 0
    # Each of the 25 rows is looked up with its departure and its experience.
    assert_indexed(plans, filled, cost=350)
    assert not is_sqlite(filled.url) or sum(plan.cost for plan in plans) < 12_000, "\n".join(map(str, plans))


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("by", [{"name": "nobody"}, {"email": "nobody@example.com"}], ids=["name", "unknown address"])
def test_a_search_by_text_walks_the_list_of_its_organization_in_slices(
    filled: Filled, by: dict[str, str], order: Order
) -> None:
    plans = [plan for plan in search_plans(filled, order, **by) if plan.rows]
    assert [plan.rows for plan in plans[:2]] == [SLICE, SLICE]
    assert sum(plan.rows for plan in plans) == BOOKINGS  # none of another organization
    for plan in plans:
        assert not plan.scanned & LARGE, str(plan)
        assert plan.indexes == {"ix_bookings_organization_id_created_at_id"}, str(plan)
        assert plan.cost < (60_000 if is_sqlite(filled.url) else 3 * SLICE), str(plan)


def test_a_report_reads_the_bookings_and_the_departures_of_its_days(filled: Filled) -> None:
    caller = filled.world.caller()
    today = caller.organization.zone.wall(caller.at).date()
    first, last = today - timedelta(days=3), today + timedelta(days=3)
    plans = filled.plans_of(lambda tx: bookings.get_report(tx, caller, date_from=first, date_to=last))
    assert len(plans) == 3
    assert_indexed(plans, filled)


# Everything else that a request asks -----------------------------------------------------------------------------


def assert_indexed(plans: list[Plan], filled: Filled, *, cost: int | None = None) -> None:
    """Check that no large table is read whole, and on PostgreSQL that the statements cost less than `cost` together."""
    assert plans
    for plan in plans:
        assert not plan.scanned & LARGE, str(plan)
    if cost and not is_sqlite(filled.url):
        assert sum(plan.cost for plan in plans) < cost, "\n".join(map(str, plans))


ADULT = [GuestLineInput(tier_id="adult", count=1)]
PARTY = bookings.Party(guests=ADULT)
DAYS = {"date_from": date(2027, 1, 1), "date_to": date(2027, 1, 7)}
ONE_DAY = {"date_from": date(2027, 1, 1), "date_to": date(2027, 1, 1)}


def by_staff(departure_id: str) -> BookingRequest:
    return BookingRequest(
        departure_id=departure_id,
        guests=[GuestLineInput(tier_id="standard", count=1)],
        customer=GuestInput(name="A guest", email="staff@example.com"),
        source=BookingSource.ADMIN,
        payment=PaymentMode.INVOICE,
    )


@dataclass(frozen=True)
class Known:
    """Rows of the organization that a request names."""

    booking: str
    first: str
    second: str
    """Two departures."""
    experience: str


def known(filled: Filled) -> Known:
    return Known(*stored(filled, "bookings"), *stored(filled, "departures", 2), filled.experience)


VERBS: dict[str, tuple[int | None, Callable[[Tx, Caller, Known], object]]] = {
    "get": (15, lambda tx, by, own: bookings.get(tx, by, own.booking)),
    "number": (10, lambda tx, by, own: bookings.resolve_id(tx, by, str(BOOKINGS // 2))),
    "availability": (400, lambda tx, by, own: departures.find_available(tx, by, **DAYS)),
    "availability of one experience": (
        400,
        lambda tx, by, own: departures.find_available(tx, by, experience_id=own.experience, **DAYS),
    ),
    "departures": (1_500, lambda tx, by, own: bookings.find_departures(tx, by, **ONE_DAY)),
    "manifest": (400, lambda tx, by, own: bookings.manifest(tx, by, own.first)),
    "create": (None, lambda tx, by, own: bookings.create(tx, by, by_staff(own.first))),
    "cancel": (None, lambda tx, by, own: bookings.cancel(tx, by, own.booking, reason=CancelReason.API)),
    "preview of a move": (None, lambda tx, by, own: bookings.preview_reschedule(tx, by, own.booking, own.second)),
    "move": (None, lambda tx, by, own: bookings.reschedule(tx, by, own.booking, own.second)),
    "preview of a party": (None, lambda tx, by, own: bookings.preview_party(tx, by, own.booking, PARTY)),
    "party": (None, lambda tx, by, own: bookings.change_party(tx, by, own.booking, PARTY)),
    "number of a refund": (None, lambda tx, by, own: payments.next_refund_number(tx, by, own.booking)),
    "redemption": (None, lambda tx, by, own: gift_cards.lock_redemption(tx, by, own.booking)),
    "cancel a departure": (None, lambda tx, by, own: bookings.cancel_departure(tx, by, own.first)),
    "closed departures": (None, lambda tx, by, own: bookings.CLOSED.find(tx, by.organization.id, after=None, limit=1)),
    "organizations with closed departures": (None, lambda tx, by, own: due_rows.organizations(tx, bookings.CLOSED)),
}
"""Requests, with their cost on PostgreSQL where it is bounded. Their writes are explained, too."""


@pytest.mark.parametrize("name", VERBS)
def test_a_request_looks_up_its_own_rows(filled: Filled, name: str) -> None:
    (cost, verb), caller = VERBS[name], filled.world.caller()
    assert_indexed(filled.plans_of(lambda tx: verb(tx, caller, known(filled))), filled, cost=cost)


@pytest.mark.parametrize(
    ("table", "find"),
    [
        ("departures", lambda tx, own: departures.organizations_of(tx, own.first)),
        ("bookings", lambda tx, own: bookings.organization_of(tx, own.booking)),
    ],
    ids=["departure", "booking"],
)
def test_the_owner_of_a_row_is_found_without_a_scan(
    filled: Filled, table: str, find: Callable[[Tx, Known], object]
) -> None:
    (plan,) = filled.plans_of(lambda tx: find(tx, known(filled)))
    assert table not in plan.scanned, str(plan)


@pytest.mark.parametrize("due", [False, True], ids=["nothing is due", "some are due"])
def test_a_sweep_that_runs_every_second_looks_only_at_what_is_due(
    filled: Filled, due: bool, fresh_database_url: str
) -> None:
    if due:
        ids = "', '".join(stored(filled, "bookings", 20, where="AND status = 'pending'"))
        run(filled.url, f"UPDATE bookings SET expires_at = {NOON} WHERE id IN ('{ids}')")

    def sweep(tx: Tx) -> None:
        act = lambda tx, owner, ids: bookings.abandon(tx, filled.world.installation, owner, ids)  # noqa: E731
        for owner in due_rows.organizations(tx, bookings.EXPIRED):
            due_rows.process(tx, owner, bookings.EXPIRED, act)

    plans = filled.plans_of(sweep)
    assert_indexed(plans, filled)
    assert (len(plans) > 3) == due
    assert any("ix_bookings_pending_expires_at" in plan.indexes for plan in plans), "\n".join(map(str, plans))
    (plan,) = filled.plans_of(lambda tx: due_rows.organizations(tx, bookings.CANCELLING))
    assert "ix_departures_cancelling" in plan.indexes  # SQLite calls it a scan; there is nothing in it
    with explaining(fresh_database_url) as plans_of:
        (in_empty_tables,) = plans_of(lambda tx: due_rows.organizations(tx, bookings.CANCELLING))
    assert plan.cost <= in_empty_tables.cost + 3, str(plan)  # pages of the index, in PostgreSQL


def test_expiring_keys_are_found_by_the_index_of_unwarned_keys(filled: Filled) -> None:
    (plan,) = filled.plans_of(lambda tx: due_rows.organizations(tx, keys.EXPIRING))
    assert "ix_api_keys_unwarned" in plan.indexes, str(plan)
    assert not plan.scanned & LARGE, str(plan)


@pytest.mark.parametrize("count", [1, 32])
def test_creating_looks_up_what_it_needs_and_nothing_else(filled: Filled, count: int) -> None:
    creates = [
        create(filled.world, departure, f"plan-key-{n}", guests=STANDARD, customer=guest(n))
        for n, departure in enumerate(stored(filled, "departures", count))
    ]
    plans = filled.plans_of(lambda tx: bookings.create_many(tx, creates))
    assert_indexed(plans, filled)
    assert {"departures", "idempotency", "customers"} <= {word for plan in plans for word in plan.text.split()}


STANDARD = [{"tier_id": "standard", "count": 1}]


def guest(number: int) -> dict[str, str]:
    return {"name": "A guest", "email": f"new{number}@example.com"}


@pytest.mark.parametrize("count", [1, 32])
def test_a_key_is_found_by_its_hash(filled: Filled, count: int) -> None:
    texts = [filled.key, *(tokens.new_api_key() for _ in range(count - 1))]
    installation = filled.world.installation
    plans = filled.plans_of(lambda tx: keys.identify_many(tx, texts, installation))
    assert_indexed(plans, filled, cost=15 + 5 * count)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize(
    "filters",
    [{}, {"types": ["customer.updated"]}, {"types": ["booking.*"]}, {"created_since": NOON + (EVENTS - 10) * SECOND}],
    ids=["nothing", "type", "types that never were", "created_since"],
)
def test_the_feed_is_walked_along_its_indexes(filled: Filled, filters: dict[str, Any], order: Order) -> None:
    caller = filled.world.caller()
    page = {}

    def find(tx: Tx) -> None:
        page.update(events.find(tx, caller, PageRequest(LIMIT, order), **filters))

    filled.plans_of(find)
    assert_cheap(*filled.plans_of(find), filled)
    if page["next_cursor"]:
        after = PageRequest(LIMIT, order, page["next_cursor"])
        assert_cheap(*filled.plans_of(lambda tx: events.find(tx, caller, after, **filters)), filled)


def stored(filled: Filled, table: str, count: int = 1, *, column: str = "id", where: str = "") -> list[str]:
    """Return a column of the first rows of the organization by id."""
    with connect(filled.url) as connection:
        query = f"SELECT {column} FROM {table} WHERE organization_id = '{filled.world.org}' {where} ORDER BY id"
        return [str(row[0]) for row in connection.execute(f"{query} LIMIT {count}").fetchall()]
