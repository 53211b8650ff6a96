"""The sender: one POST to one receiver, behind the address guard and under one deadline, and what became of it.

A small HTTP/1.1 client of our own (decisions 0007 and 0024). It knows nothing of deliveries, retries or signatures: the
worker brings headers and body, and gets an outcome whatever the receiver does. One call of `send` hands at most one
request to the network: a request that may have reached a receiver is never sent again under the same delivery id.
"""

import asyncio
import codecs
import re
import select
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

import httptools

from booking_core.models import limits
from booking_core.models.webhooks import AttemptError
from booking_core.settings import SettingError, Settings
from booking_server.adapters.address_guard import AddressGuard, BlockedAddress, NoAddress, Resolver, Target

HEAD_BYTES_MAX: Final = 32 * 1024
"""Of the response's head, the heads of interim responses included."""
BODY_BYTES_MAX: Final = 64 * 1024
"""Of the response's body; what comes after is not read (decision W9)."""
BODY_S = 1.0
"""The longest wait for the rest of a body after a complete 2xx head, within the deadline. The attempt has succeeded by
then; a body that drips must hold neither the worker's slot nor the next event. What a failed attempt's receiver has to
say is read until the deadline."""
INTERIM_MAX: Final = 8
READ_BYTES: Final = 16 * 1024
RECEIVE_BUFFER_BYTES: Final = 32 * 1024
"""What the kernel, and with TLS the event loop, may hold of a response before we have looked at it."""

ADDRESSES_TRIED_MAX: Final = 4
ADDRESS_S = 2.0
"""How long an address may stay silent before the name's next one is tried, within the deadline."""

IDLE_S = 1.5
"""A kept connection is not used again after so long without a request. The shortest default of a common server is
gunicorn's, which closes after 2 s (Node, uvicorn and Apache: 5 s): a request that crosses with such a close fails its
attempt, so no connection is used when one may be on its way."""
AGE_S: Final = 60.0
"""No connection is kept for longer: its certificate was verified when it began."""
IDLE_CONNECTIONS_MAX: Final = 128
REMEMBERED_MAX: Final = 1024

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one request."""

    status: int | None
    """Of a complete response head."""
    excerpt: str | None
    """The beginning of the response's body, printable, at most 1024 characters; of a compressed body its encoding and
    size. None when no byte of a body arrived in time."""
    error: AttemptError | None
    """None when a complete 2xx head arrived in time (decision W9)."""
    duration_ms: int


class _Failed(Exception):
    """The attempt ends here, for this reason."""

    def __init__(self, error: AttemptError) -> None:
        super().__init__(error)
        self.error = error


# The reply -------------------------------------------------------------------------------------------------------


class _Reply:
    """A response as it arrives. It is judged by its head alone, as soon as that is complete."""

    def __init__(self) -> None:
        self.status: int | None = None
        """Of the final head, once that is complete."""
        self.body = bytearray()
        """As much as an excerpt can need."""
        self.is_over = False
        """Nothing more is wanted: it ended, or reached a limit, or is not HTTP."""
        self.can_be_followed = False
        """It ended where the next response on this connection would begin."""
        self._encoding = ""
        self._head_bytes = 0
        self._body_bytes = 0
        self._interim = 0
        self._start = b""
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_untouched(self) -> bool:
        """Not one byte of it has arrived."""
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
        """Takes what was read, and raises for nothing that may be in it."""
        if self.is_over:
            if data.strip(b"\r\n"):  # bytes that nobody asked for; the parser skips ends of lines before a response
                self.can_be_followed = False
            return
        try:
            if self.status is None:
                data = self._feed_head(data)
            if data and not self.is_over:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_over = True
            self.can_be_followed = False

    def _feed_head(self, data: bytes) -> bytes:
        """Takes as much as the head may still be long, and gives back the rest."""
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

    # What follows is called by the parser; a ValueError reaches `feed` as an error of the parser's.

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
        """The parser lets through bytes from 80 upwards, and NUL in a reason."""
        if self.status is None and not (text.isascii() and b"\0" not in text):
            raise ValueError("not plain text in a head")

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
            raise ValueError("interim responses without end, or another protocol")

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        self.body += data[: 4 * limits.WEBHOOK_EXCERPT_LENGTH_MAX - len(self.body)]
        if self._body_bytes >= BODY_BYTES_MAX:
            self.is_over = True

    def on_message_complete(self) -> None:
        if self.status is not None and not self.is_over:
            self.is_over = True
            self.can_be_followed = self._parser.should_keep_alive()


# Connections -----------------------------------------------------------------------------------------------------


class _Connection(asyncio.BufferedProtocol):
    """A connection to one checked address. It carries one request at a time."""

    def __init__(self, address: str, made_at: float) -> None:
        self.address = address
        self.made_at = made_at
        self.idle_at = made_at
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._reply: _Reply | None = None
        self._ended: asyncio.Future[None] | None = None
        self._cut: asyncio.TimerHandle | None = None
        self._lost: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_fresh(self) -> bool:
        """Nothing has arrived since its last response: no end, no reset, no byte.

        The event loop may not have looked yet, so the socket itself is asked. Whatever has arrived would end the
        connection; a request that is written to it could be lost without a trace.
        """
        return self.is_open and not _is_readable(cast(asyncio.Transport, self._transport).get_extra_info("socket"))

    @property
    def was_refused(self) -> bool:
        """The receiver ended TLS with an alert, which for want of a certificate comes after the handshake."""
        return isinstance(self._lost, ssl.SSLError) and not isinstance(self._lost, ssl.SSLEOFError)

    async def exchange(self, request: bytes, reply: _Reply) -> None:
        """Send the request, and return when the reply or the connection is over, or the body takes too long."""
        if self._transport is not None and self.is_open:
            self._reply = reply
            self._ended = asyncio.get_running_loop().create_future()
            self._transport.write(request)
            await self._ended

    def rest(self, at: float) -> None:
        """The exchange is over; another may come."""
        self._reply = None
        self.idle_at = at

    def abort(self) -> None:
        """Closes without waiting for anybody."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have no common base with asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._reply is None:  # sent unasked: it must not become the answer to a later request
            self.abort()
            return
        self._reply.feed(bytes(self._buffer[:nbytes]))
        if self._reply.is_over:
            self._end()
            if not self._reply.can_be_followed:
                self.abort()
        elif self._reply.waits_for_body and self._cut is None:
            self._cut = asyncio.get_running_loop().call_later(BODY_S, self._end)

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


_Place = tuple[bool, str, int]
"""Whether TLS, which host, which port: requests of one place may share a connection."""


def _place(target: Target) -> _Place:
    return target.is_tls, target.host, target.port


class _Kept:
    """Connections between two requests.

    One is given out again only to the same place, only while the address it leads to is among those just resolved and
    checked, so a name that moves away takes its connections with it, and only while it is fresh: used a moment ago,
    with nothing arrived since.
    """

    def __init__(self) -> None:
        self._idle: dict[_Place, list[_Connection]] = {}
        self._count = 0
        self._unfit: OrderedDict[_Place, None] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def is_fit(self, place: _Place) -> bool:
        return place not in self._unfit

    def note_unfit(self, place: _Place) -> None:
        """Remember that a request on a kept connection got no answer there; the place gets no more of them."""
        self._unfit[place] = None
        if len(self._unfit) > REMEMBERED_MAX:
            self._unfit.popitem(last=False)

    def take(self, place: _Place, addresses: Sequence[str]) -> _Connection | None:
        """Return the connection used last that is fresh, or None."""
        idle = self._idle.get(place, [])
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while idle:
            connection = idle.pop()
            self._count -= 1
            if connection.idle_at > oldest and connection.address in addresses and connection.is_fresh:
                return connection
            connection.abort()
        return None

    def put(self, place: _Place, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - connection.made_at > AGE_S or self._count >= IDLE_CONNECTIONS_MAX:
            connection.abort()
            return
        connection.rest(loop.time())
        self._idle.setdefault(place, []).append(connection)
        self._count += 1
        if self._sweeping is None:
            self._sweeping = loop.call_later(IDLE_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - IDLE_S
        for place, idle in list(self._idle.items()):
            staying = [connection for connection in idle if connection.is_open and connection.idle_at > oldest]
            for connection in idle:
                if connection not in staying:
                    connection.abort()
            self._count -= len(idle) - len(staying)
            if staying:
                self._idle[place] = staying
            else:
                del self._idle[place]
        self._sweeping = loop.call_later(IDLE_S, self._sweep, loop) if self._idle else None

    def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()
        self._count = 0
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None


async def _connect(target: Target, addresses: Sequence[str], tls: ssl.SSLContext) -> _Connection:
    """A connection to the first of the addresses that answers, certificate verified."""
    loop = asyncio.get_running_loop()
    address, connected = await _first_socket(addresses, target.port)
    try:
        _, connection = await loop.create_connection(
            lambda: _Connection(address, loop.time()),
            sock=connected,
            ssl=tls if target.is_tls else None,
            server_hostname=target.host if target.is_tls else None,
        )
    except OSError:
        raise _Failed(AttemptError.TLS_FAILED if target.is_tls else AttemptError.CONNECT_FAILED) from None
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
        raise _Failed(AttemptError.CONNECT_FAILED) from None


async def _socket_to(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities, and those of the file; names, addresses and dates are verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise SettingError(f"BOOKING_WEBHOOK_CA_FILE cannot be read: {error.strerror or error}") from None
    return context


# The sender ------------------------------------------------------------------------------------------------------


class WebhookSender:
    """Sends webhooks, any number at a time. Belongs to one event loop."""

    def __init__(
        self, settings: Settings, *, resolver: Resolver | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guard = AddressGuard(settings, resolver)
        self._deadline_s = settings.webhook_deadline_s
        self._clock = clock
        self._tls = _tls_context(settings.webhook_ca_file)
        self._kept = _Kept()

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        """POSTs the body once. Ends within the deadline, and raises for nothing that DNS or a receiver does.

        Host, Content-Length, Accept-Encoding and Connection are added to the headers.
        """
        started = self._clock()
        reply = _Reply()
        error: AttemptError | None = AttemptError.PROTOCOL_ERROR
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._attempt(url, headers, body, reply)
        except TimeoutError:
            error = AttemptError.TIMEOUT
        except _Failed as failed:
            error = failed.error
        if reply.status is not None:  # whatever became of the body
            error = _judged(reply.status)
        return Sent(reply.status, reply.excerpt(), error, round((self._clock() - started) * 1000))

    async def close(self) -> None:
        """Drops the connections that are kept."""
        self._kept.close()
        await asyncio.sleep(0)  # in which the loop closes their sockets

    async def _attempt(self, url: str, headers: Sequence[tuple[str, str]], body: bytes, reply: _Reply) -> None:
        target, addresses = await self._resolve(url)
        place = _place(target)
        is_fit = self._kept.is_fit(place)
        request = _request(target, headers, body, keep=is_fit)
        kept = self._kept.take(place, addresses) if is_fit else None
        connection = kept or await _connect(target, addresses, self._tls)
        try:
            await self._exchange(place, connection, request, reply)
        finally:
            if kept and reply.is_untouched:
                # The receiver may have closed it as the request was on its way, or has read the request: nobody can
                # tell, so the attempt fails. It is the last one that a kept connection can cost this receiver.
                self._kept.note_unfit(place)
        if reply.is_untouched and connection.was_refused:
            raise _Failed(AttemptError.TLS_FAILED)

    async def _resolve(self, url: str) -> tuple[Target, Sequence[str]]:
        try:
            return await self._guard.resolve(url)
        except BlockedAddress:
            raise _Failed(AttemptError.BLOCKED_ADDRESS) from None
        except NoAddress:
            raise _Failed(AttemptError.DNS_FAILED) from None

    async def _exchange(self, place: _Place, connection: _Connection, request: bytes, reply: _Reply) -> None:
        try:
            await connection.exchange(request, reply)
        finally:
            if reply.can_be_followed and connection.is_open:
                self._kept.put(place, connection)
            else:
                connection.abort()


def _request(target: Target, headers: Sequence[tuple[str, str]], body: bytes, *, keep: bool) -> bytes:
    lines = [
        f"Host: {target.authority}",
        f"Content-Length: {len(body)}",
        "Accept-Encoding: identity",
        *([] if keep else ["Connection: close"]),
        *(f"{name}: {value}" for name, value in headers),
    ]
    for line in lines:
        if not _HEADER.fullmatch(line):
            raise ValueError("a header must be one line of printable ASCII")
    return "\r\n".join([f"POST {target.path} HTTP/1.1", *lines, "\r\n"]).encode("ascii") + body


def _judged(status: int) -> AttemptError | None:
    if status < 300:
        return None
    return AttemptError.REDIRECT if status < 400 else AttemptError.HTTP_STATUS


def _printable(text: str) -> str:
    """Return the text with spaces for white space, and with a replacement character for every other control."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
