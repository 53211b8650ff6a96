"""A sealed value opens in its own row, column and organization, and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest
from support.world.sealed import PURPOSES, Sealed, bound_to
from support.world.world import World

from booking_core.db import tables


@pytest.fixture
def sealed(world: World) -> Sealed:
    return Sealed(world).fill()


@pytest.fixture
def sealed_alone(alone: World) -> Sealed:
    return Sealed(alone).fill()


@pytest.mark.parametrize("table", PURPOSES, ids=lambda table: table.name)
def test_a_value_opens_in_its_row_and_in_no_other(sealed: Sealed, new_world: Callable[..., World], table: Any) -> None:
    keys, (purpose, column) = sealed.world.installation.secret_keys, PURPOSES[table]
    row = sealed.world.rows(table)[0]
    place = bound_to(table, row)
    assert keys.open(purpose, row[column], *place)
    others = [(new_world().org, *place[1:])]
    others += [(*place[:at], sealed.departure, *place[at + 1 :]) for at in range(1, len(place))]
    for other in others:
        with pytest.raises(ValueError, match="another row"):
            keys.open(purpose, row[column], *other)
    for foreign, _ in PURPOSES.values():
        if foreign != purpose:
            with pytest.raises(ValueError, match="another row"):
                keys.open(foreign, row[column], *place)


def test_a_secret_that_is_moved_to_another_endpoint_signs_nothing(sealed_alone: Sealed) -> None:
    from support.world.hooks import Hooks

    hooks = Hooks(sealed_alone.world)
    other = hooks.endpoint()
    rows = {row["endpoint_id"]: row for row in sealed_alone.world.rows(tables.webhook_secrets)}
    moved = rows[sealed_alone.endpoint]["secret_sealed"]
    sealed_alone.overwrite(tables.webhook_secrets, rows[other], secret_sealed=moved)
    hooks.publish()
    assert {claimed.endpoint_id for claimed in hooks.claim(free=10)} == {sealed_alone.endpoint}


def test_a_response_moved_to_another_key_is_never_replayed(sealed: Sealed) -> None:
    from support.world.creating import create, created

    from booking_core.base.errors import IdempotencyKeyReused

    sealed.book("another-key-of-a-guest")
    rows = {row["key"]: row for row in sealed.world.rows(tables.idempotency)}
    (mine, other) = rows["a-key-of-a-guest"], rows["another-key-of-a-guest"]
    sealed.overwrite(tables.idempotency, other, body_sealed=mine["body_sealed"])
    (answer,) = created(sealed.database, [create(sealed.world, sealed.departure, "another-key-of-a-guest")])
    assert isinstance(answer, IdempotencyKeyReused)
