"""`serve` and `worker` wait for a database that is unavailable, recovers or is full, and for nothing else."""

import subprocess

import httpx
import pytest
from sqlalchemy.engine import make_url
from support.faults.proxies import Recovering
from support.serving.commands import Booking, Environment, Process
from support.serving.servers import free_port
from support.serving.serving import read_until
from support.world.world import SECRET

from booking_core.base.errors import Unavailable

pytestmark = pytest.mark.both_databases


on_postgresql = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
SAYS = "waiting for the database"


@pytest.mark.exhaustive(but=("serve-recovers", "worker-is full"))
@on_postgresql
@pytest.mark.parametrize("sqlstate", ["57P03", "53300"], ids=["recovers", "is full"])
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_waits_for_a_server_that_takes_no_connections_yet(
    command: str,
    sqlstate: str,
    stored_on_both: Booking,
    fresh_database_url: str,
    environment: Environment,
    process: Process,
) -> None:
    port = str(free_port())
    options = ("--port", port, "--no-worker") if command == "serve" else ("--health-port", port)
    with Recovering(fresh_database_url, sqlstate) as server:
        environment("BOOKING_DATABASE_URL", server.url)
        running = process(command, *options, stderr=subprocess.STDOUT)
        read_until(running.stdout, SAYS)
        if command == "worker":  # it is alive, and not ready
            waiting = [httpx.get(f"http://127.0.0.1:{port}/{path}").status_code for path in ("healthz", "readyz")]
            assert waiting == [200, 503]
        server.is_over.set()
        said = read_until(running.stdout, "the worker runs", "startup complete")
        assert SAYS not in "".join(said)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        running.terminate()
        running.communicate(timeout=50)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_after_the_wait_the_exit_code_is_that_of_a_server_error(
    command: str, booking: Booking, environment: Environment, postgres_server: str
) -> None:
    refusing = make_url(postgres_server).set(host="127.0.0.1", port=free_port(), query={})
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_DATABASE_URL", refusing.render_as_string(hide_password=False))
    ended = booking(command, "--wait-for-database", "0.1")
    assert ended.code == 10
    assert SAYS in ended.err


@pytest.mark.parametrize(
    ("command", "sqlstate"), [("serve", "28P01"), ("worker", "3D000")], ids=["wrong password", "no such database"]
)
def test_what_is_wrong_for_good_ends_at_once(
    command: str, sqlstate: str, environment: Environment, process: Process, postgres_server: str
) -> None:
    with Recovering(postgres_server, sqlstate) as server:
        environment("BOOKING_SECRET_KEY", SECRET)
        environment("BOOKING_DATABASE_URL", server.url)
        ended = process(command, stderr=subprocess.STDOUT)
        said, _ = ended.communicate(timeout=50)
    assert ended.returncode == 10
    assert SAYS not in said


@pytest.mark.parametrize("argv", [("serve", "--port", "0"), ("worker",)], ids=["serve", "worker"])
def test_a_database_without_the_schema_is_refused_at_once(
    argv: tuple[str, ...], booking: Booking, environment: Environment, postgres_server: str
) -> None:
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_DATABASE_URL", postgres_server)
    ended = booking(*argv, "-o", "json")
    assert (*ended.refusal, ended.error["hint"]) == (2, "not_upgraded", "booking db upgrade")
    assert SAYS not in ended.err


@on_postgresql
def test_a_worker_whose_database_goes_away_after_its_checks_starts_again(
    stored_on_both: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []

    async def serve_forever(*_: object) -> None:
        starts.append("started")
        if len(starts) == 1:
            raise Unavailable

    monkeypatch.setattr("booking_server.worker.process.serve_forever", serve_forever)
    monkeypatch.setattr("booking_core.db.waiting.is_away", lambda url: True)
    assert stored_on_both("worker").code == 0
    assert len(starts) == 2
