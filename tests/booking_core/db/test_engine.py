"""Transactions behave alike on both databases."""

import pytest
from support.world import World

from booking_core.db import migrate, tables
from booking_core.db.engine import Database, Tx
from booking_core.db.writes import Change, Writes
from booking_core.errors import NotFound

BUMP = Change("bump", tables.counters, adds=("last_booking_number",), keys=("organization_id",))


def number(database: Database, organization_id: str) -> int:
    from sqlalchemy import bindparam, select

    from booking_core.db.statements import Statement

    counters = tables.counters
    query = select(counters.c.last_booking_number).where(counters.c.organization_id == bindparam("o"))
    row = database.read(lambda tx: tx.first(Statement(query), o=organization_id))
    assert row is not None
    return int(row[0])


def bump(world: World, by: int = 1) -> Writes:
    pending = Writes()
    pending.change(BUMP, organization_id=world.org, last_booking_number=by)
    return pending


def test_a_migrated_database_has_exactly_the_tables_of_the_schema(shared_database_url: str) -> None:
    assert migrate.current(shared_database_url) == migrate.head()
    assert migrate.differences(shared_database_url) == []


def test_upgrading_twice_changes_nothing(fresh_database_url: str) -> None:
    migrate.upgrade(fresh_database_url)
    assert migrate.differences(fresh_database_url) == []


def test_what_raises_is_rolled_back(world: World) -> None:
    def fail(tx: Tx) -> None:
        tx.write(bump(world))
        raise NotFound

    with pytest.raises(NotFound):
        world.database.write(fail)
    assert number(world.database, world.org) == 0


def test_one_that_fails_among_many_undoes_only_itself(world: World) -> None:
    def fail(tx: Tx) -> int:
        tx.write(bump(world, 100))
        raise NotFound

    def work(tx: Tx) -> int:
        tx.write(bump(world))
        return 7

    first, second, third = world.database.write_each([work, fail, work])
    assert (first, third) == (7, 7)
    assert isinstance(second, NotFound)
    assert number(world.database, world.org) == 2
