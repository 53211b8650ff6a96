"""One HTTP/1.1 connection: uvicorn's protocol with strict framing, bounded heads, deadlines and a lingering close.

uvicorn alone accepts requests without a Host, heads of any size, and clients that never finish what they began. Here
`framing` decides what a request is; uvicorn's classes do the rest: the ASGI cycle, flow control and pipelining.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from booking_core.errors import BookingError, Malformed
from booking_server.api import errors
from booking_server.api.middleware import RequestContextMiddleware
from booking_server.execution.clients import unmapped
from booking_server.framing import NOT_HTTP, Phase, RequestHead, RequestReader

LINGER_BYTES_MAX = 64 * 1024 * 1024
"""Read and dropped at most after the last answer of a connection."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a client has (decision R4)."""

    head_s: float = 10
    """From the first byte of a head to its last; of the first request from when the client connected."""
    body_s: float = 30
    """From the end of the head to the last byte of the body."""
    linger_s: float = 10
    """To read the last answer, and to stop sending, before the connection is cut."""


class OnePiece:
    """A transport that keeps what is written until the loop's next turn, and sends it together.

    uvicorn writes head and body of an answer apart and uvloop sends each at once: two system calls, two packets, and a
    client that is woken twice. Of a short answer that was a tenth of all that the process did.

    Args:
        finish: ends the connection after the last answer, in the place of the transport's own `close`.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, finish: Callable[[], None]) -> None:
        self._transport = transport
        self._loop = loop
        self._finish = finish
        self._pieces: list[bytes] = []
        self._is_finished = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)

    def is_closing(self) -> bool:
        return self._is_finished or bool(self._transport.is_closing())

    def close(self) -> None:
        self.flush()
        if not self.is_closing():
            self._is_finished = True
            self._finish()

    def flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self.is_closing():
            self._transport.write(b"".join(pieces))


class Cycle(RequestResponseCycle):
    """One request and its response, which closes the connection when it is sent before the whole request has come."""

    @property
    def keep_alive(self) -> bool:
        # Read once when the response begins, where it decides on "Connection: close", and once at its end.
        if self.more_body:
            self._keep_alive = False
        return self._keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self._keep_alive = value


class HttpProtocol(HttpToolsProtocol):
    """One connection of a client."""

    deadlines = Deadlines()

    def connection_made(self, transport: Any) -> None:
        self._wire = transport
        self._pieces = OnePiece(transport, self.loop, self._linger)
        super().connection_made(self._pieces)  # type: ignore[arg-type]
        if self.client:  # a socket for both families shows IPv4 as IPv6, and a proxy is trusted by its IPv4 address
            self.client = unmapped(self.client[0]), self.client[1]
        self._reader = RequestReader(self)
        self._is_discarding = False
        self._is_stopping = False
        self._discarded = 0
        self._waits_for: tuple[Phase, int] | None = (Phase.HEAD, 0)
        self._deadline: asyncio.TimerHandle | None = None
        self._set_deadline(self.deadlines.head_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish the responses that are under way, then close without waiting for the client."""
        self._is_stopping = True
        if self._is_answering:
            self.cycle.keep_alive = False
        else:
            self._pieces.flush()
            self._wire.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.disconnected

    # What the client sends -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._is_discarding:
            self._discard(len(data))
            return
        try:
            self._reader.feed(data)
        except BookingError as error:
            self._refuse(error)
        else:
            self._watch()

    def request_started(self, head: RequestHead) -> None:
        self._open_scope(head)
        path, query = _split(head.target)
        self.scope["raw_path"] = self.root_path.encode("ascii") + path
        text = path.decode("ascii")
        self.scope["path"] = self.root_path + (unquote(text) if "%" in text else text)
        self.scope["query_string"] = query
        self._begin(self.app, head.keep_alive, expects_continue=head.expects_continue)

    def body_received(self, piece: bytes) -> None:
        if self.cycle.response_complete:
            return
        self.cycle.body += piece
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def request_ended(self) -> None:
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def _open_scope(self, head: RequestHead) -> None:
        self.on_message_begin()
        self.scope["method"] = head.method
        self.scope["headers"] = head.headers
        self.scope["http_version"] = head.version

    def _begin(self, app: Any, keep_alive: bool, *, expects_continue: bool = False) -> None:
        """Run the application for the request in `self.scope`, after those that came before it."""
        before = self.cycle
        self.cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects_continue,
            keep_alive=keep_alive and not self._is_stopping,
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete or before.disconnected:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    # What is refused -------------------------------------------------------------------------------------------------

    def _refuse(self, error: BookingError) -> None:
        """Answer what is not a valid request, after all that came before it, and close."""
        self._is_discarding = True
        self._clear_deadline()
        if self._reader.phase is Phase.BODY and not self._withdraw():
            self._pieces.close()
            return
        reader = self._reader
        self._open_scope(RequestHead(reader.method or "GET", b"", "1.1", list(reader.headers), 0, False))
        self.scope["path"], self.scope["raw_path"], self.scope["query_string"] = "", b"", b""
        self._begin(RequestContextMiddleware(_refusal(error)), keep_alive=False)
        self.request_ended()

    def _withdraw(self) -> bool:
        """Take back the request whose body turned out to be invalid; return whether it can still be refused."""
        cycle = self.cycle
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            return True
        if cycle.response_started:
            return False
        cycle.disconnected = True
        cycle.message_event.set()
        return True

    # How long it may take --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Keep the deadline of the part of a request that is awaited."""
        phase = self._reader.phase
        if phase is Phase.IDLE and self._waits_for is None:
            return
        awaited = (phase, self._reader.ended) if phase in (Phase.HEAD, Phase.BODY) else None
        if awaited == self._waits_for:
            return
        self._waits_for = awaited
        self._clear_deadline()
        if phase is Phase.HEAD:
            self._set_deadline(self.deadlines.head_s, self._head_is_late)
        elif phase is Phase.BODY:
            self._set_deadline(self.deadlines.body_s, self._body_is_late)

    def _set_deadline(self, seconds: float, act: Callable[[], None]) -> None:
        self._deadline = self.loop.call_later(seconds, act)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        if not self._is_answering:
            self._wire.abort()
        elif self.flow.read_paused:  # not the client's fault: it is not listened to
            self._set_deadline(self.deadlines.head_s, self._head_is_late)
        else:
            self._is_discarding = True
            self.cycle.keep_alive = False

    def _body_is_late(self) -> None:
        if self.flow.read_paused:
            self._set_deadline(self.deadlines.body_s, self._body_is_late)
        else:
            self._wire.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Cut a connection that is idle, also one whose client never read its last answer."""
        self._wire.abort()

    # The end of a connection -----------------------------------------------------------------------------------------

    def _linger(self) -> None:
        """Send the end of the stream, and drop what the client still sends until it has read that.

        To close at once would reset the connection of a client that is still writing, and the last answer with it.
        """
        self._is_discarding = True
        self._clear_deadline()
        if self._is_stopping or not self._wire.can_write_eof():
            self._wire.close()
            return
        self.flow.resume_reading()
        self._wire.write_eof()
        self._set_deadline(self.deadlines.linger_s, self._wire.abort)

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > LINGER_BYTES_MAX:
            self._wire.abort()


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Return path and query of a request target.

    Raises:
        Malformed: it is not one.
    """
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise Malformed(NOT_HTTP) from None
    if not parsed.path:
        raise Malformed(NOT_HTTP)
    return parsed.path, parsed.query or b""


def _refusal(error: BookingError) -> ASGIApp:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await errors.respond_with(error, scope["booking.request_id"])(scope, receive, send)

    return answer
