"""HTTP as uvicorn speaks it, with an answer's head and body sent in one piece.

uvicorn writes the two apart and uvloop sends each at once: two system calls, two packets, and a client that is woken
twice. Of a short answer that was a tenth of all that the process did.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OnePiece:
    """A transport that keeps what is written until the loop's next turn, and sends it together."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))


class HttpProtocol(HttpToolsProtocol):
    """One connection of a client."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(OnePiece(transport, self.loop))  # type: ignore[arg-type]
