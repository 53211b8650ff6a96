"""Attempts over real sockets end in time and leak no connection, with any behaviour of the server.

respx replaces the connections: it cannot show their state, nor a head that arrives byte by byte.
"""

import asyncio
import gc
import gzip
import json
import signal
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import httpx
import httpx2
import pytest
import respx
from sdk_support.blocking import error_of, warned
from sdk_support.raw import Script, answer, drip, scripted_server
from sdk_support.routed import KEY, ClientOf, Clients
from support.serving.threads import together

from booking_sdk import (
    APIConnectionError,
    APITimeoutError,
    AsyncBookingClient,
    BookingClient,
    ConfigurationError,
    ResponseTooLargeError,
    ResponseValidationError,
    ServerError,
    Timeout,
    interruption,
)
from booking_sdk.testing import make_booking

pytestmark = pytest.mark.usefixtures("quick_collections")

BOOKING = json.dumps(make_booking().to_json()).encode()


def booked(client: Any) -> Any:
    return client.bookings.cancel("b1", idempotency_key="order-0001")


@pytest.fixture
def http_client(request: pytest.FixtureRequest, flavour: str, runner: asyncio.Runner) -> Iterator[Any]:
    """Provide an HTTP client of the caller's from the library of the parameter, or None."""
    library = request.param
    client = library and (library.Client() if flavour == "sync" else library.AsyncClient())
    yield client
    if client is not None:
        client.close() if flavour == "sync" else runner.run(client.aclose())


# Time

ENDED_WITHIN_S = 15
"""Long after a timeout, also on a busy machine, and before a drip or a hundred attempts have ended."""

ENDLESS: dict[str, Script] = {
    "silence": lambda connection, _: drip(connection, b""),
    "a head that drips": lambda connection, _: drip(connection, b"x", b"HTTP/1.1 200 OK\r\nX-Slow: "),
    "headers that do not end": lambda connection, _: drip(connection, b"X-More: 1\r\n", b"HTTP/1.1 200 OK\r\n"),
    "endless 1xx": lambda connection, _: drip(connection, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless early hints": lambda connection, _: drip(connection, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "a body that drips": lambda connection, _: drip(
        connection, b" ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
    ),
    "chunks that drip": lambda connection, _: drip(
        connection, b"1\r\n \r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    ),
}


ATTEMPTS = [(name, library) for name in ENDLESS for library in (None, httpx)]


@pytest.mark.exhaustive(but=("sync-a head", "async-a body"))
@pytest.mark.parametrize(("name", "http_client"), [*ATTEMPTS, ("a head that drips", httpx2)], indirect=["http_client"])
def test_an_attempt_ends_in_time_whatever_arrives(name: str, http_client: Any, client_of: ClientOf) -> None:
    with scripted_server(ENDLESS[name]) as url:
        client = client_of(url, timeout=0.3, max_retries=0, http_client=http_client)
        begun = time.monotonic()
        with pytest.raises(APITimeoutError) as caught:
            booked(client)
        took = time.monotonic() - begun
    assert 0.29 < took < ENDED_WITHIN_S
    assert caught.value.maybe_executed
    assert caught.value.idempotency_key == "order-0001"


@pytest.mark.parametrize("name", ["silence", "a body that drips"])
def test_a_deadline_ends_all_attempts(name: str, client_of: ClientOf) -> None:
    with scripted_server(ENDLESS[name]) as url:
        client = client_of(url, timeout=0.2, deadline=0.5, max_retries=99)
        begun = time.monotonic()
        with pytest.raises(APITimeoutError):
            client.me()
        took = time.monotonic() - begun
    assert took < ENDED_WITHIN_S


def test_a_connection_that_is_not_taken_is_surely_not_sent(client_of: ClientOf) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fill = [socket.socket() for _ in range(8)]
        for one in fill:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        client = client_of(url, timeout=Timeout(0.3, connect=0.3), max_retries=0)
        with pytest.raises(APITimeoutError) as caught:
            booked(client)
        for one in fill:
            one.close()
    assert not caught.value.maybe_executed


# Size

LIMIT_BYTES = 1_000_000


def endless(connection: socket.socket, _: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 65_536)


@cache
def compressed_spaces() -> bytes:
    """Return 200 MB in less than 1 MB."""
    compressor, million = zlib.compressobj(wbits=16 + zlib.MAX_WBITS), b" " * 1_000_000
    return b"".join([*(compressor.compress(million) for _ in range(200)), compressor.flush()])


def in_gzip(body: bytes, encoding: str = "gzip") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def bomb(connection: socket.socket, _: bytes) -> None:
    connection.sendall(in_gzip(compressed_spaces()))


def nested_bomb(connection: socket.socket, _: bytes) -> None:
    connection.sendall(in_gzip(gzip.compress(compressed_spaces()), "gzip, gzip"))


@pytest.mark.parametrize("http_client", [None, httpx, httpx2], indirect=True)
@pytest.mark.parametrize("script", [endless, bomb])
def test_a_response_is_read_up_to_the_limit(script: Script, http_client: Any, client_of: ClientOf) -> None:
    with scripted_server(script) as url:
        client = client_of(url, max_response_bytes=LIMIT_BYTES, http_client=http_client)
        tracemalloc.start()
        try:
            with pytest.raises(ResponseTooLargeError, match=r"larger than the 1000000 bytes") as caught:
                booked(client)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 20 * LIMIT_BYTES  # a single read of the bomb makes more than 60
    assert caught.value.maybe_executed
    assert not caught.value.retryable
    assert caught.value.idempotency_key == "order-0001"
    assert caught.value.response.body == b""


def test_an_encoding_inside_an_encoding_is_not_decompressed(client_of: ClientOf) -> None:
    with scripted_server(nested_bomb) as url, pytest.raises(ResponseValidationError, match="not valid JSON") as caught:
        booked(client_of(url, max_response_bytes=LIMIT_BYTES))
    assert len(caught.value.response.body) < 100_000


def test_an_error_too_large_to_read_raises_the_class_of_its_status(client_of: ClientOf) -> None:
    head = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 2000001\r\n\r\n"
    with scripted_server(lambda connection, _: connection.sendall(head + b"x" * 2_000_001)) as url:
        client = client_of(url, max_response_bytes=LIMIT_BYTES, max_retries=0)
        with pytest.raises(ServerError, match="503 without a code"):
            client.me()


def test_a_compressed_response_of_exactly_the_limit_is_read(client_of: ClientOf) -> None:
    requests: list[bytes] = []

    def script(connection: socket.socket, request: bytes) -> None:
        requests.append(request)
        connection.sendall(in_gzip(gzip.compress(BOOKING), "GZip"))

    with scripted_server(script) as url:
        assert booked(client_of(url, max_response_bytes=len(BOOKING))).status == "confirmed"
        with pytest.raises(ResponseTooLargeError):
            booked(client_of(url, max_response_bytes=len(BOOKING) - 1))
    assert all(b"\r\naccept-encoding: gzip\r\n" in request.lower() for request in requests)


DAMAGED = {
    "cut off": gzip.compress(BOOKING)[:-9],
    "not compressed": BOOKING,
    "followed by more": gzip.compress(BOOKING) + b"\0" * 200_000,
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_compression_is_a_broken_connection(body: bytes, client_of: ClientOf) -> None:
    with scripted_server(lambda connection, _: connection.sendall(in_gzip(body))) as url:
        client = client_of(url, max_retries=0)
        with pytest.raises(APIConnectionError, match="DecodingError"):
            client.me()


# Clients in other libraries


@pytest.fixture
def healthy() -> Iterator[str]:
    """Provide the URL of a server that answers every request with a booking."""
    with scripted_server(lambda connection, _: connection.sendall(answer(BOOKING))) as url:
        yield url


@pytest.mark.parametrize("http_client", [httpx2], indirect=True)
def test_a_maintained_fork_of_httpx_can_be_given(healthy: str, http_client: Any, client_of: ClientOf) -> None:
    client = client_of(healthy, http_client=http_client)
    assert booked(client).status == "confirmed"
    assert booked(client).status == "confirmed"


# Event loops


def test_client_works_on_several_event_loops(healthy: str) -> None:
    client = AsyncBookingClient(KEY, base_url=healthy)

    async def job() -> str:
        first = await client.bookings.get("b1")
        await client.bookings.cancel(first.id)
        return first.id

    assert warned(lambda: [asyncio.run(job()) for _ in range(3)]) == []
    assert not client._transport._connections._clients, "connections of a loop end with it"


def test_closed_event_loop_leaves_no_socket_open(healthy: str) -> None:
    clients = [AsyncBookingClient(KEY, base_url=healthy)]

    def job() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(clients[0].bookings.get("b1"))
        loop.close()

    assert warned(lambda: [job() for _ in range(3)]) == []
    assert len(clients[0]._transport._connections._clients) == 1
    assert warned(clients.clear) == []


def test_loops_of_several_threads_have_connections_of_their_own(healthy: str) -> None:
    client = AsyncBookingClient(KEY, base_url=healthy)
    met, counts = threading.Barrier(3), []

    async def job() -> None:
        await client.bookings.get("b1")
        met.wait(10)
        counts.append(len(client._transport._connections._clients))
        met.wait(10)
        await client.bookings.get("b1")

    assert warned(lambda: together(*[lambda: asyncio.run(job())] * 3)) == []
    assert counts == [3, 3, 3]
    assert not client._transport.is_open


def test_a_client_is_closed_on_every_loop(healthy: str) -> None:
    client = AsyncBookingClient(KEY, base_url=healthy)

    def job() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(client.bookings.get("b1"))
        inner = next(iter(client._transport._connections._clients.values()))[0]
        asyncio.run(client.close())
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        assert inner.is_closed
        loop.close()

    assert warned(job) == []
    with pytest.raises(ConfigurationError, match="closed"):
        asyncio.run(client.bookings.get("b1"))


def test_loops_that_are_forgotten_do_not_pile_up(healthy: str) -> None:
    client, loops = AsyncBookingClient(KEY, base_url=healthy), []
    for _ in range(40):
        loops.append(asyncio.new_event_loop())
        loops[-1].run_until_complete(client.bookings.get("b1"))
    assert len(client._transport._connections._clients) <= 17
    for loop in loops:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_it_runs_on_trio_as_well(healthy: str) -> None:
    trio = pytest.importorskip("trio")
    client = AsyncBookingClient(KEY, base_url=healthy)

    async def job() -> str:
        return str((await client.bookings.get("b1")).status)

    assert [trio.run(job), trio.run(job), asyncio.run(job())] == ["confirmed"] * 3
    assert not client._transport._connections._clients


# Interruptions


def assert_keyed(error: BaseException) -> None:
    """Check that an exception names the interrupted call of `booked` and its key."""
    call = interruption(error)
    assert call is not None
    summary = (call.method, call.idempotency_key, call.maybe_executed, call.attempts)
    assert summary == ("POST", "order-0001", True, 1)


def test_any_exception_carries_the_interrupted_call(respx_mock: respx.MockRouter, connect: Clients) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise RuntimeError("Event loop is closed")

    respx_mock.route().mock(side_effect=fail)
    client = connect()
    with pytest.raises(RuntimeError, match="loop is closed") as caught:
        booked(client)
    assert_keyed(caught.value)
    assert caught.value.idempotency_key == "order-0001"  # type: ignore[attr-defined]
    assert caught.value.maybe_executed is True  # type: ignore[attr-defined]
    assert caught.value.__notes__ == [
        "POST /api/v1/bookings/b1/cancel may have been carried out, which the same call with the same key settles:"
        " order-0001"
    ]
    with pytest.raises(RuntimeError) as caught:
        client.me()
    call = interruption(caught.value)
    assert call is not None
    assert not call.maybe_executed


LIMIT_S = 10.0
"""A caller's limit. When the request has arrived, the loop's clock leaps past it."""
LEAP_S = 20.0
"""Less than the limits of the client."""


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved forward."""

    leapt_s = 0.0

    def time(self) -> float:
        return super().time() + self.leapt_s

    def leap(self) -> None:
        self.leapt_s += LEAP_S


def unanswered(on_request: Callable[[], object]) -> Script:
    """Return a script that never responds, and calls the function when a request arrives."""

    def script(connection: socket.socket, _: bytes) -> None:
        on_request()
        connection.recv(1)

    return script


async def by_task(call: Any, arrival: asyncio.Event) -> None:
    task = asyncio.ensure_future(call)
    await arrival.wait()
    task.cancel()
    await task


async def by_timeout(call: Any, _: asyncio.Event) -> None:
    async with asyncio.timeout(LIMIT_S):
        await call


async def by_wait_for(call: Any, _: asyncio.Event) -> None:
    await asyncio.wait_for(call, LIMIT_S)


@pytest.mark.parametrize("how", [by_task, by_timeout, by_wait_for])
def test_cancelled_call_carries_its_key(how: Callable[[Any, asyncio.Event], Awaitable[None]]) -> None:
    async def run() -> BaseException:
        arrival, loop = asyncio.Event(), asyncio.get_running_loop()
        assert isinstance(loop, LeapingLoop)

        def arrived() -> None:
            arrival.set()
            loop.leap()

        with scripted_server(unanswered(lambda: loop.call_soon_threadsafe(arrived))) as url:
            async with AsyncBookingClient(KEY, base_url=url, timeout=3 * LEAP_S) as client:
                error = await error_of(how(client.bookings.cancel("b1", idempotency_key="order-0001"), arrival))
        assert arrival.is_set()
        return error

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        error = runner.run(run())
    assert isinstance(error, (asyncio.CancelledError, TimeoutError))
    assert_keyed(error)


def test_ctrl_c_carries_the_key_of_the_call() -> None:
    arrival = threading.Event()
    with scripted_server(unanswered(arrival.set)) as url, BookingClient(KEY, base_url=url) as client:
        main = threading.get_ident()

        def press() -> None:
            arrival.wait(60)
            signal.pthread_kill(main, signal.SIGINT)

        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            booked(client)
        pressing.join()
    assert_keyed(caught.value)


def test_interruption_of_an_unrelated_exception_is_none() -> None:
    assert interruption(ValueError()) is None
    chained = ValueError()
    chained.__context__ = chained.__cause__ = RuntimeError()
    chained.__context__.__context__ = chained
    assert interruption(chained) is None


# Connections

AT_ONCE = 130
CANCELLATIONS = 520
"""Four times the number of concurrent calls: each point where a call waits is met eight times."""


class Answering(asyncio.Protocol):
    """A server's side of a connection: every request is answered with a booking."""

    open: set[asyncio.Transport] = set()  # noqa: RUF012 - of the one test that uses it

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.open.add(transport)

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self.transport.write(answer(BOOKING))

    def connection_lost(self, error: Exception | None) -> None:
        self.open.discard(self.transport)


async def cancelled_after(client: AsyncBookingClient, turns: int) -> None:
    """Cancel a call after a number of iterations of the event loop."""
    task = asyncio.ensure_future(client.bookings.get("b1"))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError, APIConnectionError):
        await task


# asyncio and anyio leave a socket whose connecting was cancelled for the garbage collector.
@pytest.mark.exhaustive(but="False")
@pytest.mark.filterwarnings("ignore:.*unclosed <socket", "ignore:unclosed transport")
@pytest.mark.parametrize("has_http_client", [False, True])
def test_any_number_of_cancellations_leaves_a_client_that_works(has_http_client: bool) -> None:
    """Calls are cancelled at every point where a call can wait, with more calls than connections."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        http_client = httpx.AsyncClient() if has_http_client else None
        async with AsyncBookingClient(KEY, base_url=url, http_client=http_client, timeout=60, max_retries=0) as client:
            for start in range(0, CANCELLATIONS, AT_ONCE):
                turns = [(start // AT_ONCE + number) % 60 for number in range(AT_ONCE)]
                await asyncio.gather(*(cancelled_after(client, one) for one in turns))
            pool = (await client._transport._connections.client())._transport._pool
            assert pool._requests == []
            bookings = await asyncio.gather(*(client.bookings.get("b1") for _ in range(AT_ONCE)))
            assert {booking.status for booking in bookings} == {"confirmed"}
            assert all(connection.is_idle() for connection in pool.connections)
        if http_client is not None:
            await http_client.aclose()
        server.close()
        for transport in list(Answering.open):
            transport.abort()
        while Answering.open:
            await asyncio.sleep(0)

    asyncio.run(run())
    gc.collect()  # otherwise another test would get their warnings
