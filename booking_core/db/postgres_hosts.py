"""Connects to the servers of a URL: first to the one that worked last, last to one that was found frozen.

Each attempt has a timeout of its own. A server that stops is noticed at once, since its sockets close. One that is
frozen, with its kernel or without, says nothing: a statement would be waited for until it must have been ended, and so
would the next one on each connection. So a server that is silent for a moment is asked for a sign of life on a socket
of its own, and when it gives none twice, all connections to it count as lost (`decisions/0043`).
"""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from sqlalchemy.engine import URL

from booking_core.base import database_urls
from booking_core.base.database_urls import Parameters

CONNECT_TIMEOUT_S = 5
"""Seconds for a connection to the only server."""
HOST_TIMEOUT_S = 2
"""Seconds for each address where there are several, the least that libpq knows."""
SILENCE_S = 1.0
"""Seconds without a response after which the server is asked for a sign of life."""
SIGN_OF_LIFE_S = 1.5
"""Seconds in which it has to give one."""
_SIGNS = 2
"""Signs of life that must be missing: the first may be late on a machine that is very busy."""
FROZEN_S = 30.0
"""Seconds for which a server that was found frozen is tried after all others."""
_AGE_S = 0.5
"""Seconds for which a sign of life counts for all connections that wait."""
TCP_TIMEOUT_MS = 15_000
"""Milliseconds without any answer, keep-alives included, after which the server counts as unreachable."""
_SSL_REQUEST = struct.pack(">ii", 8, 80877103)
"""The first message of a client that may use TLS, which a server answers with one byte, before any authentication."""
_DEFAULT_PORT = "5432"

Address = tuple[str, str]
"""Host, address or folder, and port, as libpq reports them."""


class Connector:
    """Opens connections to one of the servers of a URL.

    Args:
        timeout_s: seconds for a connection to the only server.
    """

    def __init__(self, url: URL, timeout_s: int = CONNECT_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self.parameters = database_urls.parameters(url)
        self.is_several = len(database_urls.each_host(self.parameters)) > 1
        self._worked: Parameters | None = None
        self.signs = SignsOfLife()

    def connect(self, **options: Any) -> psycopg.Connection:
        """Open a connection in autocommit mode.

        Raises:
            psycopg.OperationalError: no server took it, or none that is as `target_session_attrs` wants it.
        """
        attempts = [address for host in self._hosts() for address in _addresses(host)]
        attempts.sort(key=lambda attempt: self.signs.was_found_frozen(_address(attempt)))
        timeout_s = HOST_TIMEOUT_S if len(attempts) > 1 else self._timeout_s
        error: psycopg.OperationalError | None = None
        for attempt in attempts:
            try:
                connection = _connect(attempt | options, timeout_s)
            except psycopg.OperationalError as failed:
                error = error if error and error.sqlstate else failed
                continue
            self._worked = attempt
            return connection
        self._worked = None
        raise error or psycopg.OperationalError("no host could be resolved")

    def _hosts(self) -> list[Parameters]:
        """Return the hosts in the order in which they are tried."""
        parameters = dict(self.parameters)
        is_standby_first = parameters.get("target_session_attrs") == "prefer-standby"
        if is_standby_first:
            del parameters["target_session_attrs"]
        hosts = database_urls.each_host(parameters)
        if parameters.get("load_balance_hosts") == "random":
            random.shuffle(hosts)
        if is_standby_first:
            return [host | {"target_session_attrs": "standby"} for host in hosts] + hosts
        worked = self._worked
        return sorted(hosts, key=lambda host: bool(worked) and not _is_of_host(worked, host))


def _is_of_host(attempt: Parameters | None, host: Parameters) -> bool:
    return attempt is not None and all(attempt.get(key) == host.get(key) for key in ("host", "port"))


def _addresses(host: Parameters) -> list[Parameters]:
    """Return the parameters for each address of a host: a name may have several, of which one is frozen."""
    name = host.get("host", "")
    if not name or name.startswith(("/", "@")) or host.get("hostaddr"):
        return [host]
    try:
        found = socket.getaddrinfo(name, host.get("port") or _DEFAULT_PORT, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [host | {"hostaddr": str(each[4][0])} for each in found]


def _address(attempt: Parameters) -> Address:
    return attempt.get("hostaddr") or attempt.get("host", ""), attempt.get("port") or _DEFAULT_PORT


def _connect(parameters: Parameters, timeout_s: int) -> psycopg.Connection:
    options: dict[str, Any] = parameters | {
        "connect_timeout": timeout_s,
        "keepalives_idle": TCP_TIMEOUT_MS // 3000,
        "tcp_user_timeout": TCP_TIMEOUT_MS,
    }
    return psycopg.connect(autocommit=True, **options)


def address_of(connection: psycopg.Connection) -> Address:
    """Return the address that a connection leads to."""
    libpq = connection.pgconn
    return str((libpq.hostaddr or libpq.host).decode()), str(libpq.port.decode())


class SignsOfLife:
    """Finds out whether a server that does not respond still lives, once for all connections that wait for it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._missing: dict[Address, int] = {}
        self._asked_s: dict[Address, float] = {}
        self._losses: dict[Address, int] = {}
        self._lost_s: dict[Address, float] = {}

    def losses(self, address: Address) -> int:
        """Return how often the server was found frozen: a connection from before the last time is lost."""
        return self._losses.get(address, 0)

    def was_found_frozen(self, address: Address) -> bool:
        """Return whether the server was found frozen a moment ago: a connection to it would wait in vain."""
        return address in self._lost_s and self._clock() - self._lost_s[address] < FROZEN_S

    def is_lost(self, address: Address, losses: int) -> bool:
        """Ask the server for a sign of life, unless another thread just did, and return whether it counts as lost.

        Args:
            losses: `losses` when the connection was opened.
        """
        with self._lock:
            if self.losses(address) == losses and self._clock() - self._asked_s.get(address, -_AGE_S) >= _AGE_S:
                self._ask(address)
            return self.losses(address) != losses

    def _ask(self, address: Address) -> None:
        lives = gives_sign_of_life(address)
        self._asked_s[address] = self._clock() if lives else -_AGE_S
        self._missing[address] = 0 if lives else self._missing.get(address, 0) + 1
        if self._missing[address] == _SIGNS:
            self._missing[address] = 0
            self._losses[address] = self.losses(address) + 1
            self._lost_s[address] = self._clock()


def gives_sign_of_life(address: Address) -> bool:
    """Return whether a server answers the first message of a connection. One that refuses it lives too."""
    try:
        with contextlib.closing(_open_socket(address)) as opened:
            opened.sendall(_SSL_REQUEST)
            opened.recv(1)
    except TimeoutError:
        return False
    except OSError:  # it is gone rather than frozen: the connections to it are closed, and say so
        return True
    return True


def _open_socket(address: Address) -> socket.socket:
    host, port = address
    if not host.startswith(("/", "@")):
        return socket.create_connection((host, int(port)), SIGN_OF_LIFE_S)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.settimeout(SIGN_OF_LIFE_S)
    path = f"{host}/.s.PGSQL.{port}"
    try:
        opened.connect("\0" + path[1:] if path.startswith("@") else path)  # @ is the abstract namespace
    except BaseException:
        opened.close()
        raise
    return opened
