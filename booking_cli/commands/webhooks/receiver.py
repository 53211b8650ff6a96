"""Post a delivery to a receiver as the service does.

http.client is used because it follows no redirect, uses no proxy of the environment, keeps no cookies and sends exactly
the given headers. It is imported when it is used, since its TLS takes longer than the rest of `sign`. Each request has
a new connection, which also reaches a restarted application.
"""

import itertools
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from booking_cli.client.event_feed import FeedEvent
from booking_cli.client.webhook_secrets import Secrets
from booking_cli.framework.arguments import header
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import option

if TYPE_CHECKING:
    import socket
    from http.client import HTTPConnection, HTTPResponse


DEADLINE_S = 10.0
"""The time for a response, as in the service."""
BODY_S = 1.0
"""The time for the body after the headers, as in the service. A body may never end."""
EXCERPT_LENGTH_MAX = 1024
_OWN_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "user-agent"})
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}(?:[/?]|$)")
_UNREACHABLE = frozenset({502, 503, 504})
"""The statuses of a proxy in front of an application that is down."""

ExtraHeaders = Annotated[list[str] | None, option("--header, -H NAME:VALUE", "Send an extra header; repeatable.")]


@dataclass(frozen=True, slots=True)
class ReceiverTarget:
    """The address of a receiver."""

    url: str
    host: str
    port: int
    path: str
    is_secure: bool


@dataclass(frozen=True, slots=True)
class ReceiverResult:
    """The result of a request, with the error names of the service's delivery log."""

    status: int | None
    excerpt: str | None
    """The beginning of the response body."""
    error: str | None
    """None for a 2xx response."""
    duration_ms: int
    reason: str | None = None
    """The error in words."""

    @property
    def is_accepted(self) -> bool:
        return self.error is None

    @property
    def is_unreachable(self) -> bool:
        """Return whether the receiver is down, rather than refusing the delivery."""
        return self.error in ("connect_failed", "dns_failed", "tls_failed") or self.status in _UNREACHABLE


def parse_target(text: str) -> ReceiverTarget:
    """Return the address of a receiver; `8000`, `8000/hook` and `localhost:8000/hook` are on this machine.

    Raises:
        CliError: the text is not a URL.
    """
    from urllib.parse import urlsplit

    url = f"localhost:{text}" if _PORT_AND_PATH.match(text) else text
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
        is_valid = url.isascii() and url.isprintable() and " " not in url and parts.username is None and port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.scheme not in ("http", "https") or not parts.hostname:
        raise CliError(
            f"{text!r} is not the URL of a receiver.", code="bad_url", hint="write http://localhost:8000/webhooks"
        )
    is_secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Normalized, since the checkpoint of `listen` is found by it.
    normalized = f"{parts.scheme}://{parts.netloc.lower()}{path}"
    return ReceiverTarget(normalized, parts.hostname, port or (443 if is_secure else 80), path, is_secure)


def extra_headers(texts: Sequence[str]) -> dict[str, str]:
    """Return the headers of --header.

    Raises:
        BadParameter: a text is not `Name: value`.
        CliError: a delivery has a header of that name already.
    """
    result: dict[str, str] = {}
    for text in texts:
        name, value = header(text)
        if name.lower() in _OWN_HEADERS or name.lower().startswith(("svc-", "webhook-")):
            raise CliError(f"A delivery has its own {name} header.", code="reserved_header")
        result[name] = value
    return result


def post(
    target: ReceiverTarget, headers: Mapping[str, str], body: bytes, *, deadline_s: float = DEADLINE_S
) -> ReceiverResult:
    """Send a request and return the result; no behaviour of the receiver raises an error."""
    from http.client import HTTPException

    started = time.monotonic()
    connected = False
    try:
        with closing(_connection(target, deadline_s)) as connection:
            connection.connect()
            connected = True
            status, excerpt = _exchange(connection, target, headers, body)
    except (OSError, HTTPException, ValueError) as error:
        name, reason = _describe(error, connected=connected)
        return ReceiverResult(None, None, name, _since_ms(started), reason)
    if 200 <= status < 300:
        return ReceiverResult(status, excerpt, None, _since_ms(started))
    name = "redirect" if 300 <= status < 400 else "http_status"
    return ReceiverResult(status, excerpt, name, _since_ms(started), f"responded {status}")


def _connection(target: ReceiverTarget, deadline_s: float) -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection

    if target.is_secure:
        return HTTPSConnection(target.host, target.port, timeout=deadline_s)
    return HTTPConnection(target.host, target.port, timeout=deadline_s)


def _exchange(
    connection: "HTTPConnection", target: ReceiverTarget, headers: Mapping[str, str], body: bytes
) -> tuple[int, str]:
    from http.client import HTTPException

    connection.putrequest("POST", target.path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    opened = connection.sock  # the connection drops its reference when the response closes it
    response = connection.getresponse()
    if response.msg.defects:  # such as headers that end too early
        raise HTTPException
    return response.status, _read_excerpt(opened, response).decode("utf-8", "replace")


def _read_excerpt(opened: "socket.socket", response: "HTTPResponse") -> bytes:
    """Return the beginning of the body that arrives in time. Only the status decides about the delivery."""
    from http.client import HTTPException

    excerpt, ends_at = b"", time.monotonic() + BODY_S
    try:
        while len(excerpt) < EXCERPT_LENGTH_MAX and (left_s := ends_at - time.monotonic()) > 0:
            opened.settimeout(left_s)
            if not (piece := response.read1(EXCERPT_LENGTH_MAX - len(excerpt))):
                break
            excerpt += piece
    except (OSError, HTTPException):
        pass
    return excerpt


def _describe(error: Exception, *, connected: bool) -> tuple[str, str]:
    import socket
    import ssl

    if connected and isinstance(error, TimeoutError):
        return "timeout", "no answer in time"
    if connected:
        return "protocol_error", "the connection broke before it answered"
    if isinstance(error, socket.gaierror):
        return "dns_failed", "no such host"
    if isinstance(error, ssl.SSLError):
        return "tls_failed", f"no secure connection ({error.reason or 'TLS'})"
    # A refused connection has a text; a host that does not respond has none.
    return "connect_failed", (getattr(error, "strerror", None) or "could not connect").lower()


def _since_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


PAUSE_S = 1.0
PAUSE_MAX_S = 10.0
"""The longest pause, short enough for a developer who has just restarted the application."""


@dataclass(frozen=True, slots=True)
class ReceivedDelivery:
    """An attempt and its result."""

    at: datetime
    event: FeedEvent
    delivery_id: str
    number: int
    result: ReceiverResult
    outcome: str
    """`accepted`, `waiting` (the receiver is down), `retrying` (it refused the event) or `given_up`."""

    @property
    def is_last(self) -> bool:
        return self.outcome in ("accepted", "given_up")


class Forwarder:
    """Sends each event until it is accepted, or refused often enough."""

    def __init__(
        self,
        target: ReceiverTarget,
        secrets: Secrets,
        attempts: int,
        sleep: Callable[[float], None] = time.sleep,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._target = target
        self._secrets = secrets
        self._attempts = attempts
        self._headers = dict(headers or {})
        self._sleep = sleep
        self.accepted = 0
        self.given_up: list[str] = []
        """The ids of the events that the receiver refused."""

    def forward(self, event: FeedEvent) -> Iterator[ReceivedDelivery]:
        """Send the event, and yield every attempt. The last one accepts it or gives it up.

        A receiver that is down gets any number of attempts, a receiver that refuses the event a limited number.
        """
        refusals = 0
        for number in itertools.count(1):
            at, delivery_id = datetime.now().astimezone(), str(uuid.uuid4())
            result = self._post(event, delivery_id)
            refusals += not (result.is_accepted or result.is_unreachable)
            outcome = self._outcome(result, refusals)
            is_last = outcome in ("accepted", "given_up")
            if is_last:
                self._count(event, outcome)
            yield ReceivedDelivery(at, event, delivery_id, number, result, outcome)
            if is_last:
                return
            self._sleep(min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(number - 1, 10)))

    def _post(self, event: FeedEvent, delivery_id: str) -> ReceiverResult:
        from webhook_verify.testing import signed_request

        # Each attempt gets a new signature, since a receiver refuses a signature that is minutes old.
        headers, body = signed_request(event.body, self._secrets.values, delivery_id=delivery_id)
        return post(self._target, {**headers, **self._headers}, body)

    def _outcome(self, result: ReceiverResult, refusals: int) -> str:
        if result.is_accepted:
            return "accepted"
        if result.is_unreachable:
            return "waiting"
        return "given_up" if refusals >= self._attempts else "retrying"

    def _count(self, event: FeedEvent, outcome: str) -> None:
        if outcome == "accepted":
            self.accepted += 1
        else:
            self.given_up.append(event.id)
