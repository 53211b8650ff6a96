import pytest
from support.world.mails import Mails
from support.world.world import World


@pytest.fixture
def mails(world: World) -> Mails:
    return Mails(world)
