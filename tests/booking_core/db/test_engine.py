"""Transactions behave alike on both databases."""

import sqlite3
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import bindparam, literal_column, select
from sqlalchemy.engine import make_url
from support.world import World

from booking_core.db import migrate, postgres, tables
from booking_core.db.engine import Asked, Database, Tx
from booking_core.db.statements import Compiled, Statement
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


def test_a_plan_made_while_a_table_was_empty_is_made_anew(new_database_url: Callable[[str], str]) -> None:
    """PostgreSQL keeps a plan, and on a new installation the best is to read tables whole, since nothing is in them."""
    url = make_url(new_database_url("postgresql")).set(drivername="postgresql")
    connection = postgres.PostgresConnection(url.render_as_string(hide_password=False))
    look_up = Compiled("SELECT b FROM grown WHERE a = CAST($1 AS integer)", ("a",), {}, wants_now=False)

    def plan() -> str:
        return str(connection._libpq.exec_(b"EXPLAIN EXECUTE s0('7')").get_value(0, 0))

    connection.command("CREATE TABLE grown (a integer PRIMARY KEY, b text)")
    connection.command("VACUUM grown")
    for _ in range(postgres._FIRST_PLANS - 1):
        connection.execute(look_up, {"a": 7})
    connection.command("INSERT INTO grown SELECT each, 'text' FROM generate_series(1, 10000) each")
    assert "Seq Scan" in plan()
    assert connection.execute(look_up, {"a": 7}) == ([("text",)], 1)
    assert "Index Scan" in plan()
    connection.close()
