"""uvicorn's HTTP/1.1 protocol with bounds, deadlines and a lingering close.

uvicorn alone accepts requests without a Host, heads of any size, and requests that are never finished. The functions at
the end check each head before and after uvicorn's parser reads it.
"""

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from booking_core.base.errors import BookingError, HeadersTooLarge, Malformed
from booking_core.models.limits import REQUEST_FIELDS_MAX, REQUEST_HEAD_BYTES_MAX
from booking_core.models.reasons import ErrorReason
from booking_server.execution.authenticator import unmapped
from booking_server.refusals import refused
from booking_server.request_state import state_of

log = logging.getLogger("booking.http")

Field = tuple[bytes, bytes]

UNREAD_BYTES_MAX = 4096
"""The unsent bytes of responses above which `pause_writing` is called, and the client has to read in time.

uvloop keeps fewer bytes until the end of its iteration, and so sends a head and its body with one system call.
"""
LINGER_BYTES_MAX = 1024 * 1024
"""The most bytes that are read and dropped after the last response of a connection."""

FRAMING_BYTES_MAX = 4096
"""The most bytes of a chunked body's sizes, extensions and trailers together."""
CHUNK_FRAMING_BYTES = 8
"""Bytes of each chunk that do not count as such: its size and two line ends."""

_CLIENT, _UNREAD = "client", "unread"
"""The timers of a connection: of bytes that the client has to send, and of a response that it has to read."""
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The time limits for a client, in seconds (decision R4)."""

    head_s: float = 10
    """From the first byte of a head to its last; for the first request, from the connect."""
    body_s: float = 30
    """From the end of the head to the last byte of the body."""
    write_s: float = 30
    """Without any progress of a response that the client does not read."""
    linger_s: float = 10
    """To read the last response and stop sending, before the connection is aborted."""


class LingeringTransport:
    """A transport whose `close` ends the connection after the last response by `finish`."""

    def __init__(self, transport: Any, finish: Callable[[], None]) -> None:
        self._transport = transport
        self._finish = finish
        self._is_finished = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_finished or bool(self._transport.is_closing())

    def close(self) -> None:
        if not self.is_closing():
            self._is_finished = True
            self._finish()


class HttpProtocol(HttpToolsProtocol):
    """The protocol of one client connection."""

    deadlines = Deadlines()

    def connection_made(self, transport: Any) -> None:
        self._socket = transport
        transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX)
        self._output = LingeringTransport(transport, self._linger)
        super().connection_made(self._output)  # type: ignore[arg-type]
        if self.client:  # a dual-stack socket shows IPv4 as IPv6, and proxies are trusted by their IPv4 address
            self.client = unmapped(self.client[0]), self.client[1]
        self._head = b""
        """The beginning of an unfinished head."""
        self._running: RequestResponseCycle | None = None
        """The last request that was started; uvicorn's `cycle` is the last request that was read."""
        self._is_in_body = False
        self._body_tail = b""
        """The last bytes of a chunked body, which may be the beginning of a blank line."""
        self._framing_bytes = 0
        self._ended = 0
        """The number of requests that were read completely."""
        self._is_discarding = False
        self._refusal: tuple[BookingError, list[Field]] | None = None
        """The refusal of the last request, with its headers, until the requests before it are answered."""
        self._is_stopping = False
        self._discarded = 0
        self._awaited: tuple[bool, int] | None = (False, 0)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._await_client()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer(_CLIENT)
        self._stop_timer(_UNREAD)
        if self._is_responding:
            log.debug("a client left before its last response was complete")
        if self._running is not None:  # uvicorn ends only the last request, and one before it would write to nobody
            self._running.disconnected = True
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def shutdown(self) -> None:
        """Finish the responses in progress, then close without waiting for the client."""
        self._is_stopping = True
        if not self._is_responding:
            self._socket.close()
        elif self._refusal is None:  # a refusal closes the connection itself
            self.cycle.keep_alive = False

    @property
    def _is_responding(self) -> bool:
        return self._refusal is not None or (self.cycle is not None and not self.cycle.response_complete)

    # Bytes for the parser --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._is_discarding:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self._socket.abort()
            return
        try:
            self._parse(data)
        except BookingError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            # Its context is an exception of one of the methods below, which the parser has called.
            self._refuse(error.__context__ if isinstance(error.__context__, BookingError) else Malformed(_NOT_HTTP))
        else:
            self._update_deadline()

    def _parse(self, data: bytes) -> None:
        """Give the parser each head whole, and never bytes of two requests at once: so the size of a head is known."""
        position = 0
        while position < len(data) and not self._is_discarding:
            read = self._parse_body if self._is_in_body else self._parse_head
            position = read(data, position)

    def _parse_head(self, data: bytes, position: int) -> int:
        """Give the parser a head if it is complete, and return where it ends."""
        self.headers, self._method = [], "GET"
        text = self._head + data[position : position + REQUEST_HEAD_BYTES_MAX]
        end = _end_of_head(text)
        if end is None:
            self._head = text
            return len(data)
        position += end - len(self._head)
        self._head = b""
        block, self._method = _for_parser(text[:end])
        self.parser.feed_data(block)
        return position

    def _parse_body(self, data: bytes, position: int) -> int:
        """Give the parser the next part of a body, and return where it ends."""
        if self._body_left is None:
            lines = _until_blank_line(self._body_tail + data[position:])
            piece, self._body_tail = lines[len(self._body_tail) :], lines[-3:]
        else:
            piece = data[position : position + self._body_left]
            self._body_left -= len(piece)
        self._framing_bytes += len(piece)
        self.parser.feed_data(piece)
        if self._is_in_body:
            self._check_framing()
        return position + len(piece)

    # The parser's callbacks -----------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        self._body_left = _body_length(self.headers, version)
        self._body_tail, self._framing_bytes = b"", 0
        self.expect_100_continue = self.expect_100_continue and version != "1.0"
        super().on_headers_complete()
        self.scope["method"] = self._method
        # uvicorn reads it when the response starts: before the end of the request, that closes the connection.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        self._is_in_body, self.headers = True, []  # trailers are no headers of the request

    def on_chunk_header(self) -> None:
        self._framing_bytes -= CHUNK_FRAMING_BYTES

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._check_framing()
        _check_trailers(self.headers)
        self._is_in_body = False
        self._ended += 1
        self._is_discarding = not self._keeps_alive
        self.cycle.keep_alive = self._keeps_alive and not self._is_stopping and not self.cycle.response_started
        super().on_message_complete()

    def _check_framing(self) -> None:
        if self._framing_bytes > FRAMING_BYTES_MAX:
            raise Malformed(_NOT_HTTP)

    # Refusals --------------------------------------------------------------------------------------------------------

    def _refuse(self, error: BookingError) -> None:
        """Answer an invalid request, after the requests before it, and close the connection."""
        self._is_discarding = True
        self._stop_timer(_CLIENT)
        if self._is_in_body and not self._withdraw():
            self._output.close()
            return
        self._refusal = error, list(self.scope["headers"]) if self._is_in_body else self.headers
        self._is_in_body = False
        self.flow.pause_reading()  # until the requests before it are answered
        self._write_refusal()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._write_refusal()

    def _write_refusal(self) -> None:
        """Write the refusal and close the connection, if all requests before it are answered."""
        is_running = self._running is not None and not self._running.response_complete
        if self._refusal is None or is_running or self.pipeline or self._output.is_closing():
            return
        (error, headers), self._refusal = self._refusal, None
        self._unset_keepalive_if_required()
        self._output.write(refused(error, headers, self.app_state, self.server_state.default_headers))
        self._output.close()

    def _withdraw(self) -> bool:
        """Cancel the request whose body is invalid, and return whether it can still be refused."""
        cycle = self.cycle
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            self.cycle = cast("RequestResponseCycle", self._running)
            return True
        cycle.disconnected = True
        cycle.message_event.set()
        if cycle.response_started:
            return False
        state_of(cast("Scope", cycle.scope)).is_withdrawn = True
        cycle.response_complete = True
        return True

    # Deadlines -----------------------------------------------------------------------------------------------------

    def _update_deadline(self) -> None:
        """Set the deadline for the part of a request that is expected next."""
        awaited = (self._is_in_body, self._ended) if self._is_in_body or self._head else None
        if awaited == self._awaited:
            return
        self._awaited = awaited
        self._stop_timer(_CLIENT)
        if awaited is not None:
            self._await_client()

    def _await_client(self) -> None:
        seconds = self.deadlines.body_s if self._is_in_body else self.deadlines.head_s
        self._start_timer(_CLIENT, seconds, self._client_is_late)

    def _client_is_late(self) -> None:
        if self.flow.read_paused:  # by the server, so the client is not late
            self._await_client()
        elif self._is_in_body or not self._is_responding:
            self._socket.abort()
        else:
            self._is_discarding = True
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer(_UNREAD)

    def _await_reading(self) -> None:
        unread = self._socket.get_write_buffer_size()
        self._start_timer(_UNREAD, self.deadlines.write_s, self._abort_unread, unread)

    def _abort_unread(self, unread: int) -> None:
        """Abort the connection, unless its client has read a part of the response since the deadline was set."""
        if self._socket.get_write_buffer_size() < unread:
            self._await_reading()
            return
        if (connection := self._socket.get_extra_info("socket")) is not None:
            # The kernel drops unsent bytes. Otherwise it would keep the response for minutes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.abort()

    def _start_timer(self, name: str, seconds: float, callback: Callable[..., None], *arguments: object) -> None:
        self._timers[name] = self.loop.call_later(seconds, callback, *arguments)

    def _stop_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def timeout_keep_alive_handler(self) -> None:
        """Abort an idle connection, also when its client never read the last response."""
        self._socket.abort()

    # The end of a connection -----------------------------------------------------------------------------------------

    def _linger(self) -> None:
        """Half-close the connection, and drop all bytes until the client closes it too.

        Closing at once would reset the connection of a client that is still sending, and it would lose the response.
        """
        self._is_discarding = True
        self._stop_timer(_CLIENT)
        if self._is_stopping or not self._socket.can_write_eof():
            self._socket.close()
            return
        self.flow.resume_reading()
        self._socket.write_eof()
        self._start_timer(_CLIENT, self.deadlines.linger_s, self._socket.abort)


# Heads ----------------------------------------------------------------------------------------------------------------

_NOT_HTTP = "This is not a valid HTTP/1.1 request."

_EMPTY_LINE = b"\r\n"
_BLANK_LINE = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/1\.[01]\r")
_FIELD_LINE = re.compile(rb"[^\r\x00]*\r")
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]+")
_CHECKED_FIELDS = frozenset({b"host", b"content-length", b"transfer-encoding"})
_PARSER_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})


def _end_of_head(text: bytes) -> int | None:
    """Return where a head ends, or None while it is not complete.

    Raises:
        Malformed: a line is invalid.
        HeadersTooLarge: there are more bytes or lines than a head may have.
    """
    start = len(_EMPTY_LINE) if text.startswith(_EMPTY_LINE) else 0  # old clients send an empty line after a body
    end = text.find(_BLANK_LINE, start + 1, REQUEST_HEAD_BYTES_MAX)
    if end < 0:
        _check_lines(text[start:REQUEST_HEAD_BYTES_MAX])
        if len(text) >= REQUEST_HEAD_BYTES_MAX:
            raise HeadersTooLarge
        return None
    if text.count(b"\n", start, end) > REQUEST_FIELDS_MAX or not _REQUEST_LINE.match(text, start):
        _check_lines(text[start : end + 2])
    return end + len(_BLANK_LINE)


def _check_lines(text: bytes) -> None:
    """Refuse the beginning of a head by its first invalid line, or its first one too many.

    A proxy may take a bare line feed or a NUL for the end of a line, which allows request smuggling.
    """
    *lines, rest = text.split(b"\n")
    for number, line in enumerate(lines):
        if not (_FIELD_LINE if number else _REQUEST_LINE).fullmatch(line):
            raise Malformed(_NOT_HTTP)
        if number > REQUEST_FIELDS_MAX:
            raise HeadersTooLarge
    if not _FIELD_LINE.fullmatch(rest.removesuffix(b"\r") + b"\r"):
        raise Malformed(_NOT_HTTP)


def _until_blank_line(text: bytes) -> bytes:
    """Return the text until the end of its first blank line, the end of a chunked body; without a blank line all of
    it."""
    end = text.find(_BLANK_LINE)
    return text[: end + len(_BLANK_LINE)] if end >= 0 else text


def _for_parser(head: bytes) -> tuple[bytes, str]:
    """Return a complete head as the parser takes it, and its method.

    The application answers an unknown method with 405, where the parser would refuse it or change protocols. An upgrade
    is an offer, and the request is answered without it.
    """
    head = _UPGRADE.sub(b"", head.removeprefix(_EMPTY_LINE))
    method = head[: head.index(b" ")]
    return head if method in _PARSER_METHODS else b"GET" + head.removeprefix(method), method.decode("ascii")


def _body_length(headers: Sequence[Field], version: str) -> int | None:
    """Return the length of the body, or None if it is chunked.

    Raises:
        Malformed: the host is missing or ambiguous, or the body has another transfer coding.
    """
    fields = [(name, value.strip()) for name, value in headers if name in _CHECKED_FIELDS]
    hosts = [value for name, value in fields if name == b"host"]
    is_absent = not hosts and version == "1.0"  # as health checks of load balancers are
    if not is_absent and (len(hosts) != 1 or not _HOST.fullmatch(hosts[0])):
        reason: ErrorReason = "required" if not hosts else "repeated" if len(hosts) > 1 else "wrong_format"
        raise Malformed.at("Host", "must be sent exactly once, with a valid value", reason)
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if not codings:
        return next((int(value) for name, value in fields if name == b"content-length"), 0)
    if version == "1.0" or codings != [b"chunked"]:
        raise Malformed.at("Transfer-Encoding", "must be chunked, alone, and sent by HTTP/1.1", "not_allowed")
    return None


def _check_trailers(trailers: Sequence[Field]) -> None:
    """Refuse fields after a body that control the connection or the body. All others are dropped."""
    if any(name in _CHECKED_FIELDS for name, _ in trailers):
        raise Malformed(_NOT_HTTP)
