"""Create the application in a process that a supervisor started, and end the process with the supervisor.

`booking serve --workers N` and `--reload` start such processes. A killed supervisor stops none of them: they would keep
running unsupervised, and hold the port and their database connections.

On Linux the processes share the port, each with its own connection queue (SO_REUSEPORT). If several processes accept
from one socket, the first one takes all waiting connections: when a client's pool opens its connections at once, one
process may get all of them. The kernel distributes connections among sockets that share a port.
"""

import contextlib
import importlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from booking_cli.framework.context import resume_collections
from booking_cli.operator import logs

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("booking.serve")

FINISH_S = 0.8
"""The time for requests in progress after the supervisor has died."""
_PR_SET_PDEATHSIG = 1


def _factory(module: str, name: str) -> Callable[[], Any]:
    """Return a function that makes an application in a process of a supervisor."""

    def create() -> Any:
        logs.log_crashes()
        end_with_parent()
        try:
            return getattr(importlib.import_module(module), name)()
        finally:
            resume_collections()

    return create


create_app: "Callable[[], FastAPI]" = _factory("booking_server.app", "create_app")
create_app_with_worker: "Callable[[], FastAPI]" = _factory("booking_server.app", "create_app_with_worker")
create_cells_app = _factory("booking_server.cells", "create_app")
create_cells_app_with_worker = _factory("booking_server.cells", "create_app_with_worker")


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
    log.error("the supervisor has died: this process finishes its requests and ends")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FINISH_S)
    os._exit(1)


class SharedPort(socket.socket):
    """A bound socket that does not listen. Pickled into another process, it becomes a new socket on the same port."""

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return bound, (self.family, self.getsockname())


def bound(family: int, address: Any) -> SharedPort:
    """Return a socket bound to an address that other processes of this user may share.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    shared = SharedPort(family)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind(address)
    return shared
