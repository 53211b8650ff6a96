"""Transactions behave alike on both databases."""

import sqlite3

import psycopg
import pytest
from sqlalchemy import bindparam, literal_column, select
from support.world import World

from booking_core.db import migrate, tables
from booking_core.db.engine import Asked, Database, Tx
from booking_core.db.statements import Statement
from booking_core.db.writes import Change, Writes
from booking_core.errors import NotFound

BUMP = Change("bump", tables.counters, adds=("last_booking_number",), keys=("organization_id",))


LAST = Statement(
    select(tables.counters.c.last_booking_number).where(tables.counters.c.organization_id == bindparam("o"))
)


def number(database: Database, organization_id: str) -> int:
    row = database.read(lambda tx: tx.first(LAST, o=organization_id))
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


def test_what_is_asked_together_is_answered_in_order_within_the_transaction(world: World) -> None:
    def asking(tx: Tx) -> list[int]:
        tx.write(bump(world))
        counted = Asked(LAST, {"o": world.org}, lambda found: int(found[0][0]))
        return tx.together(counted, Asked(None, {}, lambda found: 7 + len(found)), counted)

    assert world.database.write(asking) == [1, 7, 1]
    assert world.database.read(lambda tx: tx.together(Asked(LAST, {"o": world.org}, len))) == [1]


def test_one_that_fails_of_those_asked_together_undoes_all(world: World) -> None:
    fails = Statement(select(literal_column("json('no')" if world.database.is_sqlite else "CAST(lower('NO') AS json)")))

    def asking(tx: Tx) -> None:
        tx.write(bump(world))
        counted = Asked(LAST, {"o": world.org}, list)
        tx.together(counted, Asked(fails, {}, list), counted)

    with pytest.raises((sqlite3.OperationalError, psycopg.DataError)):
        world.database.write(asking)
    assert number(world.database, world.org) == 0
    world.database.write(lambda tx: tx.write(bump(world)))
    assert number(world.database, world.org) == 1


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
