"""Uses of keys are written at an interval, and none is lost while the database is away."""

import asyncio
from collections.abc import Callable, Iterable

import pytest
from support.world import DAY, HOUR, NOON, World

from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.context import Caller
from booking_core.base.errors import Unavailable
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.organizations import keys
from booking_server.execution.authenticator import KeyUsage

Identify = Callable[[str], Caller]


@pytest.fixture
def identify(world: World) -> Identify:
    def caller(text: str) -> Caller:
        (found,) = world.database.read(lambda tx: keys.identify_many(tx, [text], world.installation))
        assert isinstance(found, Caller)
        return found

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
                await asyncio.sleep(0.001)  # a turn of the loop, in which it is written

    asyncio.run(asyncio.wait_for(serve(), 60))
    assert away == []
    assert caplog.text.count("are kept") == 1  # of two failures: one line for a period


def test_the_last_uses_are_written_when_the_process_stops(world: World, identify: Identify) -> None:
    text, usage = world.key(), KeyUsage(world.database)

    async def serve() -> None:
        async with usage.flushing(every_s=3600):
            usage.note(identify(text))

    asyncio.run(serve())
    assert last_uses(world) == [NOON]


def test_an_unavailable_database_does_not_keep_the_process_from_stopping(
    world: World, identify: Identify, away: list[bool]
) -> None:
    usage = KeyUsage(world.database)
    usage.note(identify(world.key()))
    away.append(True)

    async def serve() -> None:
        async with usage.flushing(every_s=3600):
            pass

    asyncio.run(serve())
    assert away == []
