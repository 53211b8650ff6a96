"""A balancer: one port in front of several processes of the service, as a proxy makes it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

_HOST = "127.0.0.1"
_CHUNK = 65_536


class Balancer:
    """Passes each connection to the next process that accepts it, and never sends a request twice."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turns = count()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy a connection's bytes in both directions until one side closes it."""
        with contextlib.closing(writer):
            opened = await self._connect()
            if opened is None:
                return
            with contextlib.closing(opened[1]):
                ways = [asyncio.create_task(_copy(*way)) for way in ((reader, opened[1]), (opened[0], writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        turn = next(self._turns)
        for place in range(len(self._ports)):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(_HOST, self._ports[(turn + place) % len(self._ports)])
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(_CHUNK):
            writer.write(some)
            await writer.drain()


@asynccontextmanager
async def balanced(ports: Sequence[int]) -> AsyncIterator[Balancer]:
    """Listen on a port in front of the processes while the block runs."""
    balancer = Balancer(ports)
    server = await asyncio.start_server(balancer.serve, _HOST, 0)
    balancer.port = server.sockets[0].getsockname()[1]
    try:
        yield balancer
    finally:
        server.close()
