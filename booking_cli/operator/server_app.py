"""Create the application in a process that a supervisor started, and end the process with the supervisor.

`booking serve --workers N` and `--reload` start such processes. A killed supervisor stops none of them: they would keep
running unsupervised, and hold the port and their database connections.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from booking_cli.operator import logs

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp

log = logging.getLogger("booking.serve")

FINISH_S = 0.8
"""The time for requests in progress after the supervisor is gone."""
_PR_SET_PDEATHSIG = 1


def create_app() -> "FastAPI":
    """Return the FastAPI application."""
    _prepare_process()
    from booking_server import app

    return app.create_app()


def create_app_with_worker() -> "FastAPI":
    """Return the FastAPI application with the delivery worker."""
    _prepare_process()
    from booking_server import app

    return app.create_app_with_worker()


def create_cells_app() -> "ASGIApp":
    """Return the application of several cells."""
    _prepare_process()
    from booking_server import cells

    return cells.create_app()


def create_cells_app_with_worker() -> "ASGIApp":
    """Return the application of several cells with their delivery workers."""
    _prepare_process()
    from booking_server import cells

    return cells.create_app_with_worker()


def _prepare_process() -> None:
    logs.log_crashes()
    end_with_parent()


def end_with_parent() -> None:
    """End this process within a second after its parent. Do nothing if multiprocessing did not start it."""
    parent: Any = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        _request_parent_death_signal()
    # The sentinel works on every system, and also if the parent ended before the signal was requested.
    threading.Thread(target=_watch, args=(parent.sentinel,), name="supervisor", daemon=True).start()


def _request_parent_death_signal() -> None:
    """Let the kernel send SIGTERM when the parent ends, even if no thread of this process can run."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # some C libraries have no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _watch(sentinel: Any) -> None:
    wait([sentinel])
    log.error("the supervisor is gone: this process finishes its requests and ends")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FINISH_S)
    os._exit(1)
