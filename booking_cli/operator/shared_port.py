"""Share a port among several processes, each with a connection queue of its own (SO_REUSEPORT).

Of processes that accept from one socket, the first one takes all waiting connections: if a client's pool opens its
connections at once, one process may get all of them. Linux distributes connections among sockets that share a port.
"""

import socket
from typing import Any


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
