"""`booking serve` as a process, called by clients that write what no HTTP library would."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.api.connections import Response, parsed
from support.serving.serving import serving, started

GET = b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/v1/bookings HTTP/1.1\r\nHost: x\r\n"
CHUNK = b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n"
MIB = 1024 * 1024
PATIENCE_S = 60

Address = tuple[str, int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[Address]:
    """Return the base URL of a service of this module."""
    with serving(started(folder, "serve", "--port", "0", "--no-worker", BOOKING_RATE_LIMIT="off")) as (url, _):
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


def connected(address: Address) -> Any:
    return closing(socket.create_connection(address, timeout=PATIENCE_S))


def received(client: socket.socket) -> bytes:
    """Return everything until the service closes the connection."""
    return b"".join(iter(lambda: client.recv(65_536), b""))


def answers(address: Address, *pieces: bytes) -> list[Response]:
    """Return every response until the service closes the connection."""
    with connected(address) as client:
        for piece in pieces:
            client.sendall(piece)
        return list(parsed(received(client)))


def test_a_head_of_50_mib_is_refused_after_its_first_64_kib(address: Address) -> None:
    """The service once read all of it, for fourteen seconds, and did nothing else meanwhile."""
    with connected(address) as client:
        client.sendall(GET + b"X: " + b"a" * 65_536)
        (response,) = parsed(received(client))
        assert (response.status, response.json()["code"]) == (431, "headers_too_large")
        sent = 0
        try:
            for _ in range(50):
                client.sendall(b"a" * MIB)
                sent += 1
        except OSError:
            pass  # cut: it stops reading bytes that it will not use
    (response,) = answers(address, GET + b"Connection: close\r\n\r\n")
    assert response.status == 401


def test_clients_that_say_nothing_or_little_keep_nobody_from_being_served(address: Address) -> None:
    slow = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(300)]
    try:
        for number, client in enumerate(slow):
            client.sendall((b"", b"G", GET, POST + b"Content-Length: 9\r\n\r\n{")[number % 4])
        for _ in range(20):
            (response,) = answers(address, GET + b"Connection: close\r\n\r\n")
            assert response.status == 401
    finally:
        for client in slow:
            client.close()
