"""Message framing of HTTP/1.1 (RFC 9112): finds the start and the end of each request, and refuses invalid bytes.

This module does no input or output. A `RequestReader` is fed bytes in pieces of any size and calls a `RequestHandler`.
Its decisions depend on the bytes alone, never on the size of the pieces: it refuses a request at the first byte that
makes it invalid. llhttp splits field lines, and gets each head whole. The ends of heads and bodies are found here, so
that the size of a head is limited before it is parsed.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

import httptools

from booking_core.base.errors import HeadersTooLarge, Malformed
from booking_core.models.limits import REQUEST_FIELDS_MAX, REQUEST_HEAD_BYTES_MAX

CHUNK_EXTENSION_BYTES_MAX = 4096
"""The limit for all chunks of a body together. Extensions are ignored."""
TRAILER_BYTES_MAX = 4096
"""Trailer fields are read and dropped."""

Field = tuple[bytes, bytes]
Buffer = bytes | bytearray

NOT_HTTP = "This is not a valid HTTP/1.1 request."

_END_OF_HEAD = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([01])\r\n")
_STRAY_LINE_BREAK = re.compile(rb"[\r\n\x00](?:(?<=\x00)|(?<=\n)(?<!\r\n)|(?<=\r)[^\n])")
"""A NUL or line break that proxies may interpret differently, which allows request smuggling."""
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})((?:[ \t]*;[\t -~\x80-\xff]*)?)\r\n")
_CHUNK_LINE_MAX = 16 + CHUNK_EXTENSION_BYTES_MAX + 2
_TRAILER = re.compile(rb"(" + _TOKEN + rb"):[\t -~\x80-\xff]*\r\n")
_NOT_IN_TRAILERS = (b"host", b"content-length", b"transfer-encoding")
_KEPT_FIELDS = frozenset(
    {
        b"host",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"authorization",
        b"x-forwarded-for",
    }
)
_VERSIONS = {b"0": "1.0", b"1": "1.1"}
_PARSER_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})


class Phase(Enum):
    """The part of a request that the next byte belongs to."""

    IDLE = auto()
    """No byte of the next request has been received."""
    HEAD = auto()
    BODY = auto()
    CLOSED = auto()
    """The last request closed the connection."""


class RequestHead(NamedTuple):
    """A request line and its header fields."""

    method: str
    target: bytes
    version: str
    headers: list[Field]
    """Names in lower case, in the order received."""
    body_length: int | None
    """None for a chunked body."""
    keep_alive: bool
    expects_continue: bool = False
    """The client waits for "100 Continue" before it sends the body."""
    authorization: bytes = b""
    """The value of the first Authorization field."""
    forwarded_for: bytes = b""
    """The values of all X-Forwarded-For fields."""


class RequestHandler(Protocol):
    """Receives the parts of each request in order."""

    def request_started(self, head: RequestHead) -> None: ...

    def body_received(self, piece: bytes) -> None: ...

    def request_ended(self) -> None: ...


class _Fields:
    """The header fields that llhttp finds in one head."""

    def __init__(self) -> None:
        self.headers: list[Field] = []
        self.kept: dict[bytes, list[bytes]] = {}
        """The stripped values of the fields that control the connection and the body, and of the key."""

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        if name in _KEPT_FIELDS:
            self.kept.setdefault(name, []).append(value.strip())


class RequestReader:
    """Splits the bytes of one connection into requests.

    After `feed` has raised, do not call it again: the bytes that follow on the connection cannot be trusted.
    """

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._step: Callable[[Buffer, int], int | None] = self._read_head
        self._unread = bytearray()
        """The beginning of an unfinished head, chunk line or trailer section."""
        self._has_skipped_line = False
        """An empty line before the request line was skipped, which old clients send after a body."""
        self._checked = 0
        self._newlines = 0
        self._remaining = 0
        self._extension_bytes = 0
        self._trailer_bytes = 0
        self._keep_alive = True
        self.method = ""
        """The method of the current request, empty while it is unknown."""
        self.headers: Sequence[Field] = ()
        self.ended = 0
        """The number of requests that were read completely."""

    @property
    def phase(self) -> Phase:
        if self._step == self._ignore:
            return Phase.CLOSED
        if self._step != self._read_head:
            return Phase.BODY
        return Phase.HEAD if self._unread or self._has_skipped_line else Phase.IDLE

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the connection.

        Raises:
            Malformed: the request is invalid.
            HeadersTooLarge: the head exceeds its limit.
        """
        source: Buffer = data
        if self._unread:
            self._unread += data
            source = self._unread
        position = 0
        while position < len(source):
            following = self._step(source, position)
            if following is None:
                break
            position = following
        if source is not data:
            del self._unread[:position]
        elif position < len(data):
            self._unread += data[position:]

    # Heads -----------------------------------------------------------------------------------------------------------

    def _read_head(self, source: Buffer, position: int) -> int | None:
        if not self._has_skipped_line and source.startswith(b"\r\n", position):
            self._has_skipped_line = True
            return position + 2
        end = source.find(_END_OF_HEAD, position + max(0, self._checked - 3))
        if end < 0:
            self._check_unfinished(source[position:] if position else source)
            return None
        end += len(_END_OF_HEAD)
        block = bytes(source[position:end])
        self._checked = self._newlines = 0
        self._has_skipped_line = False
        self._start(self._parse(block))
        return end

    def _check_unfinished(self, text: Buffer) -> None:
        """Refuse an unfinished head as soon as no continuation can make it valid."""
        newlines = self._newlines + text.count(b"\n", self._checked)
        if len(text) >= REQUEST_HEAD_BYTES_MAX or newlines > REQUEST_FIELDS_MAX + 1:
            _refuse_head(text)
        has_whole_line = newlines and not self._newlines
        if has_whole_line and not _REQUEST_LINE.match(text):
            raise Malformed(NOT_HTTP)
        if _STRAY_LINE_BREAK.search(text, max(0, self._checked - 1)):
            _refuse_head(text)
        self._checked, self._newlines = len(text), newlines

    def _parse(self, block: bytes) -> RequestHead:
        line = _REQUEST_LINE.match(block)
        newlines = block.count(b"\n")
        is_small = len(block) <= REQUEST_HEAD_BYTES_MAX and newlines <= REQUEST_FIELDS_MAX + 2
        if line is None or not is_small or newlines != block.count(b"\r\n"):
            _refuse_head(block, blank_line=True)
            raise Malformed(NOT_HTTP)
        fields = _fields(block, line)
        method, target, minor = line.groups()
        self.method, self.headers = method.decode("ascii"), fields.headers
        return _head(self.method, target, _VERSIONS[minor], fields)

    def _start(self, head: RequestHead) -> None:
        self._keep_alive = head.keep_alive
        self._handler.request_started(head)
        if head.body_length is None:
            self._extension_bytes = self._trailer_bytes = 0
            self._step = self._read_chunk_line
        elif head.body_length:
            self._remaining = head.body_length
            self._step = self._read_counted
        else:
            self._end()

    def _end(self) -> None:
        self.ended += 1
        self._step = self._read_head if self._keep_alive else self._ignore
        self.method, self.headers = "", ()
        self._handler.request_ended()

    def _ignore(self, source: Buffer, _: int) -> int:
        return len(source)

    # Bodies ----------------------------------------------------------------------------------------------------------

    def _pass_body(self, source: Buffer, position: int) -> int:
        piece = bytes(source[position : position + self._remaining])
        self._remaining -= len(piece)
        self._handler.body_received(piece)
        return position + len(piece)

    def _read_counted(self, source: Buffer, position: int) -> int:
        position = self._pass_body(source, position)
        if not self._remaining:
            self._end()
        return position

    def _read_chunk_line(self, source: Buffer, position: int) -> int | None:
        end = _line_end(source, position, _CHUNK_LINE_MAX)
        if end is None:
            return None
        line = _CHUNK.fullmatch(source, position, end)
        self._extension_bytes += len(line[2]) if line else 0
        if not line or self._extension_bytes > CHUNK_EXTENSION_BYTES_MAX:
            raise Malformed(NOT_HTTP)
        self._remaining = int(line[1], 16)
        self._step = self._read_chunk if self._remaining else self._read_trailer
        return end

    def _read_chunk(self, source: Buffer, position: int) -> int:
        position = self._pass_body(source, position)
        if not self._remaining:
            self._step = self._read_chunk_end
        return position

    def _read_chunk_end(self, source: Buffer, position: int) -> int | None:
        found = bytes(source[position : position + 2])
        if not b"\r\n".startswith(found):
            raise Malformed(NOT_HTTP)
        if len(found) < 2:
            return None
        self._step = self._read_chunk_line
        return position + 2

    def _read_trailer(self, source: Buffer, position: int) -> int | None:
        end = _line_end(source, position, TRAILER_BYTES_MAX - self._trailer_bytes)
        if end is None:
            return None
        if source[position:end] == b"\r\n":
            self._end()
            return end
        line = _TRAILER.fullmatch(source, position, end)
        if not line or line[1].lower() in _NOT_IN_TRAILERS:
            raise Malformed(NOT_HTTP)
        self._trailer_bytes += end - position
        return end


def _line_end(source: Buffer, position: int, limit: int) -> int | None:
    """Return the end of the line that begins at `position`, or None while it is incomplete.

    Raises:
        Malformed: the line is longer than `limit`.
    """
    end = source.find(b"\n", position, position + limit)
    if end >= 0:
        return end + 1
    if len(source) - position >= limit:
        raise Malformed(NOT_HTTP)
    return None


def _refuse_head(text: Buffer, *, blank_line: bool = False) -> None:
    """Raise the first error in a head, complete (`blank_line`) or not."""
    line_end = text.find(b"\n", 0, REQUEST_HEAD_BYTES_MAX)
    if line_end >= 0 and not _REQUEST_LINE.match(text):
        raise Malformed(NOT_HTTP)
    stray = _STRAY_LINE_BREAK.search(text, 0, REQUEST_HEAD_BYTES_MAX + 1)
    until = stray.start() if stray else len(text) - 2 * blank_line
    is_long = stray.end() > REQUEST_HEAD_BYTES_MAX if stray else len(text) > REQUEST_HEAD_BYTES_MAX - (not blank_line)
    if is_long or text.count(b"\n", 0, until) > REQUEST_FIELDS_MAX + 1:
        raise HeadersTooLarge
    if stray:
        raise Malformed(NOT_HTTP)


def _fields(block: bytes, line: "re.Match[bytes]") -> _Fields:
    found = _Fields()
    text = block
    if line[1] not in _PARSER_METHODS:
        # The application answers an unknown method with 405; llhttp would refuse it, or change protocols.
        text = b"GET" + block[line.end(1) :]
    try:
        httptools.HttpRequestParser(found).feed_data(text)
    except httptools.HttpParserUpgrade:
        pass  # the upgrade is optional, and the request is answered without it
    except httptools.HttpParserError:
        _refuse_head(block, blank_line=True)
        raise Malformed(NOT_HTTP) from None
    return found


def _head(method: str, target: bytes, version: str, fields: _Fields) -> RequestHead:
    found = fields.kept
    hosts = found.get(b"host", ())
    is_absent = not hosts and version == "1.0"  # as health checks of load balancers are
    if not is_absent and (len(hosts) != 1 or not _HOST.fullmatch(hosts[0])):
        raise Malformed.at("Host", "must be sent exactly once, with a valid value", "host")
    length = _body_length(version, found.get(b"content-length", ()), found.get(b"transfer-encoding", ()))
    keep_alive = version == "1.1" and not _closes(found.get(b"connection", ()))
    expects_continue = version == "1.1" and b"100-continue" in map(bytes.lower, found.get(b"expect", ()))
    return RequestHead(
        method,
        target,
        version,
        fields.headers,
        length,
        keep_alive,
        expects_continue,
        authorization=found.get(b"authorization", (b"",))[0],
        forwarded_for=b",".join(found.get(b"x-forwarded-for", ())),
    )


def _closes(connection: Sequence[bytes]) -> bool:
    """Return whether the Connection fields have the option `close`."""
    options = b",".join(connection).lower()
    return b"close" in options and b"close" in map(bytes.strip, options.split(b","))


def _body_length(version: str, lengths: Sequence[bytes], codings: Sequence[bytes]) -> int | None:
    """Return the length of the body from its header fields, or None for a chunked body.

    Raises:
        Malformed: the fields are ambiguous, or name an unknown transfer coding.
    """
    if not codings:
        if not lengths:
            return 0
        if len(lengths) > 1 or not lengths[0].isdigit():
            raise Malformed.at("Content-Length", "must be one number", "content_length")
        return int(lengths[0])
    if lengths or version == "1.0" or [value.lower() for value in codings] != [b"chunked"]:
        raise Malformed.at(
            "Transfer-Encoding", "must be chunked, alone and without Content-Length", "transfer_encoding"
        )
    return None
