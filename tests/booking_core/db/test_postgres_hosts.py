"""Servers that are frozen, gone or not the one that takes writes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from support.servers import free_port

from booking_core.base.errors import Unavailable
from booking_core.db import postgres, postgres_hosts
from booking_core.db.engine import Database
from booking_core.db.postgres_hosts import Address, Connector, SignsOfLife, gives_sign_of_life
from booking_core.db.statements import Statement

HERE: Address = ("127.0.0.1", "5432")


@pytest.fixture
def url(new_database_url: Callable[[str], str]) -> str:
    return new_database_url("postgresql")


@contextmanager
def silent_server() -> Iterator[int]:
    """Accept connections and answer nothing, as the kernel of a frozen process does; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_server_is_lost_after_two_missing_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked, lives = 0.0, 0, False

    def sign(address: Address) -> bool:
        nonlocal asked
        asked += 1
        return lives

    monkeypatch.setattr(postgres_hosts, "gives_sign_of_life", sign)
    signs = SignsOfLife(clock=lambda: now)
    assert [signs.is_lost(HERE, 0), signs.is_lost(HERE, 0)] == [False, True]
    assert signs.is_lost(HERE, 0)  # a connection from before: known without a question
    assert asked == 2
    assert not signs.is_lost(HERE, 1)  # a connection that was opened since
    lives = True
    assert [signs.is_lost(HERE, 1) for _ in range(5)] == [False] * 5
    assert asked == 4  # a sign of life counts for a moment for all
    now += 1
    signs.is_lost(HERE, 1)
    assert asked == 5


def test_a_server_that_answers_or_refuses_lives_and_a_silent_one_does_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_hosts, "SIGN_OF_LIFE_S", 0.05)
    with silent_server() as port:
        assert not gives_sign_of_life(("127.0.0.1", str(port)))
    assert gives_sign_of_life(("127.0.0.1", str(free_port())))
    monkeypatch.setattr(postgres_hosts, "SIGN_OF_LIFE_S", 30)
    with closing(Connector(make_url(url)).connect()) as connection:
        assert gives_sign_of_life(postgres_hosts.address_of(connection))


def test_a_statement_on_a_frozen_server_is_given_up_and_no_connection_to_it_is_used_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statements may take as long as they like: only the missing signs of life end them."""
    monkeypatch.setattr(postgres, "SILENCE_S", 0.02)
    monkeypatch.setattr(postgres, "RESPONSE_TIMEOUT_S", 600)
    database, sleep = Database(url), Statement(text("SELECT pg_sleep(600)"))
    with database._writers.connection() as kept, database._writers.connection():
        pass
    lives = threading.Event()
    lives.set()
    monkeypatch.setattr(postgres_hosts, "gives_sign_of_life", lambda _: lives.is_set())
    threading.Timer(0.2, lives.clear).start()
    with pytest.raises(Unavailable) as raised:
        database.write(lambda tx: tx.all(sleep))
    assert raised.value.for_all
    assert kept.broken
    lives.set()
    assert database.read(lambda tx: tx.now())
    database.close()


def test_of_several_hosts_the_one_that_answers_is_taken_and_remembered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_hosts, "HOST_TIMEOUT_S", 2)
    target = make_url(url)
    alive = str(target.query.get("host", target.host))
    with silent_server() as port:
        several = target.set(host=None, port=None).update_query_dict(
            {"host": f"127.0.0.1,{alive}", "port": f"{port},{target.port or 5432}"}
        )
        connector, tried = Connector(several), 0
        connect = postgres_hosts._connect

        def counted(parameters: dict[str, str], timeout_s: int) -> psycopg.Connection:
            nonlocal tried
            tried += 1
            return connect(parameters, timeout_s)

        monkeypatch.setattr(postgres_hosts, "_connect", counted)
        connector.connect().close()
        assert tried == 2
        connector.connect().close()
        assert tried == 3


def test_of_several_hosts_one_that_was_found_frozen_is_tried_last_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new connection would wait for it for two seconds otherwise, since it was the one that worked."""
    now_s, tried = 100.0, list[str]()
    connector = Connector(make_url("postgresql:///booking?host=127.0.0.1,127.0.0.2&port=5433,5434"))
    connector.signs = SignsOfLife(clock=lambda: now_s)
    monkeypatch.setattr(postgres_hosts, "gives_sign_of_life", lambda _: False)

    def refused(parameters: dict[str, str], _: int) -> psycopg.Connection:
        tried.append(parameters["port"])
        raise psycopg.OperationalError

    monkeypatch.setattr(postgres_hosts, "_connect", refused)
    for _ in range(2):
        connector.signs.is_lost(("127.0.0.1", "5433"), 0)
    for seconds in (0.0, postgres_hosts.FROZEN_S):
        now_s += seconds
        with pytest.raises(psycopg.OperationalError):
            connector.connect()
    assert tried == ["5434", "5433", "5433", "5434"]
