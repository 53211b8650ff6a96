import pytest
from support.money import Till
from support.world import World


@pytest.fixture
def till(world: World) -> Till:
    return Till(world)
