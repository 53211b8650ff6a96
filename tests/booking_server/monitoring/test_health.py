"""Probes distinguish a process that runs from a process that should get requests, part by part."""

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from starlette.testclient import TestClient
from support.serving.releases import COLUMN, newer_release
from support.serving.servers import Service, new_world
from support.world.world import NOON, SECRET, FixedClock

from booking_core.base.clock import DAY, SECOND
from booking_core.base.settings import Settings
from booking_core.base.tokens import new_id
from booking_core.db.engine import Database
from booking_core.db.statements import Statement
from booking_core.upkeep import worker_heartbeats
from booking_server.app import create_app
from booking_server.monitoring.health import (
    KEPT_S,
    OK,
    STALLED_S,
    Health,
    HealthParts,
    Part,
    Polled,
    Status,
    announcing,
    failed,
)
from booking_server.worker.loops import FailureLog, Heartbeat, Turns


class Elapsed:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def readiness(health: Health) -> dict[str, Any]:
    return asyncio.run(health.readiness()).as_json()


def beat(database: Database, worker_id: str) -> None:
    database.write(lambda tx: worker_heartbeats.beat(tx, worker_id))


# Parts -------------------------------------------------------------------------------------------------------------


def test_every_part_is_shown_by_itself(database: Database) -> None:
    beat(database, new_id())
    with closing(Health(database, store=lambda: None)) as health:
        parts = ("process", "database", "schema", "worker", "rate_limit_store")
        assert readiness(health) == {"status": "ok", "parts": {part: {"status": "ok"} for part in parts}}


def test_a_minute_without_heartbeat_degrades_the_worker_not_the_process(database: Database, clock: FixedClock) -> None:
    with closing(Health(database)) as health:
        assert readiness(health)["parts"]["worker"] == {"status": "degraded", "message": "no worker runs"}
    beat(database, new_id())
    clock.at += worker_heartbeats.LATE - 1
    with closing(Health(database)) as health:
        assert readiness(health)["status"] == "ok"
    clock.at += 1
    with closing(Health(database)) as health:
        report = readiness(health)
    assert report["status"] == "degraded"
    assert report["parts"]["worker"] == {"status": "degraded", "message": "no worker was seen for 60 s"}


def test_a_store_of_rate_limits_that_fails_is_degraded_and_named(database: Database) -> None:
    def ping() -> None:
        raise ConnectionRefusedError("redis://secret@host")

    with closing(Health(database, store=ping)) as health:
        store = readiness(health)["parts"]["rate_limit_store"]
    assert store == {"status": "degraded", "message": "failed with ConnectionRefusedError"}


def test_a_database_that_is_away_fails_alone(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(database.driver, "connect", connect)
    with closing(Health(database, store=lambda: None)) as health:
        report = readiness(health)
    assert report["status"] == "failed"
    assert report["parts"] == {
        "process": {"status": "ok"},
        "database": {"status": "failed", "message": "failed with OSError"},
        "rate_limit_store": {"status": "ok"},
    }


def test_an_older_schema_is_reported(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer_release(tmp_path, monkeypatch)(COLUMN)
    with closing(Health(database)) as health:
        parts = readiness(health)["parts"]
    assert parts["schema"]["status"] == "failed"
    assert "booking db upgrade" in parts["schema"]["message"]
    assert parts["database"] == {"status": "ok"}


def test_a_newer_schema_is_reported_as_usable_or_unusable(database: Database) -> None:
    set_revision(database, "9999")
    if not database.is_sqlite:
        with closing(Health(database)) as health:
            assert readiness(health)["parts"]["schema"]["status"] == "degraded"
        note = Statement(text("COMMENT ON TABLE alembic_version IS 'usable by releases from revision 9998'"))
        database.write(lambda tx: tx.run(note))
    with closing(Health(database)) as health:
        part = readiness(health)["parts"]["schema"]
    assert (part["status"], "install that release" in part["message"]) == ("failed", True)


def set_revision(database: Database, revision: str) -> None:
    statement = Statement(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    database.write(lambda tx: tx.run(statement))


# Bounds ------------------------------------------------------------------------------------------------------------


def polled(function: Callable[[], dict[str, Part]], elapsed: Elapsed, timeout_s: float) -> Polled[HealthParts]:
    on_failure = failed("database", Status.FAILED, timeout_s)
    return Polled("database", function, on_failure, timeout_s=timeout_s, kept_s=KEPT_S, clock=elapsed)


def test_a_check_that_hangs_fails_in_time_and_is_not_begun_again() -> None:
    free, calls, elapsed = threading.Event(), [], Elapsed()

    def hang() -> dict[str, Part]:
        calls.append(1)
        free.wait()
        return {"database": OK}

    async def ask() -> list[Part]:
        with closing(polled(hang, elapsed, 0.001)) as check:
            first = await check.result()
            elapsed.now_s += KEPT_S
            second = await check.result()
            free.set()
        return [first["database"], second["database"]]

    assert asyncio.run(ask()) == [Part(Status.FAILED, "no answer within 0.001 s")] * 2
    assert calls == [1]


def test_many_probes_cost_one_check_a_second() -> None:
    calls, elapsed = list[int](), Elapsed()

    def check_once() -> dict[str, Part]:
        calls.append(1)
        return {"database": OK}

    async def ask() -> None:
        with closing(polled(check_once, elapsed, 1.0)) as check:
            for _ in range(100):
                await check.result()
            assert len(calls) == 1
            elapsed.now_s += KEPT_S
            await check.result()

    asyncio.run(ask())
    assert len(calls) == 2


# The worker --------------------------------------------------------------------------------------------------------


def test_a_loop_without_a_turn_fails_its_process_and_its_heartbeats(database: Database) -> None:
    elapsed = Elapsed()
    turns = Turns(elapsed)
    turns.note("mail")
    turns.note("deliveries")
    heartbeat = Heartbeat(database, turns, FailureLog())
    with closing(Health(database)) as health:
        health.turns = turns
        assert health.liveness().status is Status.OK
        elapsed.now_s += STALLED_S
        turns.note("deliveries")
        worker = health.liveness().as_json()["parts"]["worker"]
        assert worker == {"status": "failed", "message": "without a turn for 600 s: mail"}
        asyncio.run(heartbeat.beat())
        assert database.read(worker_heartbeats.read).running == 0
        turns.note("mail")
        asyncio.run(heartbeat.beat())
        assert database.read(worker_heartbeats.read).running == 1


def test_a_worker_that_stops_leaves_no_heartbeat(database: Database) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(Heartbeat(database, Turns(), FailureLog()).run(stop))
        while not database.read(worker_heartbeats.read).running:
            await asyncio.sleep(0)
        stop.set()
        await task

    asyncio.run(run())
    assert database.read(worker_heartbeats.read) == (0, None)


def test_the_heartbeats_of_workers_that_were_killed_long_ago_are_removed(database: Database, clock: FixedClock) -> None:
    beat(database, new_id())
    clock.at = NOON + DAY + SECOND
    survivor = new_id()
    beat(database, survivor)
    ids = database.read(lambda tx: tx.all(Statement(text("SELECT id FROM workers"))))
    assert ids == [(survivor,)]


# Shutting down -----------------------------------------------------------------------------------------------------


class Loop:
    """An event loop that records its calls."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[..., Any]]] = []

    def call_soon_threadsafe(self, fn: Callable[..., Any], *arguments: Any) -> None:
        fn(*arguments)

    def call_later(self, delay_s: float, fn: Callable[..., Any], *_: Any) -> None:
        self.later.append((delay_s, fn))


@pytest.mark.parametrize(("delay_s", "ended_at_once"), [(0.0, 1), (5.0, 0)])
def test_sigterm_is_announced_before_the_server_stops(delay_s: float, ended_at_once: int) -> None:
    calls: list[str] = []
    loop: Any = Loop()

    def end(number: int, _: object) -> None:
        calls.append(f"end {number}")

    handle = announcing(lambda: calls.append("announce"), end, delay_s, loop)
    handle(15, None)
    assert calls == ["announce", "end 15"][: 1 + ended_at_once]
    assert loop.later == ([] if ended_at_once else [(delay_s, end)])
    handle(15, None)
    assert calls[-1] == "end 15"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_from_sigterm_a_process_is_unready_while_it_takes_connections(fresh_database_url: str, tmp_path: Any) -> None:
    with new_world(fresh_database_url):
        pass
    service = Service(fresh_database_url, tmp_path / "log", BOOKING_SHUTDOWN_DELAY="600").start()
    servers = list(service.servers)
    try:
        for server in servers:
            address = f"http://127.0.0.1:{server.port}"
            assert httpx.get(f"{address}/readyz").status_code == 200
            server.process.send_signal(signal.SIGTERM)
            answers = (httpx.get(f"{address}/readyz") for _ in range(1000))
            answer = next(answer for answer in answers if answer.status_code != 200)
            assert answer.json()["parts"]["process"] == {"status": "failed", "message": "the process is stopping"}
            assert httpx.get(f"{address}/healthz").status_code == 200
    finally:
        service.stop()  # the second signal ends it at once
    assert [server.process.returncode for server in servers] in ([0], [0, 0], [-15], [-15, -15])


# HTTP --------------------------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_probes_need_no_key_and_have_no_limit(fresh_database_url: str) -> None:
    with TestClient(create_app(Settings(database_url=fresh_database_url, secret_key=SECRET))) as client:
        answers = [client.get("/readyz") for _ in range(100)]
        assert {answer.status_code for answer in answers} == {200}
        assert answers[0].headers["cache-control"] == "no-store"
        assert answers[0].json()["parts"]["worker"]["status"] == "degraded"
        assert client.get("/healthz").json() == {"status": "ok", "parts": {"process": {"status": "ok"}}}
        assert client.head("/healthz").status_code == 200
        paths = client.get("/api/v1/openapi.json").json()["paths"]
        assert not [path for path in paths if path.endswith("z")]
        client.app.state.monitor.health.stop()  # type: ignore[attr-defined]
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
