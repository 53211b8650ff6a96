"""A key's life: created, shown once, rotated, expired, revoked; and never more than twenty active."""

from collections.abc import Callable
from typing import Any

import pytest
from support.databases import due
from support.serving.threads import together
from support.world.world import DAY, HOUR, NOON, World

from booking_core.base import clock
from booking_core.base.context import CallerKey, Organization
from booking_core.base.errors import ApiKeyExpired, ApiKeyRevoked, Conflict, Malformed, NotFound
from booking_core.db import tables
from booking_core.models.organizations import ApiKey as WireApiKey
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.organizations import keys


def create(world: World, **fields: Any) -> tuple[CallerKey, str]:
    columns = {"name": "Channel manager"} | fields
    return world.database.write(lambda tx: keys.create(tx, world.organization, **columns, now=world.clock()))


def get(world: World, key_id: str) -> CallerKey:
    return world.database.read(lambda tx: keys.get(tx, key_id))[0]


def rotate(world: World, key: CallerKey, overlap: int = DAY) -> tuple[CallerKey, str, Organization]:
    return world.database.write(lambda tx: keys.rotate(tx, key.id, overlap=overlap, now=world.clock()))


def revoke(world: World, key: CallerKey) -> CallerKey:
    return world.database.write(lambda tx: keys.revoke(tx, key.id, now=world.clock()))[0]


def expire(world: World, key: CallerKey, at: int) -> CallerKey:
    return world.database.write(lambda tx: keys.expire(tx, key.id, at=at, now=world.clock()))[0]


def identify(world: World, text: str) -> CallerKey:
    return world.database.read(lambda tx: keys.identify(tx, text, world.installation)).key


def fill(world: World, **fields: Any) -> list[CallerKey]:
    return [create(world, **fields)[0] for _ in range(20)]


def successes(act: Callable[[], object], times: int) -> int:
    """Call a function so many times at once and return how many calls met no conflict."""

    def attempt() -> bool:
        try:
            act()
        except Conflict:
            return False
        return True

    return sum(together(*[attempt] * times))


def test_a_created_key_opens_and_is_kept_as_a_hash(world: World) -> None:
    key, text = create(world, scopes=[Scope.BOOKINGS_WRITE], expires_at=world.clock() + DAY)
    assert key.prefix == text[:12]
    assert identify(world, text) == get(world, key.id) == key
    assert key.scopes == {Scope.BOOKINGS_WRITE}


def test_a_key_has_every_read_scope_unless_scopes_are_named(world: World) -> None:
    key, _ = create(world)
    assert key.scopes == READ_SCOPES


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"scopes": ["bookings:read", "bookings:delete"]}, "scopes", "unknown_value"),
        ({"scopes": [""]}, "scopes", "unknown_value"),
        ({"name": "  "}, "name", "too_short"),
        ({"name": "x" * 201}, "name", "too_long"),
        ({"name": "two\nlines"}, "name", "forbidden_character"),
        ({"expires_at": NOON}, "expires_at", "in_the_past"),
        ({"expires_at": clock.END_OF_TIME}, "expires_at", "out_of_range"),
    ],
)
def test_a_bad_key_is_refused_with_the_field_named(
    world: World, fields: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(Malformed) as refused:
        create(world, **fields)
    assert [(detail.field, detail.reason) for detail in refused.value.details] == [(field, reason)]
    assert world.database.read(lambda tx: keys.find(tx, world.organization)) == []


@pytest.mark.parametrize("name", ["x", "x" * 200])
def test_a_name_has_1_to_200_characters(world: World, name: str) -> None:
    assert create(world, name=name)[0].name == name


def test_revoked_and_expired_keys_make_room(world: World) -> None:
    one, other, *_ = fill(world)
    revoke(world, one)
    create(world)
    expire(world, other, world.clock() + HOUR)
    with pytest.raises(Conflict):
        create(world)
    world.clock.advance(HOUR)
    create(world)


def test_forty_creations_at_once_leave_exactly_twenty_keys(world: World) -> None:
    assert successes(lambda: create(world), 40) == 20
    assert len(world.database.read(lambda tx: keys.find(tx, world.organization))) == 20


def test_rotations_at_once_leave_at_most_twenty_active_keys(world: World) -> None:
    key = create(world)[0]
    for _ in range(17):
        create(world)
    assert successes(lambda: rotate(world, key), 10) == 2


def test_a_key_is_rotated_once_by_rotations_at_once_without_overlap(world: World) -> None:
    key = create(world)[0]
    assert successes(lambda: rotate(world, key, overlap=0), 10) == 1


def test_keys_are_found_oldest_first_and_only_ones_own(world: World, new_world: Callable[..., World]) -> None:
    create(new_world())
    created = []
    for _ in range(3):
        created.append(create(world)[0])
        world.clock.advance(1)
    revoke(world, created[0])
    listed = world.database.read(lambda tx: keys.find(tx, world.organization))
    assert [key.id for key in listed] == [key.id for key in created]


def test_a_key_is_shown_by_its_id_with_its_organization(world: World) -> None:
    key, _ = create(world)
    assert world.database.read(lambda tx: keys.get(tx, key.id.upper())) == (key, world.organization)


@pytest.mark.parametrize("key_id", ["", "nonsense", "svc_00000000", "\x00", "01a1fe93-354a-7db4-921b-642599971277"])
def test_an_unknown_id_is_not_found(world: World, key_id: str) -> None:
    with pytest.raises(NotFound):
        get(world, key_id)


def test_a_prefix_or_a_whole_key_names_the_key(world: World) -> None:
    (key, text), _ = create(world), create(world)
    for reference in (key.id, key.prefix, text):
        assert world.database.read(lambda tx, name=reference: keys.resolve_id(tx, name)) == key.id
    with pytest.raises(NotFound, match="There is no key 'svc_00000000'"):
        world.database.read(lambda tx: keys.resolve_id(tx, f"svc_{'0' * 40}"))


def test_a_prefix_of_two_keys_names_neither(world: World) -> None:
    first, second = create(world)[0], create(world)[0]
    world.change(tables.api_keys, second.id, prefix=first.prefix)
    with pytest.raises(Conflict, match="name one by its id") as refused:
        world.database.read(lambda tx: keys.resolve_id(tx, first.prefix))
    assert refused.value.reason == "ambiguous_prefix"


def change(world: World, key: CallerKey, **fields: Any) -> CallerKey:
    return world.database.write(lambda tx: keys.update(tx, key.id, **fields, now=world.clock()))[0]


def test_a_key_gets_another_name_and_other_scopes(world: World) -> None:
    key, text = create(world)
    assert identify(world, text).scopes == READ_SCOPES
    changed = change(world, key, scopes=[Scope.BOOKINGS_WRITE])
    assert (changed.name, changed.scopes) == (key.name, {Scope.BOOKINGS_WRITE})
    assert identify(world, text) == get(world, key.id) == changed
    renamed = change(world, key, name=" Website ")
    assert (renamed.name, renamed.scopes) == ("Website", {Scope.BOOKINGS_WRITE})
    assert identify(world, text) == renamed


@pytest.mark.parametrize(("fields", "field"), [({"name": ""}, "name"), ({"scopes": ["everything"]}, "scopes")])
def test_a_bad_change_of_a_key_is_refused(world: World, fields: dict[str, Any], field: str) -> None:
    key, _ = create(world)
    with pytest.raises(Malformed) as refused:
        change(world, key, **fields)
    assert (refused.value.details[0].field, get(world, key.id)) == (field, key)


def test_a_revoked_key_is_not_changed(world: World) -> None:
    key, _ = create(world)
    revoke(world, key)
    with pytest.raises(Conflict):
        change(world, key, name="Website")


def test_a_key_revoked_twice_keeps_the_first_instant(world: World) -> None:
    key, text = create(world)
    first = revoke(world, key)
    world.clock.advance(HOUR)
    assert revoke(world, key) == first == get(world, key.id)
    with pytest.raises(ApiKeyRevoked):
        identify(world, text)


def test_a_rotated_key_lives_for_the_overlap_beside_its_successor(world: World) -> None:
    key, old = create(world, name="Website", scopes=["bookings:write"])
    successor, new, organization = rotate(world, key)
    assert (successor.name, successor.scopes, successor.expires_at) == ("Website", {"bookings:write"}, None)
    assert organization == world.organization
    world.clock.advance(DAY - 1)
    assert identify(world, old).id == key.id
    world.clock.advance(1)
    assert identify(world, new).id == successor.id
    with pytest.raises(ApiKeyExpired):
        identify(world, old)


def test_a_rotation_never_prolongs_the_old_key(world: World) -> None:
    key, _ = create(world, expires_at=world.clock() + HOUR)
    rotate(world, key)
    assert get(world, key.id).expires_at == world.clock() + HOUR


def test_a_successor_lives_as_long_as_its_predecessor_was_meant_to(world: World) -> None:
    key, _ = create(world, expires_at=world.clock() + 90 * DAY)
    world.clock.advance(80 * DAY)
    successor, _, _ = rotate(world, key)
    assert successor.expires_at == world.clock() + 90 * DAY


def test_a_full_organization_rotates_without_an_overlap_and_not_with_one(world: World) -> None:
    key = fill(world)[0]
    with pytest.raises(Conflict) as refused:
        rotate(world, key, overlap=HOUR)
    assert refused.value.reason == "key_limit_reached"
    assert get(world, key.id).expires_at is None
    rotate(world, key, overlap=0)
    assert get(world, key.id).expires_at == world.clock()


def test_a_revoked_or_expired_key_is_neither_rotated_nor_reactivated(world: World) -> None:
    revoked = revoke(world, create(world)[0])
    expired = expire(world, create(world)[0], world.clock())
    for key, reason in ((revoked, "key_revoked"), (expired, "key_expired")):
        for act in (lambda key: rotate(world, key), lambda key: expire(world, key, world.clock() + DAY)):
            with pytest.raises(Conflict) as refused:
                act(key)
            assert refused.value.reason == reason


def test_an_end_can_be_moved_while_it_lies_ahead(world: World) -> None:
    key, text = create(world, expires_at=world.clock() + HOUR)
    assert expire(world, key, world.clock() + DAY).expires_at == world.clock() + DAY
    world.clock.advance(2 * HOUR)
    assert identify(world, text).expires_at == get(world, key.id).expires_at


def test_an_end_that_is_past_is_now(world: World) -> None:
    key, text = create(world)
    world.clock.advance(HOUR)
    assert expire(world, key, 0).expires_at == world.clock()
    with pytest.raises(ApiKeyExpired):
        identify(world, text)


def test_every_end_can_be_shown(world: World) -> None:
    key, _ = create(world, expires_at=keys.LATEST_END - 1)
    world.clock.advance(DAY)
    for live_key in (key, rotate(world, key)[0]):
        assert live_key.expires_at == keys.LATEST_END - 1
        assert keys.present(live_key, clock.zone("Pacific/Kiritimati"))["expires_at"].startswith("9999-01-01")
        assert keys.present(live_key, clock.zone("Etc/GMT+12"))["expires_at"].startswith("9998-12-31")
    with pytest.raises(Malformed):
        expire(world, key, keys.LATEST_END)


def test_the_status_agrees_with_authentication(world: World) -> None:
    key, _ = create(world, expires_at=world.clock() + HOUR)
    assert keys.status(key, world.clock()) == "active"
    assert keys.status(key, world.clock() + HOUR) == "expired"
    assert keys.status(revoke(world, key), world.clock() + HOUR) == "revoked"


def test_a_key_is_shown_as_the_wire_has_it(world: World) -> None:
    key, text = create(world, scopes=["bookings:write", "bookings:read"], expires_at=world.clock() + DAY)
    world.database.write(lambda tx: keys.touch(tx, [(world.org, key.id, world.clock())]))
    body = keys.present(get(world, key.id), world.organization.zone)
    assert body["created_at"] == "2026-11-21T13:00:00+01:00"
    assert body["last_used_at"] == "2026-11-21T13:00:00+01:00"
    assert body["scopes"] == ["bookings:read", "bookings:write"]
    assert text not in str(body)
    assert WireApiKey.model_validate(body).to_json() == body
    assert set(body) == set(WireApiKey.model_fields)


def test_the_stored_row_holds_no_plain_text(world: World) -> None:
    key, text = create(world)
    assert text[12:] not in str(world.row(tables.api_keys, key.id))


def test_staff_is_warned_of_a_key_a_week_before_it_expires(world: World) -> None:
    key, _ = create(world, expires_at=world.clock() + 7 * DAY + 1)
    assert due.warn_of_keys(world) == 0
    world.clock.advance(1)
    assert [due.warn_of_keys(world), due.warn_of_keys(world)] == [1, 0]
    (mail,) = world.rows(tables.effects)
    assert (mail["kind"], mail["subject_id"]) == ("staff_key_expiring_mail", key.id)
