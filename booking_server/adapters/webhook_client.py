"""An HTTP/1.1 client for webhooks: one POST to one receiver, after the address guard's check and within one deadline.

It is a small purpose-built client (decisions 0031 and 0024). It knows nothing of deliveries, retries or signatures: the
worker passes headers and body, and always gets a result. One call of `send` sends at most one request: a request that
may have reached a receiver is never sent again under the same delivery id.
"""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from booking_core.base.settings import Settings
from booking_core.models.webhooks import AttemptError
from booking_server.adapters.address_guard import AddressGuard, BlockedAddress, NoAddress, SystemResolver, Target
from booking_server.adapters.connections import AttemptFailed, ConnectionPool, WebhookResponse, connect, tls_context

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\x20-\x7e]*")


log = logging.getLogger("booking.webhooks")


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of one request."""

    status: int | None
    """The status of a complete response head; None without one."""
    excerpt: str | None
    """The beginning of the response's body, printable, at most 1024 characters; for a compressed body its encoding and
    size. None when no byte of a body arrived in time."""
    error: AttemptError | None
    """None when a complete 2xx head arrived in time (decision W9)."""
    duration_ms: int


class WebhookSender:
    """Sends webhooks, any number at a time. It belongs to one event loop."""

    def __init__(
        self, settings: Settings, *, resolver: SystemResolver | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guard = AddressGuard(settings, resolver)
        self._deadline_s = settings.webhook_deadline_s
        self._clock = clock
        self._ca_file = settings.webhook_ca_file
        self._pool = ConnectionPool()
        if settings.webhook_allow_cidrs:
            log.warning("webhooks may be sent to private addresses: %s", ", ".join(settings.webhook_allow_cidrs))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The TLS context, made for the first connection: the certificates of the system take 30 ms to load."""
        return tls_context(self._ca_file)

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        """POST the body once, within the deadline. Raises for nothing that DNS or a receiver does.

        Host, Content-Length, Accept-Encoding and Connection are added to the headers.
        """
        started = self._clock()
        response = WebhookResponse()
        error: AttemptError | None = AttemptError.PROTOCOL_ERROR
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._attempt(url, headers, body, response)
        except TimeoutError:
            error = AttemptError.TIMEOUT
        except BlockedAddress:
            error = AttemptError.BLOCKED_ADDRESS
        except NoAddress:
            error = AttemptError.DNS_FAILED
        except AttemptFailed as failed:
            error = failed.error
        if response.status is not None:  # the result does not depend on the body
            error = _error_of(response.status)
        return Sent(response.status, response.excerpt(), error, round((self._clock() - started) * 1000))

    async def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()
        await asyncio.sleep(0)  # lets the event loop close their sockets

    async def _attempt(
        self, url: str, headers: Sequence[tuple[str, str]], body: bytes, response: WebhookResponse
    ) -> None:
        target, addresses = await self._guard.resolve(url)
        origin = target.origin
        can_reuse = self._pool.allows_reuse(origin)
        request = _request(target, headers, body, keep=can_reuse)
        reused = self._pool.take(origin, addresses) if can_reuse else None
        connection = reused or await connect(target, addresses, self._tls)
        try:
            await connection.exchange(request, response)
        finally:
            if response.can_reuse_connection and connection.is_open:
                self._pool.put(origin, connection)
            else:
                connection.abort()
            if reused and response.is_untouched:
                # The receiver may have closed the connection before the request arrived, or may have read the request.
                # The attempt fails; it is the last one of this receiver that fails because of a reused connection.
                self._pool.forbid_reuse(origin)
        if response.is_untouched and connection.was_refused:
            raise AttemptFailed(AttemptError.TLS_FAILED)


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


def _error_of(status: int) -> AttemptError | None:
    if status < 300:
        return None
    return AttemptError.REDIRECT if status < 400 else AttemptError.HTTP_STATUS
