"""Experiences are listed and fetched."""

from collections.abc import Callable
from typing import Any

import pytest
from support import databases
from support.plans import explaining
from support.world import DAY, NOON, FixedClock, World, make_world

from booking_core.base import tokens
from booking_core.base.errors import Malformed, NotFound
from booking_core.catalogue import experiences
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.paging import PageRequest
from booking_core.models.experiences import Experience
from booking_core.models.pages import Order, Page


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


def test_the_newest_comes_first_unless_asked_otherwise(world: World) -> None:
    made = [world.experience(created_at=NOON + i * DAY) for i in range(3)]
    assert ids(find(world)) == made[::-1]
    assert ids(find(world, PageRequest(order=Order.ASC))) == made


def test_many_that_were_created_at_once_are_each_seen_once(world: World) -> None:
    made = {world.experience() for _ in range(7)}
    seen: list[str] = []
    page = find(world, PageRequest(limit=2))
    while True:
        seen += ids(page)
        if not page["has_more"]:
            break
        page = find(world, PageRequest(limit=2, starting_after=page["next_cursor"]))
    assert len(seen) == 7
    assert set(seen) == made


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


def test_a_cursor_opens_only_the_list_it_was_made_for(world: World) -> None:
    for _ in range(2):
        world.experience()
    cursor = find(world, PageRequest(limit=1), published=True)["next_cursor"]
    with pytest.raises(Malformed):
        find(world, PageRequest(limit=1, starting_after=cursor))


def test_another_organizations_experience_is_one_that_does_not_exist(
    world: World, new_world: Callable[[], World]
) -> None:
    foreign = new_world().experience()
    assert ids(find(world)) == []
    for unknown in (foreign, tokens.new_id()):
        with pytest.raises(NotFound):
            world.database.read(lambda tx, unknown=unknown: experiences.get(tx, world.caller(), unknown))


def test_one_experience_is_shown_as_in_the_list(world: World) -> None:
    made = world.experience()
    assert world.database.read(lambda tx: experiences.get(tx, world.caller(), made)) == find(world)["data"][0]


def test_timestamps_follow_the_zone_of_the_organization(new_world: Callable[..., World]) -> None:
    world = new_world(timezone="Asia/Kathmandu")
    world.experience()
    assert find(world)["data"][0]["created_at"] == "2026-11-21T17:45:00+05:45"


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
