"""`booking worker` works until it is told to stop, and leaves an SQLite database to the process that serves it."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from support.world import SECRET


def test_it_works_until_it_is_told_to_stop(
    stored_on_both: Callable[..., Any], process: Callable[..., subprocess.Popen[str]]
) -> None:
    """For example: booking worker."""
    running = process("worker", stderr=subprocess.STDOUT)
    assert running.stdout is not None
    for line in running.stdout:
        if "the worker runs" in line:
            break
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "the worker stops" in rest


def test_beside_the_process_that_serves_an_sqlite_file_it_is_refused(
    stored: Callable[..., Any],
) -> None:
    path = Path(str(make_url(os.environ["BOOKING_DATABASE_URL"]).database))
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = stored("worker", "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "already_served"


def test_a_database_that_is_not_upgraded_is_refused_where_it_is_shared(
    booking: Callable[..., Any], environment: Callable[[str, str], None], postgres_server: str
) -> None:
    environment("BOOKING_DATABASE_URL", postgres_server)
    environment("BOOKING_SECRET_KEY", SECRET)
    assert booking("worker").code == 2
