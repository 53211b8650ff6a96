import pytest
from support.world.money import Till
from support.world.world import World


@pytest.fixture
def till(world: World) -> Till:
    return Till(world)
