"""A departure's prices: written in the catalogue, shown by availability, charged by every way to book."""

import itertools
import json
from collections.abc import Callable
from datetime import date

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.world.catalogue import Document, departure, departures, exported, load, money, refused, tier, tour, tours
from support.world.creating import create, created
from support.world.operations import Operations, lines
from support.world.world import DAY, World

from booking_core import catalogue
from booking_core.db import tables
from booking_core.db.paging import PageRequest

_numbers = itertools.count()


ADULT, CHILD = tier("adult", 89000), tier("child", 45000)


def available(world: World) -> list[Document]:
    page = world.database.read(
        lambda tx: catalogue.departures.find_available(
            tx, world.caller(), date_from=date(2026, 11, 21), date_to=date(2027, 2, 20)
        )
    )
    return list(page["data"])


def prices(world: World) -> list[int | None]:
    return [item["price"] and item["price"]["amount_minor"] for item in available(world)]


# The shown price is charged --------------------------------------------------------------------------------------

AMOUNTS = st.integers(0, 500_000)
TIERS = ("adult", "child", "family", "senior ~/å")


@st.composite
def drawn_tours(draw: st.DrawFn) -> Document:
    """Draw an experience with some departures: with tiers or without, with separate prices or without."""
    offered = draw(st.lists(st.sampled_from(TIERS), unique=True))
    entry: Document = {"slug": f"tour-{next(_numbers)}", "title": "Tour", "duration_minutes": 60}
    if draw(st.booleans()):
        entry["price_from"] = money(draw(AMOUNTS))
    entry["price_tiers"] = [tier(name, draw(AMOUNTS)) for name in offered]
    entry["departures"] = [
        departure(starts_at=f"2026-12-{day:02}T10:00:00") | draw(own_prices(offered)) for day in range(1, 4)
    ]
    return entry


def own_prices(offered: list[str]) -> st.SearchStrategy[Document]:
    """Draw the prices of a departure: none, of some tiers, or one price where there are no tiers."""
    if not offered:
        return st.one_of(st.just({}), AMOUNTS.map(lambda amount: {"price": money(amount)}))
    amounts = st.one_of(AMOUNTS, AMOUNTS.map(money))
    return st.one_of(
        st.just({}),
        st.dictionaries(st.sampled_from(offered), amounts, max_size=4).map(lambda drawn: {"prices": drawn}),
    )


@pytest.mark.exhaustive(but="postgresql")
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(drawn_tours(), min_size=1, max_size=4))
def test_the_prices_that_availability_shows_are_what_bookings_are_charged(
    new_world: Callable[..., World], documents: list[Document]
) -> None:
    world = new_world()
    load(world, tours(*documents))
    ops, priced = Operations(world), 0
    kinds = {experience["id"]: experience for experience in listed(world)}
    for bookable in available(world):
        kind = kinds[bookable["experience_id"]]
        tiers = kind["price_tiers"] or [{"id": "standard"}]
        charged = [totals(ops, bookable["id"], unit["id"]) for unit in tiers]
        if bookable["price"] is None:
            assert (bookable["status"], charged) == ("closed", [None])
            continue
        assert {len(set(sums or ())) for sums in charged} == {1}, "each way to book charges the same"
        amounts = {sums[0] for sums in charged if sums}
        assert {unit["price"]["amount_minor"] for unit in bookable["price_tiers"]} == amounts, "as shown for each tier"
        assert bookable["price"] in (money(min(amounts - {0} or amounts)), kind["price_from"])
        assert bookable["price"]["amount_minor"] or amounts == {0}, "zero only where every tier is free"
        priced += 1
    assert priced or all(not document["price_tiers"] for document in documents)


def totals(ops: Operations, departure_id: str, tier_id: str) -> list[int] | None:
    """Return the totals of one unit of the tier by API, staff and checkout; None when it is not for sale."""
    request = create(ops.world, departure_id, f"key-{next(_numbers):08}", guests=[{"tier_id": tier_id, "count": 1}])
    (answer,) = created(ops.world.database, [request])
    if answer.status in (409, 422):  # the departure has no price, or not this tier
        return None
    bookings = [
        orjson.loads(answer.body),
        *(verb(departure_id, guests=lines(1, tier_id)) for verb in (ops.book, ops.check_out)),
    ]
    return [booking["totals"]["total"]["amount_minor"] for booking in bookings]


def listed(world: World) -> list[Document]:
    page = world.database.read(lambda tx: catalogue.experiences.find(tx, world.caller(), PageRequest(limit=100)))
    return list(page["data"])


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(drawn_tours(), min_size=1, max_size=4))
def test_prices_are_exported_to_what_imports_to_the_same(
    new_world: Callable[..., World], documents: list[Document]
) -> None:
    world, copy = new_world(), new_world()
    load(world, tours(*documents))
    document = exported(world)
    again = load(world, document)
    assert (again.experiences.updated, again.departures.updated) == (0, 0)
    load(copy, document)
    assert exported(copy) == document
    assert prices(copy) == prices(world)


# In the file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "pointer", "words"),
    [
        ({"price": money(1)}, "/price", "is a single price, and its experience has price tiers"),
        ({"prices": {"chld": 1}}, "/prices/chld", "is no price tier of its experience; did you mean child?"),
        ({"prices": {"a/b~": 1}}, "/prices/a~1b~0", "is no price tier of its experience"),
        ({"prices": {"adult": -1}}, "/prices/adult", "must lie between 0 and"),
        ({"prices": {"adult": money(-1)}}, "/prices/adult/amount_minor", "must be greater than or equal to 0"),
        ({"prices": {"adult": True}}, "/prices/adult", "must be an object"),
        ({"prices": {"adult": {"amount_minor": 1}}}, "/prices/adult/currency", "is required"),
        ({"prices": {"adult": money(1, "EUR")}}, "/prices/adult/currency", "is not the currency of"),
        ({"prices": [1]}, "/prices", "must be an object"),
    ],
)
def test_what_is_wrong_with_a_departure_s_prices_is_reported_by_pointer(
    world: World, keys: Document, pointer: str, words: str
) -> None:
    messages = refused(world, departures(departure(**keys), price_tiers=[ADULT, CHILD]))
    (message,) = [text for at, text in messages.items() if at == f"/experiences/0/departures/0{pointer}"]
    assert message.startswith(words)


def test_prices_for_tiers_need_tiers(world: World) -> None:
    messages = refused(world, departures(departure(prices={"adult": 1}), price_from=money(89000)))
    assert messages == {
        "/experiences/0/departures/0/prices": "need price tiers, and the file gives its experience none;"
        " without tiers write price"
    }


# Stored departures -----------------------------------------------------------------------------------------------


def test_a_single_price_stored_beside_tiers_is_neither_shown_nor_charged(world: World) -> None:
    """As catalogues of earlier versions could leave it."""
    world.departure(world.experience(slug="kayak"), price_minor=1)
    (bookable,) = available(world)
    assert bookable["price"] == money(89000)
    assert totals(Operations(world), bookable["id"], "adult") == [89000] * 3
    document = exported(world)
    assert document["experiences"][0]["departures"][0]["price"] is None
    assert load(world, document).departures.unchanged == 1


def test_the_price_of_a_removed_tier_is_neither_shown_nor_charged(world: World) -> None:
    load(world, departures(departure(prices={"child": 1, "adult": 80000}), price_tiers=[ADULT, CHILD]))
    assert len(load(world, tours(tour(price_tiers=[ADULT]))).notes) == 1
    assert load(world, tours(tour(price_tiers=[ADULT]))).notes == ()
    (bookable,) = available(world)
    assert bookable["price"] == money(80000)
    assert totals(Operations(world), bookable["id"], "adult") == [80000] * 3
    assert totals(Operations(world), bookable["id"], "child") is None
    (entry,) = exported(world)["experiences"][0]["departures"]
    assert entry["prices"] == {"adult": money(80000)}


def test_a_booking_keeps_its_price_when_the_departure_gets_another(world: World) -> None:
    load(world, departures(departure(), price_tiers=[ADULT]))
    ops = Operations(world)
    (bookable,) = available(world)
    before = ops.check_out(bookable["id"])
    load(world, departures(departure(prices={"adult": 1}), price_tiers=[ADULT]))
    world.clock.advance(DAY // 100)
    assert ops.pay(before["id"])["totals"]["total"] == money(89000)
    assert [json.loads(row["prices"]) for row in world.rows(tables.departures)] == [{"adult": 1}]
    assert world.examine() == []
