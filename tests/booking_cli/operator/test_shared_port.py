"""Several processes at one port each get their part of the connections."""

import contextlib
import pickle
import socket
import sys

import pytest

from booking_cli.operator.server_app import bound

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the last one gets all")

CLIENTS = 64


def test_a_burst_of_connections_is_dealt_out() -> None:
    with contextlib.ExitStack() as stack:
        original = stack.enter_context(bound(socket.AF_INET, ("127.0.0.1", 0)))
        address = original.getsockname()
        with pytest.raises(ConnectionRefusedError):  # no socket listens on a port that is only bound
            socket.create_connection(address)
        listeners = [stack.enter_context(pickle.loads(pickle.dumps(original))) for _ in range(2)]
        for listener in listeners:
            assert listener.getsockname() == address
            listener.listen(CLIENTS)
            listener.setblocking(False)
        for _ in range(CLIENTS):
            stack.enter_context(socket.create_connection(address))
        counts = [_accepted(listener, stack) for listener in listeners]
        assert sum(counts) == CLIENTS
        assert all(counts)


def _accepted(listening: socket.socket, stack: contextlib.ExitStack) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            stack.enter_context(listening.accept()[0])
            count += 1
    return count
