"""Lists and the feed are read from a replica that lags, is ahead or freezes, and clients notice nothing of it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from support import databases
from support.api import Api
from support.cluster import Cluster, running_cluster
from support.resources import LISTINGS
from support.world import SECRET, FixedClock, make_world

from booking_core.db import migrate, replica
from booking_core.db.engine import Database
from booking_core.db.replica import AHEAD, BEHIND, PAUSED, UNREACHABLE, Replica, sentences
from booking_core.settings import Settings
from booking_server.app import create_app

pytestmark = pytest.mark.slow

_LISTS = [listing.path for listing in LISTINGS] + ["/webhooks"]
_BOOKINGS = "SELECT count(*) FROM bookings WHERE organization_id = %s"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        migrate.upgrade(cluster.url(0))
        yield cluster


class Replicated:
    """A service that reads from the replica, and a client of an organization of its own."""

    def __init__(self, cluster: Cluster, database: Database, client: TestClient, clock: FixedClock) -> None:
        self.cluster = cluster
        self.database = database
        self.client = client
        self.world = make_world(database, clock)
        self.api = Api(client, self.world)
        self.departure = self.world.departure(self.world.experience(), seats=1000)
        self.replica: Replica = client.app.state.service.reads.replica  # type: ignore[attr-defined]
        self.replica._start = lambda _: None  # a test probes by itself
        self.catch_up()

    def catch_up(self) -> None:
        """Wait until the replica has what the primary has, and let it be read."""
        with databases.connect(self.cluster.url(0)) as primary:
            (position,) = primary.execute("SELECT pg_current_wal_flush_lsn()").fetchone() or ()
        self.wait_for("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position)
        assert self.replica.probe() is None

    def wait_for(self, condition: str, *values: object) -> None:
        """Wait until a condition holds on the replica."""
        with databases.connect(self.cluster.url(1)) as connection:
            for _ in range(2000):
                if connection.execute(condition, values).fetchone() == (True,):  # type: ignore[call-overload]
                    return
                threading.Event().wait(0.005)
        raise AssertionError("it never held on the replica")

    def pause_replay(self) -> None:
        databases.run(self.cluster.url(1), "SELECT pg_wal_replay_pause()")
        self.wait_for("SELECT pg_get_wal_replay_pause_state() = 'paused'")

    def resume_replay(self) -> None:
        databases.run(self.cluster.url(1), "SELECT pg_wal_replay_resume()")

    def reads(self, ask: Callable[[], object]) -> dict[str, int]:
        """Return the lists that were read while a function ran, by what kept them from the replica."""
        self.replica.reads.clear()
        ask()
        return dict(self.replica.reads)

    def booked(self) -> list[str]:
        return [each["id"] for each in self.get("/bookings", limit=100)["data"]]

    def get(self, path: str, **params: Any) -> Any:
        answer: httpx.Response = self.api.get(path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def book(self) -> str:
        return str(self.api.book(self.departure).json()["id"])


@contextmanager
def serving(cluster: Cluster, clock: FixedClock) -> Iterator[Replicated]:
    settings = Settings(
        database_url=cluster.url(0),
        database_read_url=cluster.url(1),
        secret_key=SECRET,
        secret_key_check="warn",
        rate_limit=None,
    )
    database = Database(settings.database_url, clock=clock)
    with TestClient(create_app(settings, database=database), raise_server_exceptions=False) as client:
        yield Replicated(cluster, database, client, clock)


@pytest.fixture
def replicated(cluster: Cluster, clock: FixedClock) -> Iterator[Replicated]:
    with serving(cluster, clock) as replicated:
        yield replicated


def test_lists_and_the_feed_are_read_from_the_replica_and_nothing_else_is(replicated: Replicated) -> None:
    booking = replicated.book()
    replicated.catch_up()
    for path in _LISTS:
        assert replicated.reads(lambda path=path: replicated.get(path)) == {"": 1}, path  # type: ignore[misc]
    from_primary = {"/availability": {"from": "2026-11-21"}, "/me": {}, f"/bookings/{booking}": {}}
    for path, params in from_primary.items():
        assert replicated.reads(lambda path=path, params=params: replicated.get(path, **params)) == {}, path  # type: ignore[misc]


def test_a_list_from_the_replica_costs_the_primary_the_key_and_one_statement(replicated: Replicated) -> None:
    replicated.get("/customers")
    seen: list[str] = []
    replicated.database.observer = seen.append
    assert replicated.reads(lambda: replicated.get("/customers")) == {"": 1}
    assert [text for text in seen if "api_keys" in text and "UPDATE" not in text] == seen[:1]
    assert "pg_current_snapshot" in seen[1]  # the position: what is after it goes to the replica in one pipeline
    assert "pg_is_in_recovery" in seen[2]
    assert "customers" in seen[3]
    assert len(seen) == 5


def test_what_a_client_has_written_is_shown_to_it_while_the_replica_lags(replicated: Replicated) -> None:
    assert replicated.booked() == []
    replicated.pause_replay()
    try:
        booking = replicated.book()
        assert replicated.reads(lambda: replicated.booked().index(booking)) == {BEHIND: 1}
        assert replicated.reads(lambda: replicated.get("/events", resource_id=booking)["data"][0]) == {BEHIND: 1}
    finally:
        replicated.resume_replay()


def test_a_follower_misses_nothing_and_no_list_goes_back_while_replay_pauses_and_resumes(
    replicated: Replicated,
) -> None:
    followed: list[int] = []
    shown, cursor = 0, None
    servers: set[str] = set()

    def look() -> None:
        nonlocal shown, cursor
        page = replicated.get("/events", order="asc", limit=2, **({"starting_after": cursor} if cursor else {}))
        followed.extend(event["sequence"] for event in page["data"])
        cursor = page["resume_cursor"] or cursor
        listed = len(replicated.booked())
        assert listed >= shown
        shown = listed

    for turn in range(12):
        if turn % 3 == 0:
            replicated.pause_replay()
        replicated.book()
        servers |= set(replicated.reads(look))
        assert shown == turn + 1
        if turn % 3 == 1:
            replicated.resume_replay()
            replicated.catch_up()
            servers |= set(replicated.reads(look))
    replicated.catch_up()
    for _ in range(12):
        look()
    (last,) = {event["sequence"] for event in replicated.get("/events", limit=1)["data"]}
    assert followed == list(range(1, last + 1))
    assert servers >= {"", BEHIND}


def test_a_booking_that_the_replica_shows_before_the_primary_does_is_not_listed_yet(
    replicated: Replicated, cluster: Cluster
) -> None:
    """A commit waits for a replica that is away. The other one has it already, and a client must not see it come and
    go again, as it would when its next list came from the primary."""
    first = replicated.book()
    replicated.catch_up()

    def wait_for_replica(name: str) -> None:
        databases.run(
            cluster.url(0), f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", "SELECT pg_reload_conf()"
        )

    wait_for_replica("away")
    try:
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(replicated.book)
            replicated.wait_for(f"SELECT ({_BOOKINGS}) = 2", replicated.world.org)
            reads = replicated.reads(lambda: replicated.booked() == [first] or pytest.fail("it was listed too early"))
            assert reads == {AHEAD: 1}
            wait_for_replica("*")
            second = waiting.result(timeout=60)
    finally:
        wait_for_replica("*")
    replicated.catch_up()
    assert replicated.reads(lambda: replicated.booked().index(second)) == {"": 1}


def test_serve_and_doctor_say_if_the_replica_is_read(replicated: Replicated, cluster: Cluster) -> None:
    def said(url: str) -> list[str]:
        settings = Settings(database_url=cluster.url(0), database_read_url=url, secret_key=SECRET)
        with closing(Database(cluster.url(0))) as database:
            return sentences(settings, database)

    assert said(cluster.url(1)) == ["lists and events are read from the replica of BOOKING_DATABASE_READ_URL"]
    assert said(cluster.url(0)) == [
        "lists and events are read from the primary for now: the replica of BOOKING_DATABASE_READ_URL takes writes"
        " itself, so that it is no replica"
    ]


def test_a_replica_that_freezes_costs_one_list_its_time_and_the_process_stays_ready(
    cluster: Cluster, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of the module, since the replica stays frozen."""
    monkeypatch.setattr(replica, "RESPONSE_TIMEOUT_S", 0.2)
    with serving(cluster, clock) as replicated:
        booking = replicated.book()
        replicated.catch_up()
        replicated.booked()
        assert parts(replicated)["replica"] == {"status": "ok"}
        cluster.freeze(1)
        # Commits would wait for it for ever; this is not what is tested.
        databases.run(cluster.url(0), "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
        assert replicated.reads(lambda: [replicated.booked() == [booking] for _ in range(4)]) == {
            UNREACHABLE: 1,
            PAUSED: 3,
        }
        forget_checks(replicated)
        assert parts(replicated)["replica"]["status"] == "degraded"
        assert replicated.client.get("/readyz").status_code == 200


def forget_checks(replicated: Replicated) -> None:
    """Let the next probe of health look again, as after a second."""
    for check in replicated.client.app.state.monitor.health._checks:  # type: ignore[attr-defined]
        check._known = float("-inf"), {}


def parts(replicated: Replicated) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = replicated.client.get("/readyz").json()["parts"]
    return found
