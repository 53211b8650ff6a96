"""A proxy with the faults of networks, and a plan of these faults."""

import asyncio
import random
from collections import Counter
from email.utils import formatdate
from typing import Self

from support.serving.threads import LoopThread

_HOST = "127.0.0.1"
_FAULT_RATE = 0.6

FAULTS = (
    "drop before",
    "drop the request half way",
    "drop before the answer",
    "drop the answer half way",
    "drop after the answer",
    "hang before",
    "hang after",
    "send twice",
    "500 before",
    "500 after",
    "502 after",
    "503 in seconds",
    "503 after, without a time",
    "429 in seconds",
    "429 by date",
    "429 without a time",
)

_ANSWERS = {
    "500": "Internal Server Error",
    "502": "Bad Gateway",
    "503": "Service Unavailable",
    "429": "Too Many Requests",
}


class Proxy(LoopThread):
    """A proxy in front of a port of this machine. Most requests meet a fault of the plan."""

    def __init__(self, target: int, *, seed: int) -> None:
        super().__init__()
        self.met: Counter[str] = Counter()
        self.url = ""
        self._target = target
        self._chance = random.Random(seed)

    def __enter__(self) -> Self:
        super().__enter__()
        self.url = f"http://{_HOST}:{self.listen(asyncio.start_server(self._accept, _HOST, 0, backlog=256))}"
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side disconnected, or the proxy is being stopped
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handle one request by the plan; return True if the connection stays open."""
        request = await _message(reader)
        fault = self._chance.choice(FAULTS) if self._chance.random() < _FAULT_RATE else "none"
        self.met[fault] += 1
        if fault == "drop before":
            return False
        if fault == "hang before":
            return await _until_it_hangs_up(reader)
        if fault == "drop the request half way":
            await self._forward(request[: len(request) * 2 // 3], answered=False)
            return False
        if fault[0].isdigit() and "after" not in fault:
            return await _say(writer, _answer(fault))
        answer = await self._forward(request)
        if fault == "send twice":
            answer = await self._forward(request)
        if fault == "hang after":
            return await _until_it_hangs_up(reader)
        if fault == "drop before the answer":
            return False
        if fault == "drop the answer half way":
            await _say(writer, answer[: len(answer) * 2 // 3])
            return False
        if fault[0].isdigit():
            return await _say(writer, _answer(fault))
        await _say(writer, answer)
        return fault != "drop after the answer"

    async def _forward(self, request: bytes, *, answered: bool = True) -> bytes:
        reader, writer = await asyncio.open_connection(_HOST, self._target)
        try:
            writer.write(request)
            await writer.drain()
            return await _message(reader) if answered else b""
        finally:
            writer.transport.abort() if not answered else writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read a complete request or response."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


async def _say(writer: asyncio.StreamWriter, data: bytes) -> bool:
    writer.write(data)
    await writer.drain()
    return True


async def _until_it_hangs_up(reader: asyncio.StreamReader) -> bool:
    await reader.read()
    return False


def _answer(fault: str) -> bytes:
    status = fault[:3]
    after = {"seconds": "Retry-After: 1\r\n", "date": f"Retry-After: {formatdate(usegmt=True)}\r\n"}
    extra = after.get(fault.rpartition(" ")[2], "")
    return f"HTTP/1.1 {status} {_ANSWERS[status]}\r\n{extra}Content-Length: 2\r\n\r\nno".encode()
