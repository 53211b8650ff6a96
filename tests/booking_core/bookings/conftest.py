"""Fixtures of the tests of bookings. The doctor examines each organization after its test."""

from collections.abc import Callable, Iterator

import pytest
from support.world.world import World


@pytest.fixture
def new_world(new_world: Callable[..., World]) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**columns: object) -> World:
        made.append(new_world(**columns))
        return made[-1]

    yield make
    for world in made:
        assert world.examine() == []


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=5)
