"""Experiences are listed and fetched."""

from typing import Any

from support.world.world import NOON, World

from booking_core.catalogue import experiences
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


def test_an_experience_equals_its_list_item_and_takes_one_statement(world: World, statements: list[str]) -> None:
    made = world.experience()
    statements.clear()
    (listed,) = find(world, published=True, updated_since=NOON)["data"]
    assert world.database.read(lambda tx: experiences.get(tx, world.caller(), made)) == listed
    assert len(statements) == 2
