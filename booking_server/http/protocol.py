"""uvicorn's HTTP/1.1 protocol with strict framing, limited heads, deadlines and a lingering close.

uvicorn alone accepts requests without a Host, heads of any size, and requests that are never finished. Here `framing`
finds and checks the requests. uvicorn's classes do the rest: the ASGI cycle, flow control and pipelining. Requests that
`admission` refuses are answered here, mostly without any of that.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from booking_core.base.errors import BookingError, Malformed, RateLimited
from booking_core.models.limits import REQUEST_BODY_BYTES_MAX
from booking_server.api.middleware import REFUSALS, WITHDRAWN
from booking_server.cells.routing import GUEST_PAGES
from booking_server.execution.authenticator import unmapped
from booking_server.http.admission import STATE, Admission, Client, Owner
from booking_server.http.framing import NOT_HTTP, Phase, RequestHead, RequestReader
from booking_server.http.refusals import PreparedRefusals, Refusal, refusing, refusing_unobserved

LINGER_BYTES_MAX = 1024 * 1024
"""The most bytes that are read and dropped after the last response of a connection."""

_RESET = struct.pack("ii", 1, 0)
_GUEST_PAGES = tuple(prefix.encode() for prefix in GUEST_PAGES)


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

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if not self.is_closing():
            self._is_finished = True
            self._finish()


class RequestCycle(RequestResponseCycle):
    """A request and its response. The connection closes if the response starts before the request is complete."""

    owner: Owner
    head: RequestHead | None = None
    """None for a request that is not valid."""
    client: Client = ("", b"")
    admission: Admission | None = None
    """Counts the request as in flight until the application returns."""

    async def run_asgi(self, app: Any) -> None:
        admission, head = self.admission, self.head
        if admission is None or head is None:
            await super().run_asgi(app)
            return
        refusals: list[Refusal] = []
        self.scope[REFUSALS] = refusals  # type: ignore[literal-required]
        try:
            await super().run_asgi(app)
        finally:
            admission.end(self.owner, head, self.client, refusals)

    @property
    def keep_alive(self) -> bool:
        # uvicorn reads this at the start of the response, for "Connection: close", and at its end.
        if self.more_body:
            self._keep_alive = False
        return self._keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self._keep_alive = value


class HttpProtocol(HttpToolsProtocol):
    """The protocol of one client connection."""

    deadlines = Deadlines()
    _prepared = PreparedRefusals()

    def connection_made(self, transport: Any) -> None:
        self._socket = transport
        transport.set_write_buffer_limits(high=0)  # `pause_writing` reports each response that waits for its client
        self._output = LingeringTransport(transport, self._linger)
        super().connection_made(self._output)  # type: ignore[arg-type]
        if self.client:  # a dual-stack socket shows IPv4 as IPv6, and proxies are trusted by their IPv4 address
            self.client = unmapped(self.client[0]), self.client[1]
        self._reader = RequestReader(self)
        self._admission: Admission | None = self.app_state.get(STATE)
        self._refused: tuple[RequestHead, Refusal] | None = None
        """The current request and its refusal. Its body is read and dropped."""
        self._told: tuple[bytes | Client, float] = b"", 0.0
        """The key or the client that was refused last, and the time before which its next refusal may be delayed."""
        self._delayed: asyncio.TimerHandle | None = None
        """Sends the refusal of the current request."""
        self._is_discarding = False
        self._is_stopping = False
        self._discarded = 0
        self._awaited: tuple[Phase, int] | None = (Phase.HEAD, 0)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        """Aborts the connection if its client reads nothing of a response."""
        self._set_deadline(self.deadlines.head_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._clear_unread()
        self._forget_delayed()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish the responses in progress, then close without waiting for the client."""
        self._is_stopping = True
        self._send_delayed()
        if self._is_responding:
            self.cycle.keep_alive = False
        else:
            self._socket.close()

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.disconnected

    # Requests ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._send_delayed()
        self._unset_keepalive_if_required()
        if self._is_discarding:
            self._discard(len(data))
            return
        try:
            self._reader.feed(data)
        except BookingError as error:
            self._refuse(error)
        else:
            self._update_deadline()

    def request_started(self, head: RequestHead) -> None:
        self._send_delayed()
        if self._admission is not None and self._admission.is_pressed and self._is_plain(head):
            refusal = self._admission.of_rate_limit(head, self._client_of(head)) or self._admission.refusal(head)
            if refusal is not None:
                self._refused = head, refusal
                return
        self._open_scope(head)
        path, query = _split(head.target)
        self.scope["raw_path"] = self.root_path.encode("ascii") + path
        text = path.decode("ascii")
        self.scope["path"] = self.root_path + (unquote(text) if "%" in text else text)
        self.scope["query_string"] = query
        self._begin(self.app, head.keep_alive, expects_continue=head.expects_continue, head=head)

    def body_received(self, piece: bytes) -> None:
        if self._refused is not None or self.cycle.response_complete:
            return
        self.cycle.body += piece
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def request_ended(self) -> None:
        if self._refused is not None:
            self._send_refusal_in_time(*self._refused)
            return
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def _open_scope(self, head: RequestHead) -> None:
        self.on_message_begin()
        self.scope["method"] = head.method
        self.scope["headers"] = head.headers
        self.scope["http_version"] = head.version

    def _begin(
        self, app: Any, keep_alive: bool, *, expects_continue: bool = False, head: RequestHead | None = None
    ) -> None:
        """Run the application for the request in `self.scope`, after the requests before it."""
        previous = self.cycle
        self.cycle = RequestCycle(
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
        self.cycle.head = head
        if previous is None or previous.response_complete or previous.disconnected:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Run the application, which is that of a refusal if the request is not admitted when its turn comes."""
        admission, head = self._admission, cycle.head
        if admission is not None and head is not None:
            refusal = admission.refusal(head) if admission.is_pressed else None
            if refusal is None:
                cycle.admission, cycle.owner = admission, admission.begin(head)
                cycle.client = self._client_of(head)
            else:
                app = refusing_unobserved(refusal)
        super()._start_asgi_task(cycle, app)

    # Requests that are not admitted ----------------------------------------------------------------------------------

    def _is_plain(self, head: RequestHead) -> bool:
        """Return True if a refusal of the request can be sent as soon as its body was read, and the next one be read.

        Others are refused by an application: those of guests, who get a page; those behind an unfinished one, with a
        body of unknown length or that is not sent yet, or to a client that does not read.
        """
        if head.target.startswith(_GUEST_PAGES):
            return False
        is_next = not self._is_responding and not self.pipeline and not self.flow.write_paused
        has_short_body = head.body_length is not None and head.body_length <= REQUEST_BODY_BYTES_MAX
        return is_next and has_short_body and head.keep_alive and not head.expects_continue and not self._is_stopping

    def _send_refusal_in_time(self, head: RequestHead, refusal: Refusal) -> None:
        """Send a refusal, later if the client was told to wait, did not, and is one of many."""
        assert self._admission is not None
        subject, next_refusal_s = self._told
        delay_s = self._admission.delay_s(next_refusal_s) if subject == self._subject(head, refusal) else 0.0
        if delay_s:
            self._delayed = self.loop.call_later(delay_s, self._send_delayed)
        else:
            self._send_refusal(head, refusal)

    def _send_delayed(self) -> None:
        """Send the refusal that is delayed, if there is one: its time has come, or more has."""
        if self._delayed is not None and self._refused is not None:
            self._forget_delayed()
            self._send_refusal(*self._refused)

    def _subject(self, head: RequestHead, refusal: Refusal) -> bytes | Client:
        """Return the key, or the client, that is refused."""
        is_client = isinstance(refusal, RateLimited) and refusal.of_address
        return self._client_of(head) if is_client else head.authorization

    def _client_of(self, head: RequestHead) -> Client:
        """Return the client of a request as the connection and its proxies name it."""
        host = self.client[0] if self.client else ""
        return host, head.forwarded_for if self.config.proxy_headers else b""

    def _forget_delayed(self) -> None:
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None

    def _send_refusal(self, head: RequestHead, refusal: Refusal) -> None:
        """Send a refusal that is prepared."""
        assert self._admission is not None
        self._refused = None
        self._told = self._subject(head, refusal), self._admission.next_refusal_s(refusal)
        defaults = self.server_state.default_headers
        self._output.write(self._prepared.response(refusal, head.method, head.headers, defaults))
        self.on_response_complete()

    # Refusals --------------------------------------------------------------------------------------------------------

    def _refuse(self, error: BookingError) -> None:
        """Answer an invalid request, after the requests before it, and close the connection."""
        self._send_delayed()
        self._is_discarding = True
        self._clear_deadline()
        if self._reader.phase is Phase.BODY and not self._withdraw():
            self._output.close()
            return
        reader = self._reader
        self._open_scope(RequestHead(reader.method or "GET", b"", "1.1", list(reader.headers), 0, False))
        self.scope["path"], self.scope["raw_path"], self.scope["query_string"] = "", b"", b""
        self._begin(refusing(error), keep_alive=False)
        self.request_ended()

    def _withdraw(self) -> bool:
        """Cancel the request whose body is invalid, and return whether it can still be refused."""
        cycle = self.cycle
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            return True
        if cycle.response_started:
            return False
        cycle.scope[WITHDRAWN] = True  # type: ignore[literal-required]
        cycle.disconnected = True
        cycle.message_event.set()
        return True

    # Deadlines -----------------------------------------------------------------------------------------------------

    def _update_deadline(self) -> None:
        """Set the deadline for the part of a request that is expected next."""
        phase = self._reader.phase
        if phase is Phase.IDLE and self._awaited is None:
            return
        awaited = (phase, self._reader.ended) if phase in (Phase.HEAD, Phase.BODY) else None
        if awaited == self._awaited:
            return
        self._awaited = awaited
        self._clear_deadline()
        if phase is Phase.HEAD:
            self._set_deadline(self.deadlines.head_s, self._head_is_late)
        elif phase is Phase.BODY:
            self._set_deadline(self.deadlines.body_s, self._body_is_late)

    def _set_deadline(self, seconds: float, callback: Callable[[], None]) -> None:
        self._deadline = self.loop.call_later(seconds, callback)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        if not self._is_responding:
            self._socket.abort()
        elif self.flow.read_paused:  # the server has paused reading, so the client is not late
            self._set_deadline(self.deadlines.head_s, self._head_is_late)
        else:
            self._is_discarding = True
            self.cycle.keep_alive = False

    def _body_is_late(self) -> None:
        if self.flow.read_paused:
            self._set_deadline(self.deadlines.body_s, self._body_is_late)
        else:
            self._socket.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._clear_unread()

    def _await_reading(self) -> None:
        unread = self._socket.get_write_buffer_size()
        self._unread = self.loop.call_later(self.deadlines.write_s, self._abort_unread, unread)

    def _abort_unread(self, unread: int) -> None:
        """Abort the connection, unless its client has read a part of the response since the deadline was set."""
        if self._socket.get_write_buffer_size() < unread:
            self._await_reading()
            return
        if (connection := self._socket.get_extra_info("socket")) is not None:
            # The kernel drops what it has not sent. Otherwise it would keep the response for minutes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.abort()

    def _clear_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def timeout_keep_alive_handler(self) -> None:
        """Abort an idle connection, also when its client never read the last response."""
        self._socket.abort()

    # The end of a connection -----------------------------------------------------------------------------------------

    def _linger(self) -> None:
        """Half-close the connection, and drop all bytes until the client closes it too.

        Closing at once would reset the connection of a client that is still sending, and it would lose the response.
        """
        self._is_discarding = True
        self._clear_deadline()
        if self._is_stopping or not self._socket.can_write_eof():
            self._socket.close()
            return
        self.flow.resume_reading()
        self._socket.write_eof()
        self._set_deadline(self.deadlines.linger_s, self._socket.abort)

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > LINGER_BYTES_MAX:
            self._socket.abort()


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Return the path and query of a request target.

    Raises:
        Malformed: the target is invalid.
    """
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise Malformed(NOT_HTTP) from None
    if not parsed.path:
        raise Malformed(NOT_HTTP)
    return parsed.path, parsed.query or b""
