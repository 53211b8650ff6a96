"""Connections of the webhook client, the pool of idle ones, and the incremental parser of a response."""

import asyncio
import codecs
import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

import httptools

from booking_core.models import limits
from booking_core.models.webhooks import AttemptError
from booking_server.adapters.address_guard import Origin, Target

HEAD_BYTES_MAX: Final = 32 * 1024
"""The limit of the response's head, the heads of interim responses included."""
BODY_BYTES_MAX: Final = 64 * 1024
"""The limit of the response's body; the rest is not read (decision W9)."""
INTERIM_MAX: Final = 8


class WebhookResponse:
    """A response that is parsed as it arrives. The result depends on the head alone, as soon as it is complete."""

    def __init__(self) -> None:
        self.status: int | None = None
        """The status of the final head, once it is complete."""
        self.body = bytearray()
        """The beginning of the body, as long as an excerpt needs."""
        self.is_over = False
        """The response has ended, or reached a limit, or is not HTTP."""
        self.can_reuse_connection = False
        """The response ended where the next one on this connection would begin."""
        self._encoding = ""
        self._head_bytes = 0
        self._body_bytes = 0
        self._interim = 0
        self._start = b""
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_untouched(self) -> bool:
        """No byte of the response has arrived."""
        return self._head_bytes == 0

    @property
    def waits_for_body(self) -> bool:
        """The attempt has succeeded, and only the rest of the body is missing."""
        return self.status is not None and self.status < 300 and not self.is_over

    def excerpt(self) -> str | None:
        """Return the beginning of the body as text that every database stores and every terminal shows.

        A compressed body is never decompressed; the text names its encoding and size instead.
        """
        if self._body_bytes and self._encoding not in ("", "identity"):
            return _printable(f"[{self._encoding[:40]}, {self._body_bytes} bytes, not decompressed]")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A character that a limit or the deadline cut in two is left out.
        text = decoder.decode(bytes(self.body), final=self.is_over)
        return _printable(text[: limits.WEBHOOK_EXCERPT_LENGTH_MAX]) or None

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Raises for no content."""
        if self.is_over:
            if data.strip(b"\r\n"):  # unexpected bytes; the parser skips line breaks before a response
                self.can_reuse_connection = False
            return
        try:
            if self.status is None:
                data = self._feed_head(data)
            if data and not self.is_over:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_over = True
            self.can_reuse_connection = False

    def _feed_head(self, data: bytes) -> bytes:
        """Parse as many bytes as the head may still have, and return the rest."""
        room = HEAD_BYTES_MAX - self._head_bytes
        self._head_bytes += len(data)
        self._start = (self._start + data[:5])[:5]
        if not b"HTTP/".startswith(self._start):  # the parser would take RTSP as well
            self.is_over = True
            return b""
        self._parser.feed_data(data[:room])
        if self.status is None and len(data) >= room:
            self.is_over = True
        return data[room:]

    # The parser calls the methods below; a ValueError from them reaches `feed` as a parser error.

    def on_message_begin(self) -> None:
        if self.is_over:
            raise ValueError("a second response")

    def on_status(self, reason: bytes) -> None:
        self._check(reason)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check(value)
        if self.status is None and name.lower() == b"content-encoding":
            self._encoding = value.decode("ascii").strip().lower()

    def _check(self, text: bytes) -> None:
        """Refuse bytes beyond ASCII and NUL, which the parser accepts."""
        if self.status is None and not (text.isascii() and b"\0" not in text):
            raise ValueError("a head must be ASCII")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if not 100 <= status <= 599 or self._parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("not a response of HTTP/1.x")
        if status >= 200:
            self.status = status
            return
        self._interim += 1
        self._encoding = ""
        if self._interim > INTERIM_MAX or status == 101:
            raise ValueError("too many interim responses, or another protocol")

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        self.body += data[: 4 * limits.WEBHOOK_EXCERPT_LENGTH_MAX - len(self.body)]
        if self._body_bytes >= BODY_BYTES_MAX:
            self.is_over = True

    def on_message_complete(self) -> None:
        if self.status is not None and not self.is_over:
            self.is_over = True
            self.can_reuse_connection = self._parser.should_keep_alive()


def _printable(text: str) -> str:
    """Return the text with spaces for white space, and with a replacement character for every other control."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


# Connections ---------------------------------------------------------------------------------------------------------

BODY_S = 1.0
"""The longest wait for the rest of a body after a complete 2xx head, within the deadline. The attempt has succeeded by
then, so a slow body must not hold the worker's slot or delay the next event. The body of a failed attempt is read until
the deadline."""
READ_BYTES: Final = 16 * 1024
RECEIVE_BUFFER_BYTES: Final = 32 * 1024
"""The most that the kernel, and with TLS the event loop, buffers of a response before it is read."""

ADDRESSES_TRIED_MAX: Final = 4
ADDRESS_S = 2.0
"""The time to connect to an address before the name's next one is tried, within the deadline."""

IDLE_S = 1.5
"""An idle connection is not reused after this time. The shortest default of a common server is gunicorn's, which closes
after 2 s (Node, uvicorn and Apache: 5 s). A request that crosses such a close fails its attempt, so a connection is not
used when the server may be closing it."""
AGE_S: Final = 60.0
"""The longest life of a connection, because its certificate is verified only at its beginning."""
IDLE_CONNECTIONS_MAX: Final = 128
REMEMBERED_MAX: Final = 1024


class AttemptFailed(Exception):
    """Ends an attempt with an error."""

    def __init__(self, error: AttemptError) -> None:
        super().__init__(error)
        self.error = error


class HttpConnection(asyncio.BufferedProtocol):
    """A connection to a checked address, for one request at a time."""

    def __init__(self, address: str, opened_at: float) -> None:
        self.address = address
        self.opened_at = opened_at
        self.idle_at = opened_at
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._response: WebhookResponse | None = None
        self._ended: asyncio.Future[None] | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._lost: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_fresh(self) -> bool:
        """Nothing has arrived since the last response: no end of stream, no reset, no byte.

        The event loop may not have read it yet, so the socket itself is checked. Anything that has arrived ends the
        connection, and a request that is written to it could be lost without an error.
        """
        return self.is_open and not _is_readable(cast(asyncio.Transport, self._transport).get_extra_info("socket"))

    @property
    def was_refused(self) -> bool:
        """The receiver ended TLS with an alert; a missing client certificate causes one after the handshake."""
        return isinstance(self._lost, ssl.SSLError) and not isinstance(self._lost, ssl.SSLEOFError)

    async def exchange(self, request: bytes, response: WebhookResponse) -> None:
        """Send the request, and return when the response or the connection has ended, or the body takes too long."""
        if self._transport is not None and self.is_open:
            self._response = response
            self._ended = asyncio.get_running_loop().create_future()
            self._transport.write(request)
            await self._ended

    def release(self, at: float) -> None:
        """Mark the connection as idle."""
        self._response = None
        self.idle_at = at

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have no common base with asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._response is None:  # without a request: it must not become the response to a later one
            self.abort()
            return
        self._response.feed(bytes(self._buffer[:nbytes]))
        if self._response.is_over:
            self._end()
            if not self._response.can_reuse_connection:
                self.abort()
        elif self._response.waits_for_body and self._body_timer is None:
            self._body_timer = asyncio.get_running_loop().call_later(BODY_S, self._end)

    def eof_received(self) -> None:
        self._end()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc
        self._end()


def _is_readable(opened: socket.socket) -> bool:
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([opened], [], [], 0)[0])
    poll = select.poll()  # select() fails for the high descriptors of a busy process
    poll.register(opened.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class ConnectionPool:
    """Idle connections.

    A connection is reused only for the same origin, while its address is among the addresses that were just resolved
    and checked, and while it is fresh: used a moment ago, with nothing received since.
    """

    def __init__(self) -> None:
        self._idle: dict[Origin, list[HttpConnection]] = {}
        self._without_reuse: set[Origin] = set()
        self._cleanup: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self._idle.values()))

    def allows_reuse(self, origin: Origin) -> bool:
        return origin not in self._without_reuse

    def forbid_reuse(self, origin: Origin) -> None:
        """Remember that a request on a reused connection got no response, and reuse none for this origin."""
        if len(self._without_reuse) >= REMEMBERED_MAX:
            self._without_reuse.clear()
        self._without_reuse.add(origin)

    def take(self, origin: Origin, addresses: Sequence[str]) -> HttpConnection | None:
        """Return the fresh connection that was used last, or None."""
        idle = self._idle.get(origin, [])
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while idle:
            connection = idle.pop()
            if connection.idle_at > oldest and connection.address in addresses and connection.is_fresh:
                return connection
            connection.abort()
        return None

    def put(self, origin: Origin, connection: HttpConnection) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - connection.opened_at > AGE_S or self.size >= IDLE_CONNECTIONS_MAX:
            connection.abort()
            return
        connection.release(loop.time())
        self._idle.setdefault(origin, []).append(connection)
        if self._cleanup is None:
            self._cleanup = loop.call_later(IDLE_S, self._close_idle, loop)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - IDLE_S
        every = [(origin, connection) for origin, idle in self._idle.items() for connection in idle]
        self._idle.clear()
        for origin, connection in every:
            if connection.is_open and connection.idle_at > oldest:
                self._idle.setdefault(origin, []).append(connection)
            else:
                connection.abort()
        self._cleanup = loop.call_later(IDLE_S, self._close_idle, loop) if self._idle else None

    def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()
        if self._cleanup is not None:
            self._cleanup.cancel()
            self._cleanup = None


async def connect(target: Target, addresses: Sequence[str], tls: ssl.SSLContext) -> HttpConnection:
    """Connect to the first address that accepts, and verify its certificate."""
    loop = asyncio.get_running_loop()
    address, connected = await _first_socket(addresses, target.port)
    try:
        _, connection = await loop.create_connection(
            lambda: HttpConnection(address, loop.time()),
            sock=connected,
            ssl=tls if target.is_tls else None,
            server_hostname=target.host if target.is_tls else None,
        )
    except OSError:
        raise AttemptFailed(AttemptError.TLS_FAILED if target.is_tls else AttemptError.CONNECT_FAILED) from None
    return connection


async def _first_socket(addresses: Sequence[str], port: int) -> tuple[str, socket.socket]:
    *others, last = addresses[:ADDRESSES_TRIED_MAX]
    for address in others:
        with suppress(OSError):
            async with asyncio.timeout(ADDRESS_S):
                return address, await _socket_to(address, port)
    try:
        return last, await _socket_to(last, port)
    except OSError:
        raise AttemptFailed(AttemptError.CONNECT_FAILED) from None


async def _socket_to(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Create a context that trusts the certificate authorities of the system and of the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs()
    if ca_file:
        context.load_verify_locations(ca_file)
    return context
