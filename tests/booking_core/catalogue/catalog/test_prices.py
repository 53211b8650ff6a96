"""A departure's prices: written in the catalogue, shown by availability, charged by every way to book."""

import itertools
import json
from collections.abc import Callable
from datetime import date
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, select
from support.creating import create, created
from support.operations import Operations, lines
from support.world import DAY, World

from booking_core.catalogue import catalog, departures, experiences
from booking_core.catalogue.catalog import InvalidCatalogue, Summary
from booking_core.db import tables
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.records.idempotency import Answer

_numbers = itertools.count()
Document = dict[str, Any]


def nok(amount_minor: int) -> Document:
    return {"amount_minor": amount_minor, "currency": "NOK"}


def tier(name: str, amount_minor: int) -> Document:
    return {"id": name, "name": name.title(), "price": nok(amount_minor)}


def departure(**keys: Any) -> Document:
    return {"starts_at": "2026-12-24T10:00:00", "seats_total": 12} | keys


def tour(*items: Document, **keys: Any) -> Document:
    wanted = {"slug": "kayak", "title": "Kayak", "duration_minutes": 150, "departures": list(items)} | keys
    return {"experiences": [wanted]}


ADULT, CHILD = tier("adult", 89000), tier("child", 45000)


def load(world: World, document: object, *, other_currency: bool = False) -> Summary:
    return world.database.write(
        lambda tx: catalog.import_document(
            tx, world.organization, world.installation, document, now=world.clock(), other_currency=other_currency
        )
    )


def problems(world: World, document: object, *, other_currency: bool = False) -> dict[str, str]:
    with pytest.raises(InvalidCatalogue) as refused:
        load(world, document, other_currency=other_currency)
    return dict(refused.value.problems)


def available(world: World) -> list[Document]:
    found = world.database.read(
        lambda tx: departures.find_available(
            tx, world.caller(), date_from=date(2026, 11, 21), date_to=date(2027, 2, 20)
        )
    )
    return list(found["data"])


def prices(world: World) -> list[int | None]:
    return [item["price"] and item["price"]["amount_minor"] for item in available(world)]


def exported(world: World) -> Document:
    return world.database.read(lambda tx: catalog.export(tx, world.organization, world.installation))


# What is shown is what is charged --------------------------------------------------------------------------------

AMOUNTS = st.integers(0, 500_000)
TIERS = ("adult", "child", "family", "senior ~/å")


@st.composite
def tours(draw: st.DrawFn) -> Document:
    """Draw an experience with some departures: with tiers or without, with prices of its own or without."""
    offered = draw(st.lists(st.sampled_from(TIERS), unique=True))
    made: Document = {"slug": f"tour-{next(_numbers)}", "title": "Tour", "duration_minutes": 60}
    if draw(st.booleans()):
        made["price_from"] = nok(draw(AMOUNTS))
    made["price_tiers"] = [tier(name, draw(AMOUNTS)) for name in offered]
    made["departures"] = [
        departure(starts_at=f"2026-12-{day:02}T10:00:00") | draw(own_prices(offered)) for day in range(1, 4)
    ]
    return made


def own_prices(offered: list[str]) -> st.SearchStrategy[Document]:
    """Draw the prices of a departure: none, of some tiers, or one price where there are no tiers."""
    if not offered:
        return st.one_of(st.just({}), AMOUNTS.map(lambda amount: {"price": nok(amount)}))
    amounts = st.one_of(AMOUNTS, AMOUNTS.map(nok))
    return st.one_of(
        st.just({}),
        st.dictionaries(st.sampled_from(offered), amounts, max_size=4).map(lambda own: {"prices": own}),
    )


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(tours(), min_size=1, max_size=4))
def test_the_prices_that_availability_shows_are_what_bookings_are_charged(
    new_world: Callable[..., World], documents: list[Document]
) -> None:
    world = new_world()
    load(world, {"experiences": documents})
    ops, seen = Operations(world), 0
    kinds = {each["id"]: each for each in listed(world)}
    for shown in available(world):
        kind = kinds[shown["experience_id"]]
        tiers = kind["price_tiers"] or [{"id": "standard"}]
        charged = [totals(ops, shown["id"], each["id"]) for each in tiers]
        if shown["price"] is None:
            assert charged == [None]
            continue
        assert {len(set(each or ())) for each in charged} == {1}, "each way to book charges the same"
        amounts = {each[0] for each in charged if each}
        assert {each["price"]["amount_minor"] for each in shown["price_tiers"]} == amounts, "as shown for each tier"
        assert shown["price"] in (nok(min(amounts - {0} or amounts)), kind["price_from"])
        assert shown["price"]["amount_minor"] or amounts == {0}, "zero only where every tier is free"
        seen += 1
    assert seen or all(not each["price_tiers"] for each in documents)


def totals(ops: Operations, departure_id: str, tier_id: str) -> list[int] | None:
    """Return the totals of one unit of the tier by API, staff and checkout; None when it is not for sale."""
    request = create(ops.world, departure_id, f"key-{next(_numbers):08}", guests=[{"tier_id": tier_id, "count": 1}])
    (answer,) = created(ops.world.database, [request])
    assert isinstance(answer, Answer)
    if answer.status == 422:
        return None
    bookings = [
        orjson.loads(answer.body),
        *(verb(departure_id, guests=lines(1, tier_id)) for verb in (ops.book, ops.check_out)),
    ]
    return [booking["totals"]["total"]["amount_minor"] for booking in bookings]


def listed(world: World) -> list[Document]:
    page = world.database.read(lambda tx: experiences.find(tx, world.caller(), PageRequest(limit=100)))
    return list(page["data"])


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(tours(), min_size=1, max_size=4))
def test_prices_are_exported_to_what_imports_to_the_same(
    new_world: Callable[..., World], documents: list[Document]
) -> None:
    world, copy = new_world(), new_world()
    load(world, {"experiences": documents})
    document = exported(world)
    again = load(world, document)
    assert (again.experiences.updated, again.departures.updated) == (0, 0)
    load(copy, document)
    assert exported(copy) == document
    assert prices(copy) == prices(world)


# In the file -----------------------------------------------------------------------------------------------------


def test_a_price_for_a_tier_is_an_amount_or_a_number_of_minor_units(world: World) -> None:
    load(world, tour(departure(prices={"adult": nok(99000), "child": 40000}), price_tiers=[ADULT, CHILD]))
    assert prices(world) == [40000]
    (kept,) = exported(world)["experiences"][0]["departures"]
    assert (kept["price"], kept["prices"]) == (None, {"adult": nok(99000), "child": nok(40000)})


def test_prices_that_are_left_out_stay_and_null_empties_them(world: World) -> None:
    load(world, tour(departure(prices={"child": 40000}), price_tiers=[ADULT, CHILD]))
    assert load(world, tour(departure(), price_tiers=[ADULT, CHILD])).departures.unchanged == 1
    assert prices(world) == [40000]
    for nothing in (None, {}):
        load(world, tour(departure(prices={"child": 40000}), price_tiers=[ADULT, CHILD]))
        assert load(world, tour(departure(prices=nothing), price_tiers=[ADULT, CHILD])).departures.updated == 1
        assert prices(world) == [45000]


@pytest.mark.parametrize(
    ("own", "pointer", "words"),
    [
        ({"price": nok(1)}, "/price", "is a single price, and its experience has price tiers"),
        ({"prices": {"chld": 1}}, "/prices/chld", "is no price tier of its experience; did you mean child?"),
        ({"prices": {"a/b~": 1}}, "/prices/a~1b~0", "is no price tier of its experience"),
        ({"prices": {"adult": -1}}, "/prices/adult", "must lie between 0 and"),
        ({"prices": {"adult": nok(-1)}}, "/prices/adult/amount_minor", "must be greater than or equal to 0"),
        ({"prices": {"adult": True}}, "/prices/adult", "must be an object"),
        ({"prices": {"adult": {"amount_minor": 1}}}, "/prices/adult/currency", "is required"),
        (
            {"prices": {"adult": {"amount_minor": 1, "currency": "EUR"}}},
            "/prices/adult/currency",
            "is not the currency of",
        ),
        ({"prices": [1]}, "/prices", "must be an object"),
    ],
)
def test_what_is_wrong_with_a_departure_s_prices_is_reported_by_pointer(
    world: World, own: Document, pointer: str, words: str
) -> None:
    found = problems(world, tour(departure(**own), price_tiers=[ADULT, CHILD]))
    (message,) = [text for at, text in found.items() if at == f"/experiences/0/departures/0{pointer}"]
    assert message.startswith(words)
    assert available(world) == []


def test_prices_for_tiers_need_tiers(world: World) -> None:
    found = problems(world, tour(departure(prices={"adult": 1}), price_from=nok(89000)))
    assert found == {
        "/experiences/0/departures/0/prices": "need price tiers, and the file gives its experience none;"
        " without tiers write price"
    }


def test_a_single_price_is_refused_where_the_stored_experience_has_tiers(world: World) -> None:
    load(world, tour(departure(), price_tiers=[ADULT]))
    found = problems(world, tour(departure(price=nok(1))))
    assert list(found) == ["/experiences/0/departures/0/price"]
    assert prices(world) == [89000]


def test_prices_of_stored_departures_for_a_removed_tier_are_noted(world: World) -> None:
    past = departure(starts_at="2026-11-01T10:00:00", prices={"child": 1})
    load(world, tour(past, departure(prices={"adult": 70000, "child": 30000}), price_tiers=[ADULT, CHILD]))
    done = load(world, tour(price_tiers=[ADULT]))
    message = "1 stored departures have prices for removed tiers (child), which are ignored"
    assert done.notes == (("/experiences/0/price_tiers", message),)
    assert prices(world) == [70000]
    assert load(world, tour(price_tiers=[ADULT])).notes == ()


# What is stored already ------------------------------------------------------------------------------------------


def test_a_single_price_that_is_stored_beside_tiers_is_neither_shown_nor_charged(world: World) -> None:
    """As catalogues of earlier versions could leave it."""
    world.departure(world.experience(slug="kayak"), price_minor=1)
    (shown,) = available(world)
    assert shown["price"] == nok(89000)
    assert totals(Operations(world), shown["id"], "adult") == [89000] * 3
    document = exported(world)
    assert document["experiences"][0]["departures"][0]["price"] is None
    assert load(world, document).departures.unchanged == 1


def test_tiers_are_not_added_over_single_prices_of_departures_to_come(world: World) -> None:
    past = departure(starts_at="2026-11-01T10:00:00", price=nok(1))
    load(world, tour(past, departure(price=nok(70000)), price_from=nok(89000)))
    found = problems(world, tour(price_tiers=[ADULT, CHILD]))
    assert found == {
        "/experiences/0/price_tiers": "cannot be added while 1 stored departures have a single price: give each"
        " prices, or price null"
    }
    assert prices(world) == [70000]
    load(world, tour(departure(prices={"adult": 70000}), price_tiers=[ADULT, CHILD]))
    assert prices(world) == [45000]


def test_a_price_for_a_tier_that_is_taken_away_is_no_longer_shown_or_charged(world: World) -> None:
    load(world, tour(departure(prices={"child": 1, "adult": 80000}), price_tiers=[ADULT, CHILD]))
    load(world, tour(price_tiers=[ADULT]))
    (shown,) = available(world)
    assert shown["price"] == nok(80000)
    assert totals(Operations(world), shown["id"], "adult") == [80000] * 3
    assert totals(Operations(world), shown["id"], "child") is None
    (kept,) = exported(world)["experiences"][0]["departures"]
    assert kept["prices"] == {"adult": nok(80000)}


def test_a_currency_is_not_changed_under_stored_prices_for_tiers(world: World) -> None:
    load(world, tour(departure(prices={"adult": 1}), price_tiers=[ADULT]))
    euro = {"id": "adult", "name": "Adult", "price": {"amount_minor": 9000, "currency": "EUR"}}
    assert "/experiences/0" in problems(world, tour(price_tiers=[euro]), other_currency=True)


def test_a_booking_keeps_its_price_when_the_departure_gets_another(world: World) -> None:
    load(world, tour(departure(), price_tiers=[ADULT]))
    ops = Operations(world)
    (shown,) = available(world)
    before = ops.check_out(shown["id"])
    load(world, tour(departure(prices={"adult": 1}), price_tiers=[ADULT]))
    world.clock.advance(DAY // 100)
    assert ops.pay(before["id"])["totals"]["total"] == nok(89000)
    query = Statement(select(tables.departures.c.prices).where(tables.departures.c.organization_id == bindparam("o")))
    assert [json.loads(row[0]) for row in world.database.read(lambda tx: tx.all(query, o=world.org))] == [{"adult": 1}]
    assert world.examine() == []
