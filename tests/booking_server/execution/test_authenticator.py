"""Clients without a key, keys that were seen to be valid, and the last use of each key."""

import asyncio
from collections.abc import Callable, Iterable

import pytest
from support.api.connections import Connection, SteppedLoop, echo, stepped_loop
from support.world.world import DAY, HOUR, NOON, World

from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.context import Caller
from booking_core.base.errors import Unavailable
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.organizations import keys
from booking_server.execution.authenticator import KeyUsage, KnownKeys, network_of, unmapped


@pytest.mark.parametrize(
    ("text", "network"),
    [
        *((text, "192.0.2.1") for text in ("192.0.2.1", "::ffff:192.0.2.1")),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        *((text, "unknown") for text in ("", "192.0.2.1, 192.0.2.2", "x" * 10_000)),
    ],
)
def test_a_client_is_an_ipv4_address_or_a_64(text: str, network: str) -> None:
    assert network_of(text) == network


def test_only_a_mapped_address_is_unmapped() -> None:
    texts = ("::ffff:192.0.2.1", "::FFFF:192.0.2.1", "::1", "192.0.2.1", "", "::ffff:nonsense")
    assert [unmapped(text) for text in texts] == ["192.0.2.1", "192.0.2.1", "::1", "192.0.2.1", "", "::ffff:nonsense"]


def test_a_connection_over_a_socket_for_both_families_has_its_ipv4_address() -> None:
    """So that a proxy is known by the network that is trusted."""
    with stepped_loop() as loop:
        assert client_of(loop, ("::ffff:10.0.0.1", 5000)) == ("10.0.0.1", 5000)
        assert client_of(loop, ("2001:db8::1", 5000)) == ("2001:db8::1", 5000)


def client_of(loop: SteppedLoop, peer: tuple[object, ...]) -> object:
    return Connection(loop, echo, peer=peer).protocol.client


def test_keys_that_worked_are_remembered_and_not_kept() -> None:
    memory = KnownKeys(4)
    memory.note("svc_good", "an organization")
    memory.note("svc_bad", None)
    assert ("svc_good" in memory, "svc_bad" in memory, "svc_other" in memory) == (True, False, False)
    assert (memory.organization_of("svc_good"), memory.organization_of("svc_bad")) == ("an organization", None)
    assert "svc_good" not in repr(memory.__dict__)
    memory.note("svc_good", None)
    assert "svc_good" not in memory


def test_no_more_than_so_many_keys_are_remembered() -> None:
    memory = KnownKeys(4)
    for number in range(100):
        memory.note(f"svc_{number}", "an organization")
        assert len(memory._organizations) <= 4
        assert f"svc_{number}" in memory


# The last use of each key --------------------------------------------------------------------------------------------

Identify = Callable[[str], Caller]


@pytest.fixture
def identify(world: World) -> Identify:
    def caller(text: str) -> Caller:
        return world.database.read(lambda tx: keys.identify(tx, text, world.installation))

    return caller


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that tests fill: for each of the next writes, True makes the database unavailable."""
    answers: list[bool] = []
    touch = keys.touch

    def sometimes(tx: Tx, uses: Iterable[tuple[str, str, int]]) -> None:
        if answers and answers.pop(0):
            raise Unavailable
        touch(tx, list(uses))

    monkeypatch.setattr(keys, "touch", sometimes)
    return answers


def last_uses(world: World) -> list[int | None]:
    return [row["last_used_at"] for row in world.rows(tables.api_keys)]


def test_a_key_is_written_once_in_a_minute(world: World, identify: Identify, statements: list[str]) -> None:
    text, usage = world.key(), KeyUsage(world.database)
    for _ in range(3):
        world.clock.advance(5 * SECOND)
        usage.note(identify(text))
    usage.flush()
    assert last_uses(world) == [NOON]
    usage.note(identify(text))
    statements.clear()
    usage.flush()
    assert statements == []


def test_a_use_is_written_after_the_clock_was_set_back(world: World, identify: Identify) -> None:
    text, usage = world.key(), KeyUsage(world.database)
    for step in (0, HOUR, -DAY, MINUTE):
        world.clock.advance(step)
        usage.note(identify(text))
        usage.flush()
        assert last_uses(world) == [world.clock()]


def test_a_failed_flush_is_written_the_next_time(world: World, identify: Identify, away: list[bool]) -> None:
    first, second, usage = world.key(), world.key(), KeyUsage(world.database)
    usage.note(identify(first))
    usage.note(identify(second))
    away.append(True)
    with pytest.raises(Unavailable):
        usage.flush()
    assert last_uses(world) == [None, None]
    world.clock.advance(MINUTE)
    usage.note(identify(second))
    usage.flush()
    assert sorted(filter(None, last_uses(world))) == [NOON, NOON + MINUTE]


def test_a_use_noted_during_a_failed_write_is_kept_as_the_newer(
    world: World, identify: Identify, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, usage = world.key(), KeyUsage(world.database)
    usage.note(identify(text))
    later = MINUTE

    def fails(*_: object) -> None:
        world.clock.advance(later)
        usage.note(identify(text))
        raise Unavailable

    with monkeypatch.context() as patched:
        patched.setattr(keys, "touch", fails)
        with pytest.raises(Unavailable):
            usage.flush()
    usage.flush()
    assert last_uses(world) == [NOON + MINUTE]


def test_flushing_goes_on_after_the_database_was_away(
    world: World, identify: Identify, away: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    text, usage = world.key(), KeyUsage(world.database)
    caller = identify(text)
    away.extend([True, True])

    async def serve() -> None:
        async with usage.flushing(every_s=0.001):
            usage.note(caller)
            while last_uses(world) != [NOON]:
                await asyncio.sleep(0.001)  # a turn of the loop, which writes it

    asyncio.run(asyncio.wait_for(serve(), 60))
    assert away == []
    assert caplog.text.count("are kept") == 1  # of two failures: one line for a period


@pytest.mark.parametrize("is_away", [False, True])
def test_a_stop_writes_last_uses_without_waiting_for_the_database(
    world: World, identify: Identify, away: list[bool], *, is_away: bool
) -> None:
    usage = KeyUsage(world.database)
    away.append(is_away)

    async def serve() -> None:
        async with usage.flushing(every_s=3600):
            usage.note(identify(world.key()))

    asyncio.run(serve())
    assert away == []
    assert last_uses(world) == [None if is_away else NOON]
