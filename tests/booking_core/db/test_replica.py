"""Rules of reading from a replica, as functions; a real one is in tests/system/test_replica.py."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import literal_column, select

from booking_core.db import replica
from booking_core.db.engine import Database, Tx
from booking_core.db.replica import AHEAD, BEHIND, OTHER, PAUSED, PROMOTED, Position, ReadFromPrimary, Replica
from booking_core.db.statements import Statement

_ONE = Statement(select(literal_column("1")))
POSITION = Position("100:105:101,103", "0/30182B0", "00000001", "7711076115790798083")


@pytest.fixture
def primary(postgres_server: str) -> Iterator[Database]:
    with closing(Database(postgres_server)) as database:
        yield database


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ((True, True, True, True), None),
        ((True, True, True, False), BEHIND),
        ((True, True, True, None), BEHIND),
        ((False, True, True, True), PROMOTED),
        ((True, False, True, True), OTHER),
        ((True, True, False, True), OTHER),
    ],
)
def test_a_server_is_read_only_if_it_is_a_replica_of_that_cluster_and_timeline_that_has_caught_up(
    state: tuple[bool | None, ...], reason: str | None
) -> None:
    assert replica._reason(state) == reason


@pytest.mark.parametrize(
    ("shown_before", "may_be_newer"),
    [
        (99, False),
        (101, False),  # 101 is still in progress on both
        (102, True),
        (105, True),
        (106, True),
    ],
)
def test_a_transaction_in_progress_on_the_primary_may_be_shown_by_a_replica_that_has_passed_it(
    shown_before: int, may_be_newer: bool
) -> None:
    assert POSITION.has_newer(shown_before) is may_be_newer


def test_a_replica_with_the_same_finished_transactions_shows_nothing_newer() -> None:
    assert not Position("105:105:", *POSITION[1:]).has_newer(105)
    assert Position("105:105:", *POSITION[1:]).has_newer(106)


def test_a_server_that_takes_writes_is_not_read_and_not_asked_again(primary: Database) -> None:
    url = primary.url.render_as_string(hide_password=False)
    read = Replica(primary, url, size=1, start=lambda probe: probe())
    with primary.reading() as tx:
        assert read.position(tx) is None  # the first probe has found it out
        assert read.probe() == "takes writes itself, so that it is no replica"
        position = replica.position_of(tx)
        with pytest.raises(ReadFromPrimary) as refused:
            read.read(tx, lambda on_replica: on_replica.all(_ONE), position, now=0)
    assert refused.value.reason == PROMOTED
    assert read.reads == {PROMOTED: 1}


def test_while_it_is_not_asked_a_list_costs_no_statement_and_one_caller_starts_a_probe(primary: Database) -> None:
    probes: list[object] = []
    read = Replica(primary, "postgresql://127.0.0.1:1/none", size=1, start=probes.append)
    seen: list[str] = []
    primary.observer = seen.append
    with primary.reading() as tx:
        assert [read.position(tx) for _ in range(3)] == [None] * 3
    read.count(PAUSED, 3)
    assert (len(seen), len(probes), read.reads) == (0, 1, {PAUSED: 3})


def test_a_replica_that_cannot_be_reached_has_a_problem_and_raises_nothing(primary: Database) -> None:
    read = Replica(primary, "postgresql://127.0.0.1:1/none", size=1, start=lambda _: None)
    assert read.probe() == "does not answer"


def test_a_probe_looks_again_for_a_moment_at_a_replica_that_is_behind(
    primary: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, pauses = primary.url.render_as_string(hide_password=False), list[float]()
    states = iter([BEHIND, BEHIND, None])
    monkeypatch.setattr(replica, "_reason", lambda _: next(states))
    assert Replica(primary, url, size=1, pause=pauses.append).probe() is None
    assert pauses == [replica.PROBE_PAUSE_S] * 2


def test_rows_are_not_used_while_the_primary_does_not_show_what_they_may_show(
    primary: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stands for its own replica; a transaction in progress stands for one that the replica shows."""
    url = primary.url.render_as_string(hide_password=False)
    monkeypatch.setattr(replica, "_reason", lambda _: None)
    read = Replica(primary, url, size=1)

    def shown(on_replica: Tx) -> int:
        assert isinstance(on_replica, replica.ReplicaTx)
        on_replica.newer.add(running)
        return 1

    with primary.writing() as other, primary.reading() as tx:
        running = other.transaction_id()
        position = replica.position_of(tx)
        with pytest.raises(ReadFromPrimary) as refused:
            read.read(tx, shown, position, now=0)
        assert refused.value.reason == AHEAD
        other.commit()
        assert read.read(tx, shown, position, now=0) == 1


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://one/booking", None),
        ("postgresql://one,two/booking", "standby"),
        ("postgresql://one,two/booking?target_session_attrs=any", "any"),
    ],
)
def test_of_several_servers_one_that_is_a_replica_is_read(url: str, wanted: str | None) -> None:
    assert replica._standby_url(url).query.get("target_session_attrs") == wanted
