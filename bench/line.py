"""A keep-alive connection for the clients that act together: the rush and the feed."""

import asyncio
import uuid

from bench.processes import HOST


class Line:
    """A connection with a key. It has one request in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authorization: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = f"Host: {HOST}\r\nAuthorization: {authorization}\r\n"

    @classmethod
    async def open(cls, port: int, authorization: str) -> "Line":
        return cls(*await asyncio.open_connection(HOST, port, limit=1 << 20), authorization)

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._ask(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Idempotency-Key: {uuid.uuid4()}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return await self._ask(head.encode() + body)

    async def _ask(self, request: bytes) -> tuple[int, bytes]:
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(length)
