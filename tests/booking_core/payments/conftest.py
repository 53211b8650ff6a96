import pytest
from support.money import Till
from support.world import World


@pytest.fixture
def till(world: World) -> Till:
    return Till(world)


@pytest.fixture
def statements_run(till: Till, statements: list[str]) -> list[str]:
    """The text of every statement run in the database, from here on."""
    statements.clear()
    return statements
