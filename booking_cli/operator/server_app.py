"""The application as a process serves it that another one started, and that ends when that one is gone.

`booking serve --workers N` and `--reload` start processes of their own. A supervisor that is killed outright stops none
of them: they would go on with nobody to replace them, and hold the port and their database connections.
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

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("booking.serve")

FINISH_S = 0.8
"""What is being answered when the supervisor is gone may take so long; whoever gets no answer asks again."""
_PR_SET_PDEATHSIG = 1


def create_app() -> "FastAPI":
    """Return the service's application."""
    end_with_parent()
    from booking_server import app

    return app.create_app()


def create_app_with_worker() -> "FastAPI":
    """Return the service's application, which also delivers webhooks."""
    end_with_parent()
    from booking_server import app

    return app.create_app_with_worker()


def end_with_parent() -> None:
    """End this process within a second of the one that started it. Without such a one, do nothing."""
    parent: Any = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        _ask_the_kernel()
    # A pipe that the supervisor holds the other end of, on every system; it also covers a supervisor that went before
    # the kernel was asked.
    threading.Thread(target=_watch, args=(parent.sentinel,), name="supervisor", daemon=True).start()


def _ask_the_kernel() -> None:
    """Have SIGTERM sent by the kernel, also while no thread of this process gets to run."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # some C libraries have no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _watch(sentinel: Any) -> None:
    wait([sentinel])
    log.error("the supervisor is gone: this process answers what it has begun, and ends")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FINISH_S)
    os._exit(1)
