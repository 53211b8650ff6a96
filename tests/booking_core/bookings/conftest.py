"""Fixtures of the tests of bookings. The doctor examines each organization after its test."""

from collections.abc import Callable, Iterator

import pytest
from support.world.world import World


@pytest.fixture
def new_world(new_world: Callable[..., World]) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**columns: object) -> World:
        worlds.append(new_world(**columns))
        return worlds[-1]

    yield make
    for world in worlds:
        assert world.examine() == []


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=5)
