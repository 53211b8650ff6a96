"""Both ends of a delivery: the worker as a process that a test can kill, and receivers on real sockets that can fail in
every way.

The only waits poll a condition, for a bounded time.
"""

import asyncio
import os
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.serving import forking
from support.serving.threads import LoopThread
from support.world.world import SECRET

_HOST = "127.0.0.1"
_LOOK_AGAIN_MIN_S, _LOOK_AGAIN_MAX_S = 0.01, 0.1
"""The next poll follows after a tenth of the time waited so far, since most polls are queries."""
_WAIT_S = 60.0

LOCAL = {
    "BOOKING_WEBHOOK_ALLOW_HTTP": "on",
    "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
    "BOOKING_WEBHOOK_WAITS": "1,1,1,1,1",
}
"""Receivers on this machine are allowed, and a delivery is retried after a second."""


def wait_until(happened: Callable[[], object], what: str, *, within_s: float = _WAIT_S) -> None:
    """Wait until the condition is true, and fail after that time."""
    began_at = time.monotonic()
    while not happened():
        waited_s = time.monotonic() - began_at
        assert waited_s < within_s, f"not within {within_s} s: {what}"
        time.sleep(min(max(_LOOK_AGAIN_MIN_S, waited_s / 10), _LOOK_AGAIN_MAX_S))


# Answers ---------------------------------------------------------------------------------------------------------

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Responds to a request that was read, and returns True if it sent a complete 2xx head. It may close the connection."""


def plain(status: int, *headers: str, body: bytes = b"said") -> Answer:
    """Return a complete response."""
    head = "\r\n".join([f"HTTP/1.1 {status} Some Reason", f"Content-Length: {len(body)}", *headers, "\r\n"])
    return raw(head.encode() + body, accepts=200 <= status < 300)


def raw(data: bytes, *, then_close: bool = False, accepts: bool = False) -> Answer:
    """Return a response of these bytes."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(data)
        await writer.drain()
        if then_close:
            writer.close()
        return accepts

    return answer


async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Reset the connection."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send nothing until the other side has disconnected."""
    await reader.read()
    writer.close()
    return False


async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send a head that never ends, a byte at a time."""
    for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"." * 2000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)
    return False


OK = plain(200)
CUT_BODY = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot so much", then_close=True, accepts=True)
GARBAGE = (
    raw(b"SSH-2.0-OpenSSH_9.6\r\n", then_close=True),
    raw(b"HTTP/1.1 two hundred\r\n\r\n", then_close=True),
    raw(bytes(range(256)), then_close=True),
    raw(b"HTTP/1.1 200 OK\r\nContent-Le", then_close=True),
)
"""Bytes that are not the head of a response."""


# Receivers -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Receipt:
    """A request that a receiver has read, and whether it accepted it with a 2xx head."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at: float
    accepted: bool = False

    @property
    def event_id(self) -> str:
        return self.headers["svc-event-id"]

    @property
    def attempt_id(self) -> str:
        return self.headers["svc-delivery-id"]


class Receiver:
    """A server on its own port. `choose` returns the response to each request."""

    def __init__(self, choose: Callable[[Receipt], Answer]) -> None:
        self.choose = choose
        self.receipts: list[Receipt] = []
        self.connections = 0
        self.hanging = 0
        """The number of requests that were read and wait for their response on an open connection."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}/hook"

    @property
    def accepted(self) -> list[Receipt]:
        return [receipt for receipt in self.receipts if receipt.accepted]

    def wait_for(self, count: int, *, within_s: float = _WAIT_S) -> None:
        """Wait until that number of requests has arrived."""
        wait_until(lambda: len(self.receipts) >= count, f"{count} requests", within_s=within_s)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, which may carry many requests."""
        self.connections += 1
        try:
            while not writer.is_closing():
                await self._exchange(reader, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            return  # the other side has disconnected, or the receiver is closed
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        receipt = Receipt(headers, body, time.time())
        answer = self.choose(receipt)
        self.receipts.append(receipt)
        self.hanging += answer is hang
        try:
            receipt.accepted = await answer(reader, writer)
        finally:
            self.hanging -= answer is hang


class Receivers(LoopThread):
    """Any number of receivers, all of them served by one thread."""

    def open(self, choose: Callable[[Receipt], Answer] = lambda _: OK) -> Receiver:
        """Start another receiver, which by default accepts everything."""
        receiver = Receiver(choose)
        receiver.port = self.listen(asyncio.start_server(receiver.serve, _HOST, 0, backlog=512))
        return receiver

    def holding(self) -> tuple[Answer, Callable[[], None]]:
        """Return a response that waits, and the function that releases it."""
        free = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            await free.wait()
            return await OK(reader, writer)

        def let_go() -> None:
            self.loop.call_soon_threadsafe(free.set)

        return answer, let_go


# Workers ---------------------------------------------------------------------------------------------------------


class Worker:
    """`booking worker`, as a process."""

    _RUNS = "the worker runs"
    _WORDS = ("booking", "worker")

    def __init__(self, url: str, log: Path, **settings: str) -> None:
        defaults = {"BOOKING_DATABASE_URL": url, "BOOKING_SECRET_KEY": SECRET, "BOOKING_WEBHOOK_DEADLINE": "1"}
        self._environment = {**os.environ, **LOCAL, **defaults, **settings}
        self._log = log
        self._logged_before = 0
        self.process: forking.Process | None = None

    @property
    def log(self) -> str:
        """Return the output of all its processes."""
        return self._log.read_text()

    def start(self) -> "Worker":
        """Start a new process, also after an earlier one was killed."""
        self._logged_before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = forking.start(self._WORDS, env=self._environment, stdout=log, stderr=log)
        return self

    def wait_until_it_runs(self) -> "Worker":
        def runs() -> bool:
            assert self._process.poll() is None, self.log
            return self._RUNS in self.log[self._logged_before :]

        wait_until(runs, "the worker runs")
        return self

    def wait_until_it_ends(self) -> int:
        """Wait for the process to end, and return its exit code."""
        return self._process.wait(_WAIT_S)

    def signal(self, how: signal.Signals) -> None:
        self._process.send_signal(how)

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self.signal(signal.SIGKILL)
        self.wait_until_it_ends()

    def stop(self) -> int:
        """Ask the process to finish its work and to end; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_until_it_ends()

    @property
    def _process(self) -> forking.Process:
        assert self.process is not None
        return self.process


@contextmanager
def workers(url: str, folder: Path, count: int = 1, **settings: str) -> Iterator[Sequence[Worker]]:
    """Yield workers that are not started yet, and kill those still running at the end."""
    crew = [Worker(url, folder / f"worker-{number}.log", **settings) for number in range(count)]
    try:
        yield crew
    finally:
        for worker in crew:
            if worker.process is not None and worker.process.poll() is None:
                worker.kill()
