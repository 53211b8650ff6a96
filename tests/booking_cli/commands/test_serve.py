"""`booking serve` and `booking worker` as processes: start, refusals, end, and clients as no HTTP library would be."""

import json
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from support.api.connections import parsed
from support.receivers.receivers import wait_until
from support.serving.commands import Booking, Environment, Process
from support.serving.servers import free_port
from support.serving.serving import read_until, serving
from support.world.world import SECRET

from booking_cli.operator import logs, service, storage
from booking_cli.operator.logs import JsonLines
from booking_cli.operator.service import METRICS, lock_sqlite, raise_open_files_limit
from booking_core.base.settings import Settings
from booking_server.app import create_app

METRICS_TOKEN = "a-token-of-the-metrics"


def status(url: str) -> int:
    return httpx.get(url).status_code


@pytest.mark.exhaustive
def test_an_sqlite_database_is_made_and_served(booking: Booking, new_process: Process, tmp_path: Path) -> None:
    with serving(new_process("serve", "--port", "0")) as (address, _):
        assert status(f"{address}/api/v1/me") == 401
        assert booking("db", "check").code == 0
    assert (tmp_path / "booking.db.secret").exists()


ENTRY = """
import atexit, os, sys
atexit.register(lambda: os.write(2, b"the interpreter is finalized"))
from booking_cli.main import main
sys.argv = ["booking", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.exhaustive
def test_it_ends_without_finalizing_the_interpreter(environment: Environment) -> None:
    """A thread of a library that still runs then crashes nothing."""
    command = [sys.executable, "-c", ENTRY, "serve", "--port", "0"]
    child = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with serving(child) as (address, logged):
        assert status(f"{address}/api/v1/me") == 401
    assert "Finished server process" in "".join(logged)
    assert "finalized" not in "".join(logged)


def test_no_thread_of_the_service_outlives_it(environment: Environment, tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'booking.db'}", secret_key=SECRET)
    storage.upgrade(settings)
    with TestClient(create_app(settings, worker=True)) as client:
        assert client.get("/api/v1/me").status_code == 401
    assert {*threading.enumerate()} <= before


def read_metrics(address: str) -> list[Sample]:
    exposition = httpx.get(f"{address}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"}).text
    return [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]


def test_a_migrated_database_is_served_by_several_processes_with_one_exposition(
    stored_on_both: Booking, process: Process, fresh_database_url: str, environment: Environment
) -> None:
    several = 2 if fresh_database_url.startswith("postgresql") else 1
    names = {str(number) for number in range(several)}
    environment("BOOKING_METRICS_TOKEN", METRICS_TOKEN)

    def running(address: str) -> set[str]:
        return {sample.labels["process"] for sample in read_metrics(address) if sample.name == "booking_pool_size"}

    with serving(process("serve", "--port", "0", "--no-worker", "--workers", str(several))) as (address, _):
        wait_until(lambda: running(address) == names, "all processes run")
        assert {status(f"{address}/api/v1/me") for _ in range(8)} == {401}
        assert status(f"{address}/healthz") == 200
        samples = [point for point in read_metrics(address) if point.name == "booking_http_requests_total"]
    assert {point.labels["process"] for point in samples} <= names
    of_me = [point for point in samples if point.labels["operation"] == "get_me"]
    assert sum(point.value for point in of_me if point.labels["status"] == "401") == 8
    assert sum(point.value for point in samples if point.labels["operation"] == "get_health") == 1


@pytest.mark.usefixtures("upgraded")
def test_settings_that_differ_from_their_defaults_are_logged_without_secrets(
    process: Process, environment: Environment
) -> None:
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_SMTP_URL", "smtp://mailer:hunter2@127.0.0.1:25")
    environment("BOOKING_PENDING_MINUTES", "17")
    with serving(process("serve", "--port", "0")) as (_, logged):
        lines = [json.loads(line) for line in logged]
    (settings,) = (line["message"] for line in lines if line["message"].startswith("settings: "))
    assert "BOOKING_PENDING_MINUTES=17 " in f"{settings} "
    assert "BOOKING_SMTP_URL=smtp://mailer:***@127.0.0.1:25" in settings
    assert "BOOKING_RATE_LIMIT=" not in settings
    assert not any(secret in line for line in logged for secret in ("hunter2", SECRET))


def remaining(url: str, forwarded_for: str) -> int:
    """Return the rest of the rate limit of an address, after a request without a key through a proxy."""
    answer = httpx.get(url, headers={"X-Forwarded-For": forwarded_for})
    assert answer.status_code == 401
    return int(answer.headers["X-RateLimit-Remaining"])


@pytest.mark.exhaustive(but="127.0.0.1-")
@pytest.mark.usefixtures("upgraded")
@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        *((proxies, [59, 59, 58, 59]) for proxies in ("127.0.0.0/8, ::1/128", "127.0.0.1")),
        *((others, [59, 58, 57, 56]) for others in ("10.0.0.0/8", "")),
    ],
)
def test_a_trusted_proxy_names_the_client_and_nobody_else_does(
    process: Process, environment: Environment, trusted: str, expected: list[int]
) -> None:
    environment("BOOKING_TRUSTED_PROXIES", trusted)
    # Of several addresses the last that is not a proxy's counts: a client can write any text before it.
    clients = ["192.0.2.1", "192.0.2.2", "192.0.2.3, ::ffff:192.0.2.1", "2001:db8::1"]
    with serving(process("serve", "--port", "0")) as (address, _):
        began = time.monotonic()
        counts = [remaining(f"{address}/api/v1/me", client) for client in clients]
        given_back = int(time.monotonic() - began)  # one for each second
    assert all(least <= count <= least + given_back for count, least in zip(counts, expected, strict=True)), counts


@pytest.mark.usefixtures("upgraded")
def test_the_log_is_for_people_when_they_ask(process: Process, environment: Environment) -> None:
    environment("BOOKING_LOG_FORMAT", "console")
    with serving(process("serve", "--port", "0")) as (_, logged):
        pass
    assert re.match(r"\d\d:\d\d:\d\d INFO    settings: ", logged[0])


@pytest.mark.usefixtures("upgraded")
def test_a_second_process_on_one_sqlite_file_is_refused(booking: Booking, process: Process) -> None:
    with serving(process("serve", "--port", "0")):
        assert booking("serve", "--port", "0", "-o", "json").refusal == (2, "already_served")
        assert booking("orgs", "list").code == 0


def test_several_processes_on_one_sqlite_file_are_refused(booking: Booking, tmp_path: Path) -> None:
    refused = booking("serve", "--workers", "2", "-o", "json")
    assert (refused.code, refused.error["message"]) == (2, "An SQLite database is served by one process.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "argv",
    [("--workers", "0"), ("--workers", "-3"), ("--port", "65536"), ("--port", "-1"), ("--host", "no.such.invalid")],
)
def test_what_cannot_be_served_exits_2(booking: Booking, argv: tuple[str, ...], tmp_path: Path) -> None:
    refused = booking("serve", *argv, "-o", "json")
    assert refused.code == refused.error["exit_code"] == 2
    assert list(tmp_path.iterdir()) == []


def test_reloading_goes_with_one_process(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_DATABASE_URL", "postgresql://127.0.0.1/anything")
    assert booking("serve", "--reload", "--workers", "2").code == 2


SETTINGS = ("--port", "--health-port", METRICS)
"""Each names an address of a process."""


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_refusal_of_a_used_port_names_its_setting(
    booking: Booking, environment: Environment, tmp_path: Path, setting: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        refused = booking(*start_at(setting, port, environment), "-o", "json")
    assert refused.refusal == (2, "bad_address")
    assert refused.error["message"] == f"{setting}: cannot listen on 127.0.0.1:{port}: Address already in use."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_port_used_after_the_check_is_refused_without_a_traceback(
    booking: Booking, environment: Environment, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Two processes that start together both find the port free."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        check = service.check_addresses

        def check_then_listen(addresses: Mapping[str, tuple[str, int]]) -> None:
            check(addresses)
            other.listen()

        monkeypatch.setattr(service, "check_addresses", check_then_listen)
        port = other.getsockname()[1]
        refused = booking(*start_at(setting, port, environment))
    assert refused.code == 2
    assert f"{setting}: cannot listen on 127.0.0.1:{port}: Address already in use." in refused.err
    assert "Traceback" not in refused.err


def start_at(setting: str, port: int, environment: Environment) -> list[str]:
    """Return the command of a process that would listen on the port."""
    environment("BOOKING_LOG_FORMAT", "console")
    if setting == METRICS:
        environment(METRICS, f"127.0.0.1:{port}")
        return ["serve", "--port", "0", "--no-worker"]
    return ["worker" if setting == "--health-port" else "serve", setting, str(port)]


def test_an_address_that_two_settings_name_is_refused(booking: Booking, environment: Environment) -> None:
    port = free_port()
    environment(METRICS, f"127.0.0.1:{port}")
    refused = booking("serve", "--port", str(port), "-o", "json")
    assert (refused.refusal, refused.error["message"].partition(":")[0]) == ((2, "bad_address"), METRICS)


def test_postgresql_without_a_secret_key_is_refused(
    booking: Booking, postgres_server: str, environment: Environment
) -> None:
    environment("BOOKING_DATABASE_URL", postgres_server)
    refused = booking("serve", "--port", "0", "-o", "json")
    assert (refused.code, refused.error["message"]) == (2, "BOOKING_SECRET_KEY is required with PostgreSQL")


def test_a_log_line_carries_what_was_given_beside_it() -> None:
    record = logging.LogRecord("booking", logging.INFO, "file", 1, "sold %d", (3,), None)
    record.request_id = "req_1"
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["request_id"], line["level"]) == ("sold 3", "req_1", "info")
    assert set(line) == {"at", "level", "logger", "message", "request_id"}


def test_a_process_that_serves_may_have_many_sockets_open() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, hard = before
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        raise_open_files_limit()
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert raised == (65_536 if hard < 0 else min(65_536, hard), hard)


# Clients with odd bytes ----------------------------------------------------------------------------------------------


GET = b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/v1/bookings HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"


@pytest.mark.usefixtures("upgraded")
def test_neither_slow_clients_nor_a_long_head_keep_others_from_being_served(process: Process) -> None:
    with serving(process("serve", "--port", "0", "--no-worker")) as (url, _), ExitStack() as opened:
        address, _, port = url.removeprefix("http://").partition(":")

        def connect() -> socket.socket:
            return opened.enter_context(socket.create_connection((address, int(port)), timeout=60))

        for number in range(300):
            connect().sendall((b"", b"G", GET, POST)[number % 4])
        client = connect()
        client.sendall(GET + b"X: " + b"a" * 65_536)
        (refusal,) = parsed(b"".join(iter(lambda: client.recv(65_536), b"")))
        assert (refusal.status, refusal.json()["code"]) == (431, "headers_too_large")
        assert {status(f"{url}/api/v1/me") for _ in range(20)} == {401}


# The worker ----------------------------------------------------------------------------------------------------------


def test_it_works_until_it_is_stopped(stored_on_both: Booking, new_process: Process) -> None:
    """For example: booking worker."""
    port = free_port()
    running = new_process("worker", "--health-port", str(port), stderr=subprocess.STDOUT)
    read_until(running.stdout, "the worker runs")
    ready, metrics = (httpx.get(f"http://127.0.0.1:{port}/{path}") for path in ("readyz", "metrics"))
    assert ready.json()["parts"]["database"] == {"status": "ok"}
    assert 'booking_worker_turn_age_seconds{loop="mail",process="0"}' in metrics.text
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "the worker stops" in rest


def test_beside_the_process_that_serves_an_sqlite_file_it_is_refused(stored: Booking) -> None:
    path = os.environ["BOOKING_DATABASE_URL"].removeprefix("sqlite:///")
    with lock_sqlite(Path(path)):
        assert stored("worker", "-o", "json").refusal == (2, "already_served")


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)], ids=lambda argv: argv[0])
def test_a_misspelt_setting_is_a_warning_at_the_start(
    stored: Booking, environment: Environment, process: Process, command: tuple[str, ...]
) -> None:
    environment("BOOKING_RATELIMIT", "1/1")
    running = process(*command, stderr=subprocess.STDOUT)
    logged = read_until(running.stdout, "startup complete", "the worker runs")
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    (warning,) = [entry for entry in map(json.loads, logged) if entry["level"] == "warning"]
    assert warning["message"] == "BOOKING_RATELIMIT is not a setting; did you mean BOOKING_RATE_LIMIT?"


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_the_log_warns_once_when_no_mail_can_be_sent(command: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        logs.log_settings(logging.getLogger(f"booking.{command}"), Settings(database_url="postgresql://localhost/x"))
        logs.log_settings(logging.getLogger(f"booking.{command}"), Settings())
    (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "neither BOOKING_SMTP_URL nor BOOKING_MAIL_DIR is set" in warning.getMessage()
