"""The caller of a request: the access of a key, and the reasons for a refusal."""

from collections.abc import Callable

import pytest
from support.world.world import World

from booking_core.base import tokens
from booking_core.base.clock import HOUR, MINUTE
from booking_core.base.context import Caller
from booking_core.base.errors import ApiKeyExpired, ApiKeyInvalid, ApiKeyRevoked, BookingError
from booking_core.models.scopes import Scope
from booking_core.organizations import keys


def identify_many(world: World, *texts: str) -> list[Caller | BookingError]:
    return world.database.read(lambda tx: keys.identify_many(tx, texts, world.installation))


def identify(world: World, text: str) -> Caller:
    return world.database.read(lambda tx: keys.identify(tx, text, world.installation))


def test_a_key_identifies_organization_scopes_and_time(world: World) -> None:
    caller = identify(world, world.key(Scope.BOOKINGS_READ, Scope.BOOKINGS_WRITE))
    assert caller.organization == world.organization
    assert caller.key.organization_id == world.org
    assert caller.at == world.clock()
    assert caller.has(Scope.BOOKINGS_WRITE)
    assert not caller.has(Scope.CUSTOMERS_READ)
    assert caller.installation is world.installation


def test_answers_come_in_the_order_of_the_questions(world: World, new_world: Callable[..., World]) -> None:
    other = new_world()
    key, other_key, unknown = world.key(), other.key(), tokens.new_api_key()
    revoked, expired = world.key(revoked_at=world.clock()), world.key(expires_at=world.clock())
    answers = identify_many(world, other_key, unknown, key, expired, key, "svc_short", revoked)
    identities = [answer.organization.id if isinstance(answer, Caller) else type(answer) for answer in answers]
    assert identities == [other.org, ApiKeyInvalid, world.org, ApiKeyExpired, world.org, ApiKeyInvalid, ApiKeyRevoked]


def test_many_keys_take_one_statement(world: World, statements: list[str]) -> None:
    texts = [world.key() for _ in range(5)]
    statements.clear()
    assert len(identify_many(world, *texts, *texts, tokens.new_api_key())) == 11
    assert len(statements) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "svc_",
        "svc_" + "a" * 39,
        "svc_" + "a" * 41,
        "svc_" + "a" * 40 + "\n",
        "SVC_" + "a" * 40,
        "svc_" + "a" * 39 + "-",
        "sk_" + "a" * 41,
        "svc_" + "a" * 20 + " " + "a" * 19,
        "' OR 1=1 --",
        "svc_" + "é" * 40,
        "svc_" + "٣" * 40,
        "svc_" + "a" * 39 + "\x00",
        "svc_" + "\ud800" * 40,
        "svc_" + "a" * 1_000_000,
    ],
)
def test_a_malformed_key_is_never_sent_to_the_database(world: World, statements: list[str], text: str) -> None:
    with pytest.raises(ApiKeyInvalid):
        identify(world, text)
    assert statements == []


def test_nothing_to_identify_asks_nothing(world: World, statements: list[str]) -> None:
    assert identify_many(world) == []
    assert statements == []


def test_each_refusal_is_an_exception_of_its_own(world: World) -> None:
    one, other = identify_many(world, "nonsense", "nonsense")
    assert one is not other


def last_used_at(world: World, key: str) -> int | None:
    return identify(world, key).key.last_used_at


def touch(world: World, *uses: tuple[str, str, int]) -> None:
    world.database.write(lambda tx: keys.touch(tx, uses))


def test_last_use_is_kept_to_the_minute_and_only_moves_forward(world: World) -> None:
    key = world.key()
    key_id, noon = identify(world, key).key.id, world.clock()
    assert last_used_at(world, key) is None
    touch(world, (world.org, key_id, noon + 59_999_999))
    assert last_used_at(world, key) == noon
    touch(world, (world.org, key_id, noon + MINUTE), (world.org, key_id, noon + 3 * MINUTE), (world.org, key_id, noon))
    assert last_used_at(world, key) == noon + 3 * MINUTE
    touch(world, (world.org, key_id, noon + MINUTE))
    assert last_used_at(world, key) == noon + 3 * MINUTE


def test_an_instant_of_more_than_an_hour_ahead_is_corrected(world: World) -> None:
    key = world.key()
    key_id, noon = identify(world, key).key.id, world.clock()
    touch(world, (world.org, key_id, noon + HOUR))
    touch(world, (world.org, key_id, noon))
    assert last_used_at(world, key) == noon + HOUR
    touch(world, (world.org, key_id, noon - MINUTE))
    assert last_used_at(world, key) == noon - MINUTE


def test_recording_the_use_of_many_keys_takes_two_statements(world: World, statements: list[str]) -> None:
    texts = [world.key() for _ in range(4)]
    ids = [identify(world, text).key.id for text in texts]
    statements.clear()
    touch(world, *((world.org, key_id, world.clock()) for key_id in ids))
    assert len(statements) == 2, "they are locked and updated"
    assert [last_used_at(world, text) for text in texts] == [world.clock()] * 4
    statements.clear()
    touch(world, (world.org, ids[0], world.clock() + 1))
    assert len(statements) == 1, "a use in the same minute writes nothing"


def test_a_use_with_another_organization_updates_no_key(world: World, new_world: Callable[..., World]) -> None:
    key = world.key()
    touch(world, (new_world().org, identify(world, key).key.id, world.clock()))
    assert last_used_at(world, key) is None


def test_no_use_asks_nothing(world: World, statements: list[str]) -> None:
    touch(world)
    assert statements == []
