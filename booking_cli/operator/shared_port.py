"""One port for several processes, with a queue of connections for each.

Processes that wait at one socket are woken in one order, and the first takes all that has come: of a pool that opens
its connections at once, and keeps them, one process may get everything and the others nothing. Linux deals connections
out among sockets that share a port.
"""

import socket
from typing import Any


class SharedPort(socket.socket):
    """An address that is taken and not listened at. Sent to another process it becomes one of its own there."""

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return bound, (self.family, self.getsockname())


def bound(family: int, address: Any) -> SharedPort:
    """A socket at an address that others of this user may share.

    Raises:
        OSError: it is taken, or not this machine's.
    """
    made = SharedPort(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(address)
    return made
