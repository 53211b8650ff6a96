"""A mail server for one test, on a real socket: it accepts mails, refuses them, hangs or disconnects."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from support.serving.threads import LoopThread

_HOST = "127.0.0.1"
_DRIP_S = 0.02

OK = "250 taken"
DROP = "drop"
"""Disconnects before its response. The mail is not accepted."""
TAKE_AND_DROP = "take and drop"
"""Accepts the mail, and disconnects before its response: to the sender it looks like a power cut."""
HANG = "hang"
"""Never responds."""
DRIP = "drip"
"""Responds without an end."""


@dataclass(frozen=True, slots=True)
class Received:
    """An accepted mail."""

    sender: str
    recipient: str
    raw: bytes = field(repr=False)
    options: tuple[str, ...]
    connection: int

    @property
    def read(self) -> EmailMessage:
        parsed = message_from_bytes(self.raw, policy=default)
        assert isinstance(parsed, EmailMessage)
        return parsed

    @property
    def message_id(self) -> str:
        return str(self.read["Message-ID"])


class MailServer(LoopThread):
    """Accepts every mail, unless `on_recipient` or `on_message` return another response or one of the misbehaviours
    above."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        starttls: ssl.SSLContext | None = None,
        login: tuple[str, str] | None = None,
        smtputf8: bool = False,
    ) -> None:
        super().__init__()
        self.on_recipient: Callable[[str], str] = lambda _: OK
        self.on_message: Callable[[Received], str] = lambda _: OK
        self.received: list[Received] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self.port = 0
        self._tls = tls
        self._login = login
        self._options: dict[str, Any] = {"enable_SMTPUTF8": smtputf8, "tls_context": starttls}
        self.connections = 0
        """The number of connections opened so far."""

    @property
    def url(self) -> str:
        return f"smtp://{_HOST}:{self.port}"

    def __enter__(self) -> Self:
        super().__enter__()
        self.port = self.listen(self.loop.create_server(self._protocol, _HOST, 0, ssl=self._tls))
        return self

    async def hang_up(self) -> None:
        await hang_up()

    def _protocol(self) -> SMTP:
        options = dict(self._options)
        if self._login:
            options |= {"authenticator": self._authenticate, "auth_require_tls": False}
        self.connections += 1
        return SMTP(_Handler(self, self.connections), loop=self.loop, hostname="mail.example", **options)

    def _authenticate(self, _: SMTP, __: Session, ___: Envelope, ____: str, auth_data: object) -> AuthResult:
        assert isinstance(auth_data, LoginPassword)
        self.logins.append((auth_data.login, auth_data.password))
        expected = self._login == (auth_data.login.decode(), auth_data.password.decode())
        return AuthResult(success=expected, handled=expected)


async def hang_up() -> None:
    """Close all open connections of this loop: before its greeting a connection has no handler that would close it."""
    loop = asyncio.get_running_loop()
    for transport in list(getattr(loop, "_transports", {}).values()):
        transport.abort()
    for _ in range(10):
        await asyncio.sleep(0)  # the loop closes the sockets


class _Handler:
    """The responses of one connection."""

    def __init__(self, server: MailServer, connection: int) -> None:
        self._server = server
        self._connection = connection

    async def handle_RCPT(  # noqa: N802 - named by the library
        self, smtp: SMTP, _: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = await _misbehave(smtp, self._server.on_recipient(address))
        if answer == OK:
            envelope.rcpt_tos.append(address)
            envelope.rcpt_options.extend(options)
        return answer

    async def handle_DATA(self, smtp: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802 - named by the library
        assert isinstance(envelope.original_content, bytes)
        (recipient,) = envelope.rcpt_tos
        received = Received(
            str(envelope.mail_from),
            str(recipient),
            envelope.original_content,
            tuple(envelope.mail_options),
            self._connection,
        )
        answer = self._server.on_message(received)
        if answer in (OK, TAKE_AND_DROP):
            self._server.received.append(received)
        return await _misbehave(smtp, answer)


async def _misbehave(smtp: SMTP, answer: str) -> str:
    """Return the response, if the test chose one."""
    if answer in (DROP, TAKE_AND_DROP):
        assert isinstance(smtp.transport, asyncio.Transport)
        smtp.transport.abort()
    elif answer == HANG:
        await asyncio.Event().wait()
    while answer == DRIP:
        assert isinstance(smtp.transport, asyncio.Transport)
        smtp.transport.write(b"250-wait\r\n")
        await asyncio.sleep(_DRIP_S)
    return answer
