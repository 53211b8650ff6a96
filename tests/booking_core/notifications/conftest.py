import pytest
from support.mails import Mails
from support.world import World


@pytest.fixture
def mails(world: World) -> Mails:
    return Mails(world)
