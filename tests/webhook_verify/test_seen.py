"""Stores of seen events: in memory, in Redis and in the receiver's database; an event is claimed once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from sqlalchemy.engine import make_url

from webhook_verify import DuplicateEvent, EventInProgress, MemorySeenStore, Verifier
from webhook_verify.redis import RedisSeenStore
from webhook_verify.sql import SeenTable

# Memory --------------------------------------------------------------------------------------------------------------


def test_an_event_is_claimed_once_until_it_is_released() -> None:
    store = MemorySeenStore()
    assert store.claim("a", 60)
    assert not store.claim("a", 60)
    assert store.claim("b", 60)
    store.release("a")
    store.release("never claimed")
    assert store.claim("a", 60)


def test_a_claim_ends_after_its_time() -> None:
    clock = Mock(return_value=0)
    store = MemorySeenStore(clock=clock)
    store.claim("a", 60)
    clock.return_value = 59
    assert not store.claim("a", 60)
    clock.return_value = 60
    assert store.claim("a", 60)


def test_the_oldest_claim_makes_room_for_a_new_one() -> None:
    store = MemorySeenStore(max_events=2)
    for event_id in "abc":
        store.claim(event_id, 60)
    assert not store.claim("c", 60)
    assert not store.claim("b", 60)
    assert store.claim("a", 60)


def test_ended_claims_are_dropped_before_living_ones() -> None:
    clock = Mock(return_value=0)
    store = MemorySeenStore(max_events=3, clock=clock)
    store.claim("short", 1)
    store.claim("long", 60)
    clock.return_value = 5
    store.claim("new", 60)
    store.claim("newer", 60)
    assert not store.claim("long", 60)


def test_of_many_threads_one_gets_the_event() -> None:
    store, start = MemorySeenStore(), Barrier(8)

    def take(_: int) -> bool:
        start.wait()
        return store.claim("a", 60)

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(take, range(8))) == [False] * 7 + [True]


def test_a_store_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_events"):
        MemorySeenStore(max_events=0)


# Redis ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Any]:
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(redis_url, decode_responses=request.param) as client:
        yield client
        client.flushall()


def test_an_event_is_in_progress_until_it_is_completed(client: Any) -> None:
    store, other = RedisSeenStore(client), RedisSeenStore(client)
    assert store.claim("a", 60)
    for each_store in (store, other):
        with pytest.raises(EventInProgress) as refused:
            each_store.claim("a", 60)
        assert refused.value.event_id == "a"
    assert other.claim("b", 60)
    store.complete("a", 60)
    assert not store.claim("a", 60)
    assert not other.claim("a", 60)


def test_a_released_event_can_be_claimed_again(client: Any) -> None:
    store, other = RedisSeenStore(client), RedisSeenStore(client)
    store.claim("a", 60)
    store.release("a")
    store.release("never claimed")
    assert other.claim("a", 60)


def test_claims_and_handled_events_expire(client: Any) -> None:
    store = RedisSeenStore(client, prefix="receiver:", lease=90)
    store.claim("a", 86_400)
    assert 89_000 < client.pttl("receiver:a") <= 90_000
    store.complete("a", 86_400)
    assert 86_399_000 < client.pttl("receiver:a") <= 86_400_000


def test_a_late_release_leaves_the_claim_of_another_process(client: Any) -> None:
    late, other = RedisSeenStore(client), RedisSeenStore(client)
    late.claim("a", 60)
    client.delete("webhook:a")  # the lease has ended
    other.claim("a", 60)
    late.release("a")
    with pytest.raises(EventInProgress):
        late.claim("a", 60)


def test_of_many_processes_one_claims_the_event(client: Any) -> None:
    start = Barrier(8)

    def take(_: int) -> bool:
        start.wait()
        try:
            return RedisSeenStore(client).claim("a", 60)
        except EventInProgress:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(take, range(8))) == [False] * 7 + [True]


def test_a_verifier_reports_the_state_of_an_event(
    client: Any, secret: str, now: int, body: bytes, headers: dict[str, str]
) -> None:
    verifier = Verifier(secret, clock=lambda: now, seen=RedisSeenStore(client))
    delivery = verifier.verify(body, headers)
    with pytest.raises(EventInProgress):
        verifier.verify(body, headers)
    verifier.settle(delivery, succeeded=False)
    delivery = verifier.verify(body, headers)
    verifier.settle(delivery, succeeded=True)
    with pytest.raises(DuplicateEvent):
        verifier.verify(body, headers)


def test_a_lease_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="lease"):
        RedisSeenStore(None, lease=0)


# SQL -----------------------------------------------------------------------------------------------------------------


Connect = Callable[[], Any]


@pytest.fixture
def connect(fresh_database_url: str) -> Iterator[Connect]:
    """Connections to one database, with a table of seen events and a table of effects."""
    url = make_url(fresh_database_url)
    is_sqlite = url.get_backend_name() == "sqlite"
    address = url.database if is_sqlite else url.set(drivername="postgresql").render_as_string(hide_password=False)
    connections: list[Any] = []

    def connect() -> Any:
        connection: Any = (
            sqlite3.connect(str(address), check_same_thread=False) if is_sqlite else psycopg.connect(address)
        )
        connections.append(connection)
        return connection

    first = connect()
    for statement in (SeenTable().ddl, "CREATE TABLE receiver_effects (event_id varchar(64) NOT NULL)"):
        first.cursor().execute(statement)
    first.commit()
    yield connect
    for connection in connections:
        connection.close()


def effect(connection: Any, event_id: str) -> None:
    connection.cursor().execute(f"INSERT INTO receiver_effects VALUES ('{event_id}')")


def effects(connect: Connect) -> list[str]:
    with closing(connect().cursor()) as cursor:
        cursor.execute("SELECT event_id FROM receiver_effects")
        return [event_id for (event_id,) in cursor.fetchall()]


def test_an_event_is_recorded_once(connect: Connect) -> None:
    table = SeenTable()
    for expected in (True, False, False):
        connection = connect()
        assert table.record(connection, "a") is expected
        connection.commit()
    assert table.record(connection, "b")


def test_an_event_whose_transaction_failed_is_handled_by_the_next_attempt(connect: Connect) -> None:
    table, connection = SeenTable(), connect()
    assert table.record(connection, "a")
    effect(connection, "a")
    connection.rollback()
    assert table.record(connection, "a")
    effect(connection, "a")
    connection.commit()
    assert effects(connect) == ["a"]


@pytest.mark.usefixtures("postgresql_only")
@pytest.mark.parametrize("commits", [True, False])
def test_of_two_deliveries_at_one_time_one_takes_effect(connect: Connect, commits: bool) -> None:
    table, first, second = SeenTable(), connect(), connect()
    begun = Event()

    def handle() -> bool:
        begun.set()
        try:
            return table.record(second, "a")
        except EventInProgress:
            second.rollback()
            return table.record(second, "a")

    assert table.record(first, "a")
    with ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(handle)
        begun.wait()
        first.commit() if commits else first.rollback()
        assert outcome.result() is not commits


def test_a_delivery_that_lost_the_race_is_in_progress(connect: Connect) -> None:
    class Overtaken:
        """A connection whose first statement is overtaken by another transaction that records the event."""

        def __init__(self, connection: Any) -> None:
            self.connection = connection

        def cursor(self) -> Any:
            cursor = self.connection.cursor()

            def fetchone() -> Any:
                row = cursor.fetchone()
                other = connect()
                assert SeenTable().record(other, "a")
                other.commit()
                return row

            return SimpleNamespace(execute=cursor.execute, fetchone=fetchone, close=cursor.close)

    paramstyle = "qmark" if isinstance(connect(), sqlite3.Connection) else "pyformat"
    with pytest.raises(EventInProgress):
        SeenTable(paramstyle=paramstyle).record(Overtaken(connect()), "a")


def test_old_events_are_purged(connect: Connect) -> None:
    clock = Mock(return_value=1_000.0)
    table, connection = SeenTable(clock=clock), connect()
    table.record(connection, "old")
    clock.return_value = 1_060.0
    table.record(connection, "young")
    clock.return_value = 1_100.0
    table.purge(connection, older_than=60)
    connection.commit()
    assert table.record(connection, "old")
    assert not table.record(connection, "young")


class Recording:
    """A connection that records its statements and selects nothing."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, tuple[object, ...]]] = []

    def cursor(self) -> Any:
        execute = lambda statement, values: self.statements.append((statement, values))  # noqa: E731
        return SimpleNamespace(execute=execute, fetchone=lambda: None, close=lambda: None)


@pytest.mark.parametrize(
    ("paramstyle", "marks"),
    [("qmark", "?, ?"), ("format", "%s, %s"), ("pyformat", "%s, %s"), ("numeric", ":1, :2"), ("named", ":1, :2")],
)
def test_the_values_have_the_marks_of_the_paramstyle(paramstyle: str, marks: str) -> None:
    connection = Recording()
    assert SeenTable("shop.events_1", paramstyle=paramstyle, clock=lambda: 5.0).record(connection, "a")
    assert connection.statements == [
        (f"SELECT 1 FROM shop.events_1 WHERE event_id = {marks.split(',')[0]}", ("a",)),
        (f"INSERT INTO shop.events_1 (event_id, seen_at) VALUES ({marks})", ("a", 5.0)),
    ]


def test_a_connection_of_unknown_paramstyle_is_refused() -> None:
    with pytest.raises(TypeError, match="paramstyle of Recording is unknown"):
        SeenTable().record(Recording(), "a")


@pytest.mark.parametrize("options", [{"paramstyle": "other"}, {"table": "events; DROP TABLE events"}, {"table": ""}])
def test_options_that_fit_no_statement_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SeenTable(**options)  # type: ignore[arg-type]


def test_other_errors_of_the_database_are_raised(connect: Connect) -> None:
    with pytest.raises(Exception, match="elsewhere"):
        SeenTable("elsewhere").record(connect(), "a")
