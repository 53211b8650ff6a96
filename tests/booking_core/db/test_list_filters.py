"""Every filter of every list has an entry here: the cost of a page depends on the rows that pass the filter, not on the
excluded rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support import rows
from support.databases import analyze, fill, is_sqlite
from support.plans import Plan, explaining
from support.world import DAY, NOON, FixedClock, World, make_world

from booking_core import customers
from booking_core.base.errors import NotFound
from booking_core.bookings.store import lists as booking_lists
from booking_core.catalogue import experiences
from booking_core.catalogue.experiences import service as experiences_service
from booking_core.customers import store as customers_store
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import KeysetList, PageRequest
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.pages import Order
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards import store as gift_cards_store

MANY = 20_000
RARE = 3
OFTEN_USED = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
"""A card with 200 of 20,000 transactions."""
COST = {"sqlite": 30_000, "postgresql": 400}
"""Several times the cost of a page, and a fraction of the cost of reading the table."""


@dataclass(frozen=True)
class Filled:
    url: str
    world: World
    plans_of: Callable[[Callable[[Tx], Any]], list[Plan]]


@pytest.fixture(scope="module")
def filled(backend: str, new_database_url: Callable[[str], str]) -> Iterator[Filled]:
    """An organization with many customers, experiences and cards; a few differ from the others."""
    url, clock, made = new_database_url(backend), FixedClock(), rows.ids(9)
    database = Database(url, clock=clock)
    world = make_world(database, clock)
    org, start = world.org, NOON - MANY
    fill(url, tables.customers, (rows.customer(org, next(made), start + n) for n in range(MANY)))
    fill(
        url,
        tables.experiences,
        (
            rows.experience(org, next(made), start + n) | {"is_published": n >= RARE, "updated_at": changed(n)}
            for n in range(MANY)
        ),
    )
    cards = [card(org, next(made), start + n, n) for n in range(MANY)]
    fill(url, tables.gift_cards, [*cards, card(org, OFTEN_USED, NOON - DAY, 0)])
    fill(url, tables.gift_card_entries, (entry(org, next(made), each["id"], n) for n, each in enumerate(cards)))
    analyze(url)
    with explaining(url) as plans_of:
        yield Filled(url, world, plans_of)
    database.close()


def changed(number: int) -> int:
    """Return the last change: today for some in the middle, long ago for all others."""
    return NOON if MANY // 2 <= number < MANY // 2 + RARE else NOON - DAY


def card(org: str, row_id: str, at: int, number: int) -> rows.Row:
    """Return a card: used up, except for a few of every other kind in the middle of the list."""
    kinds: dict[int, dict[str, Any]] = {
        0: {"balance_minor": 100},
        1: {"balance_minor": 100, "expires_at": NOON + 36_500 * DAY},
        2: {"deactivated_at": NOON},
    }
    plain = {"initial_minor": 100, "balance_minor": 0, "expires_at": None, "deactivated_at": None}
    return rows.gift_card(org, row_id, at) | plain | {"updated_at": changed(number)} | kinds.get(number - MANY // 2, {})


def entry(org: str, row_id: str, card_id: str, number: int) -> rows.Row:
    """Return an entry of the ledger: every hundredth of one card, each other of another card."""
    own = {"organization_id": org, "id": row_id, "created_at": NOON - MANY + number}
    own |= {"gift_card_id": OFTEN_USED if number % 100 == 0 else card_id}
    return own | {"booking_id": None, "kind": "adjust", "amount_minor": -1, "balance_minor": 0}


Find = Callable[[Tx, World, PageRequest], Any]


def of_cards(**filters: Any) -> Find:
    return lambda tx, world, page: gift_cards.find(tx, world.caller(), page, **filters)


def of_experiences(**filters: Any) -> Find:
    return lambda tx, world, page: experiences.find(tx, world.caller(), page, **filters)


def of_customers(email: str | None = None) -> Find:
    return lambda tx, world, page: customers.find(tx, world.caller(), page, email=email)


def of_transactions(card_id: str) -> Find:
    def find(tx: Tx, world: World, page: PageRequest) -> Any:
        try:
            return gift_cards.find_transactions(tx, world.caller(), page, card_id)
        except NotFound:
            return None

    return find


PLANNED: dict[str, tuple[KeysetList, dict[str, Find]]] = {
    "customers": (customers_store.LIST, {"email_key": of_customers("nobody@example.com")}),
    "experiences": (
        experiences_service.LIST,
        {
            "published": of_experiences(published=False),
            "updated_since": of_experiences(updated_since=NOON - 1),
        },
    ),
    "gift_cards": (
        gift_cards_store.LIST,
        {
            "active": of_cards(status=GiftCardStatus.ACTIVE),
            "expired": of_cards(status=GiftCardStatus.EXPIRED),
            "inactive": of_cards(status=GiftCardStatus.INACTIVE),
            "updated_since": of_cards(updated_since=NOON - 1),
        },
    ),
}
PAIRS: dict[str, Find] = {
    "all customers": of_customers(),
    "all cards": of_cards(),
    "all experiences": of_experiences(),
    "transactions of a card without any": of_transactions("00000000-0000-4000-8000-000000000000"),
    "transactions of a card": of_transactions(OFTEN_USED),
    "unpublished, updated since": of_experiences(published=False, updated_since=NOON - 1),
    "published, updated since": of_experiences(published=True, updated_since=NOON - 1),
    "active, updated since": of_cards(status=GiftCardStatus.ACTIVE, updated_since=NOON - 1),
    "inactive, updated since": of_cards(status=GiftCardStatus.INACTIVE, updated_since=NOON - 1),
}
PLANNED["gift_card_transactions"] = (
    gift_cards_store.TRANSACTIONS,
    {"gift_card_id": of_transactions(OFTEN_USED)},
)
PLANNED_ELSEWHERE = {
    # tests/booking_core/bookings/test_plans.py
    "bookings": (
        booking_lists.LIST,
        {
            *("status", "experience_id", "window", "updated_since", "number"),
            *("departure_id", "customer_id", "email_key", "external_reference"),
        },
    ),
}
CASES = {f"{name} {key}": find for name, (_, finds) in PLANNED.items() for key, find in finds.items()} | PAIRS


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("case", CASES)
def test_a_page_with_a_filter_costs_no_more_than_what_it_shows(filled: Filled, case: str, order: Order) -> None:
    find, page = CASES[case], PageRequest(25, order)
    filled.plans_of(lambda tx: find(tx, filled.world, page))
    plan = filled.plans_of(lambda tx: find(tx, filled.world, page))[0]
    # SQLite also calls it a scan when it reads all of a partial index, and names parts that it never runs.
    listed = {"customers", "experiences", "gift_cards", "gift_card_entries"}
    assert is_sqlite(filled.url) or not plan.scanned & listed, str(plan)
    assert plan.cost < COST["sqlite" if is_sqlite(filled.url) else "postgresql"], str(plan)


@pytest.mark.parametrize("name", [*PLANNED, *PLANNED_ELSEWHERE])
def test_no_filter_is_without_a_plan(name: str) -> None:
    keyset_list, planned = {**PLANNED, **PLANNED_ELSEWHERE}[name]
    assert set(planned) == set(keyset_list.filters)


@pytest.mark.parametrize(
    ("status", "count"),
    [(GiftCardStatus.ACTIVE, 2), (GiftCardStatus.INACTIVE, 1), (GiftCardStatus.EXPIRED, 26)],
)
def test_every_status_is_found(filled: Filled, status: GiftCardStatus, count: int) -> None:
    (plan,) = filled.plans_of(lambda tx: of_cards(status=status)(tx, filled.world, PageRequest(25)))
    assert plan.rows == count
