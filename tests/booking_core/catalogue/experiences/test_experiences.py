"""Experiences are listed and fetched."""

from typing import Any

from support import databases
from support.plans import explaining
from support.world import NOON, FixedClock, World, make_world

from booking_core.base import tokens
from booking_core.catalogue import experiences
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.paging import PageRequest
from booking_core.models.experiences import Experience
from booking_core.models.pages import Page


def find(world: World, page: PageRequest = PageRequest(), **filters: Any) -> dict[str, Any]:  # noqa: B008
    return world.database.read(lambda tx: experiences.find(tx, world.caller(), page, **filters))


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["data"]]


def test_a_page_is_what_the_wire_calls_a_page(world: World) -> None:
    world.experience(is_published=False)
    world.experience(latitude=60, longitude=5.25, price_from_minor=None, price_tiers="[]")
    page = find(world)
    assert Page[Experience].model_validate(page).to_json() == page
    assert page["has_more"] is False
    assert page["next_cursor"] is None


def test_published_filters_and_its_absence_gives_both(world: World) -> None:
    shown, hidden = world.experience(), world.experience(is_published=False)
    assert ids(find(world, published=True)) == [shown]
    assert ids(find(world, published=False)) == [hidden]
    assert set(ids(find(world))) == {shown, hidden}


def test_what_changed_at_that_very_instant_belongs_to_updated_since(world: World) -> None:
    world.experience(updated_at=NOON - 1)
    changed = world.experience(updated_at=NOON)
    assert ids(find(world, updated_since=NOON)) == [changed]
    assert ids(find(world, updated_since=NOON + 1)) == []


def test_one_experience_is_shown_as_in_the_list(world: World) -> None:
    made = world.experience()
    assert world.database.read(lambda tx: experiences.get(tx, world.caller(), made)) == find(world)["data"][0]


def test_a_page_and_an_experience_cost_one_statement_each(world: World, statements: list[str]) -> None:
    made = world.experience()
    statements.clear()
    find(world, published=True, updated_since=NOON)
    world.database.read(lambda tx: experiences.get(tx, world.caller(), made))
    assert len(statements) == 2


def test_a_page_is_read_from_an_index_however_many_experiences_others_have(
    fresh_database_url: str, clock: FixedClock
) -> None:
    database = Database(fresh_database_url, clock=clock)
    worlds = [make_world(database, clock) for _ in range(5)]
    crowd = (
        {
            "organization_id": worlds[1 + i % 4].org,
            "id": tokens.new_id(),
            "slug": f"tour-{i}",
            "title": "Tour",
            "is_published": True,
            "languages": "[]",
            "tags": "[]",
            "currency": "NOK",
            "price_tiers": "[]",
            "add_ons": "[]",
            "created_at": NOON + i,
            "updated_at": NOON + i,
        }
        for i in range(20_000)
    )
    databases.fill(fresh_database_url, tables.experiences, crowd)
    for i in range(200):
        worlds[0].experience(created_at=NOON + i)
    databases.analyze(fresh_database_url)
    database.close()
    caller = worlds[0].caller()
    with explaining(fresh_database_url) as explained:
        for filters in ({}, {"published": True}):
            (plan,) = explained(lambda tx, filters=filters: experiences.find(tx, caller, PageRequest(), **filters))
            assert plan.rows == 26
            own = {"ix_experiences_organization_id_created_at_id"}
            if filters:
                own = {*own, "ix_experiences_organization_id_is_published_created_at_id"}
            assert plan.indexes, plan
            assert plan.indexes <= own, plan
            assert not plan.scanned, plan
