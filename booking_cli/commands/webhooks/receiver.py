"""One POST to a receiver of the developer's own, as the service would make it.

The standard library's client, since it does what a delivery wants and no more: it follows no redirect, asks no proxy
of the environment, keeps no cookies, and sends the headers it is given. It is loaded when it is used, since with TLS it
takes longer than the rest of `sign`. Every request has a connection of its own, so
that an application which was restarted meanwhile is met as it is now.
"""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from booking_cli.framework.context import CliError

if TYPE_CHECKING:
    import socket
    from http.client import HTTPConnection, HTTPResponse

DEADLINE_S = 10.0
"""How long a receiver may take, as with the service."""
BODY_S = 1.0
"""How long what it says may take once its head is complete, as with the service: a body may never end."""
EXCERPT_LENGTH_MAX = 1024
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_OWN_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "user-agent"})
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}(?:[/?]|$)")
_AWAY = frozenset({502, 503, 504})
"""What a proxy in front of an application that is down answers."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where deliveries go."""

    url: str
    host: str
    port: int
    path: str
    is_secure: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request. The errors have the names that the service's log of deliveries has for them."""

    status: int | None
    excerpt: str | None
    """The beginning of what the receiver said."""
    error: str | None
    """None: it was accepted, with a 2xx."""
    duration_ms: int
    reason: str | None = None
    """The error in words."""

    @property
    def is_accepted(self) -> bool:
        return self.error is None

    @property
    def is_away(self) -> bool:
        """Whether nobody was there to take it: waiting helps, and it was not refused."""
        return self.error in ("connect_failed", "dns_failed", "tls_failed") or self.status in _AWAY


def target(text: str) -> Target:
    """Return the receiver that a URL names; `8000`, `8000/hook` and `localhost:8000/hook` are on this machine.

    Raises:
        CliError: it names none.
    """
    from urllib.parse import urlsplit

    url = f"localhost:{text}" if _PORT_AND_PATH.match(text) else text
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
        sane = url.isascii() and url.isprintable() and " " not in url and parts.username is None and port != 0
    except ValueError:
        sane = False
    if not sane or parts.scheme not in ("http", "https") or not parts.hostname:
        raise CliError(
            f"{text!r} is no address of a receiver.", code="bad_url", hint="write http://localhost:8000/webhooks"
        )
    is_secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Written in one way, since a listener's checkpoint goes by it.
    written = f"{parts.scheme}://{parts.netloc.lower()}{path}"
    return Target(written, parts.hostname, port or (443 if is_secure else 80), path, is_secure)


def headers(texts: Sequence[str]) -> dict[str, str]:
    """Return further headers from `Name: value`.

    Raises:
        CliError: one is no header, or one that a delivery has itself.
    """
    result: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        name, value = name.strip(), value.strip()
        if not (colon and _HEADER_NAME.fullmatch(name) and text.isascii() and text.isprintable()):
            raise CliError(f"{text!r} is not NAME:VALUE.", hint="write --header 'X-Tenant: fjord'")
        if name.lower() in _OWN_HEADERS or name.lower().startswith(("svc-", "webhook-")):
            raise CliError(f"A delivery has its own {name} header.", code="reserved_header")
        result[name] = value
    return result


def post(where: Target, headers: Mapping[str, str], body: bytes, *, deadline_s: float = DEADLINE_S) -> Answer:
    """Makes one request, and raises for nothing that the receiver does."""
    from http.client import HTTPException

    begun = time.monotonic()
    connected = False
    try:
        with closing(_connection(where, deadline_s)) as connection:
            connection.connect()
            connected = True
            status, excerpt = _exchange(connection, where, headers, body)
    except (OSError, HTTPException, ValueError) as problem:
        error, reason = _explained(problem, connected=connected)
        return Answer(None, None, error, _since_ms(begun), reason)
    if 200 <= status < 300:
        return Answer(status, excerpt, None, _since_ms(begun))
    error = "redirect" if 300 <= status < 400 else "http_status"
    return Answer(status, excerpt, error, _since_ms(begun), f"answered {status}")


def _connection(where: Target, deadline_s: float) -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection

    if where.is_secure:
        return HTTPSConnection(where.host, where.port, timeout=deadline_s)
    return HTTPConnection(where.host, where.port, timeout=deadline_s)


def _exchange(connection: "HTTPConnection", where: Target, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
    from http.client import HTTPException

    connection.putrequest("POST", where.path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    opened = connection.sock  # which the connection forgets when the response ends with it
    response = connection.getresponse()
    if response.msg.defects:  # cut off in the middle of a header, for one
        raise HTTPException
    return response.status, _said(opened, response).decode("utf-8", "replace")


def _said(opened: "socket.socket", response: "HTTPResponse") -> bytes:
    """Return the beginning of the body, as far as it comes in time: the answer is judged by its head."""
    from http.client import HTTPException

    said, ends_at = b"", time.monotonic() + BODY_S
    try:
        while len(said) < EXCERPT_LENGTH_MAX and (left_s := ends_at - time.monotonic()) > 0:
            opened.settimeout(left_s)
            if not (piece := response.read1(EXCERPT_LENGTH_MAX - len(said))):
                break
            said += piece
    except (OSError, HTTPException):
        pass
    return said


def _explained(problem: Exception, *, connected: bool) -> tuple[str, str]:
    import socket
    import ssl

    if connected and isinstance(problem, TimeoutError):
        return "timeout", "no answer in time"
    if connected:
        return "protocol_error", "the connection broke before it answered"
    if isinstance(problem, socket.gaierror):
        return "dns_failed", "no such host"
    if isinstance(problem, ssl.SSLError):
        return "tls_failed", f"no secure connection ({problem.reason or 'TLS'})"
    # A refusal from each address of a name, and a host that stays silent, have no better words of their own.
    return "connect_failed", (getattr(problem, "strerror", None) or "could not connect").lower()


def _since_ms(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
