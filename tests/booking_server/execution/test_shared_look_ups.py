"""A look-up of a key serves the requests that had arrived before it began, and no later one."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from support.world import SECRET, World

from booking_core.base.context import Caller
from booking_core.base.errors import ApiKeyRevoked
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.models.scopes import Scope
from booking_core.organizations import keys
from booking_server.execution.authenticator import Credentials
from booking_server.execution.service import Service
from booking_server.execution.shared_look_ups import SHARED_S, SharedLookUps

KEY = "svc_of_this_test"


@pytest.fixture
def service(shared_database_url: str, database: Database) -> Iterator[Service]:
    """A service of this test's own, on the test's clock."""
    settings = Settings(database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
    made = Service(settings, Database(shared_database_url, clock=database.clock))
    yield made
    made.close()


def credentials(key: str) -> Credentials:
    return Credentials([(b"authorization", f"Bearer {key}".encode())], "192.0.2.1")


def identified(world: World, key: str) -> Caller:
    return world.database.read(lambda tx: keys.identify(tx, key, world.installation))


def test_a_look_up_is_shared_with_requests_that_had_arrived_before_it_began(world: World) -> None:
    shared, caller = SharedLookUps(), identified(world, world.key())
    shared.note(KEY, caller, begun_s=5.0)
    assert shared.find(KEY, arrived_s=4.9, now_s=5.01) is caller
    assert shared.find(KEY, arrived_s=5.0, now_s=5.01) is caller
    assert shared.find(KEY, arrived_s=5.001, now_s=5.01) is None
    assert shared.find("svc_of_another", arrived_s=4.9, now_s=5.01) is None


def test_a_request_that_has_waited_for_long_is_looked_up_when_its_turn_comes(world: World) -> None:
    shared, caller = SharedLookUps(), identified(world, world.key())
    shared.note(KEY, caller, begun_s=5.0)
    assert shared.find(KEY, arrived_s=4.9, now_s=5.0 + SHARED_S) is caller
    assert shared.find(KEY, arrived_s=4.9, now_s=5.01 + SHARED_S) is None


def test_requests_that_wait_together_cost_one_look_up_whichever_batches_they_are_in(
    service: Service, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, looked_up = world.key(), []
    identify_many = keys.identify_many

    def noted(tx: Any, texts: Sequence[str], installation: Any) -> Any:
        looked_up.append(list(texts))
        return identify_many(tx, texts, installation)

    monkeypatch.setattr(keys, "identify_many", noted)
    batches = [[credentials(key) for _ in range(3)] for _ in range(4)]
    with service.database.reading() as tx:
        found = [caller for batch in batches for caller in service.authenticator.authenticate(tx, batch)]
        assert [isinstance(each, Caller) for each in found] == [True] * 12
        assert looked_up == [[key] * 3]
        assert isinstance(service.authenticator.authenticate(tx, [credentials(key)])[0], Caller)
        assert looked_up == [[key] * 3, [key]]


def test_a_revocation_counts_for_the_next_request_beside_those_that_share_a_look_up(
    service: Service, world: World
) -> None:
    key = world.key(Scope.BOOKINGS_READ)

    async def scenario() -> list[Any]:
        before = [service.authenticate(credentials(key)) for _ in range(8)]
        callers = await asyncio.gather(*before)
        world.database.write(lambda tx: keys.revoke(tx, callers[0].key.id, now=world.clock()))
        after = [service.authenticate(credentials(key)) for _ in range(8)]
        return [*callers, *await asyncio.gather(*after, return_exceptions=True)]

    assert [type(each) for each in asyncio.run(scenario())] == [Caller] * 8 + [ApiKeyRevoked] * 8


def test_a_key_that_is_not_valid_is_never_shared(service: Service, new_world: Callable[..., World]) -> None:
    world = new_world()
    key = world.key()
    revoked = identified(world, key)
    world.database.write(lambda tx: keys.revoke(tx, revoked.key.id, now=world.clock()))
    early = credentials(key)
    with service.database.reading() as tx:
        for each in (credentials(key), early):
            (refusal,) = service.authenticator.authenticate(tx, [each])
            assert isinstance(refusal, ApiKeyRevoked)
