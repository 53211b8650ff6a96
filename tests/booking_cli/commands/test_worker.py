"""`booking worker` works until it is stopped, and refuses an SQLite database, which its serving process works on."""

import json
import logging
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from support.serving.commands import Booking, Environment, Process
from support.serving.servers import free_port
from support.serving.serving import read_until

from booking_cli.operator import logs
from booking_cli.operator.service import lock_sqlite
from booking_core.base.settings import Settings


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
