"""Mailers: send finished messages through an SMTP server, or keep them as files or in the database of a sandbox.

They know nothing of bookings. They report a result for each message, also when the mail server fails.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import aiosmtplib
from aiosmtplib.errors import (
    SMTPAuthenticationError,
    SMTPNotSupported,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)

from booking_core.base import private_files
from booking_core.base.clock import to_datetime
from booking_core.notifications import ClaimedMail, MailOutcome, MailResult

CONNECTIONS_MAX = 4
"""Connections that a worker keeps at once: calls of `Mailer.send`. Mail servers refuse more from one address."""
CONNECT_S = 10.0
MAIL_S = 20.0
"""The time for one mail, connecting included, however slowly the server answers."""
BATCH_S = 20.0
"""No mail of a batch is started later than this; the rest is reported as untried."""
QUIT_S = 2.0
_REPLY_MAX = 200
_TOKEN = re.compile(r"[A-Za-z0-9_-]{40,}")
"""Matches the token of a guest's link, and is longer than the ids that mail servers give to a mail."""


MailReport = Callable[[Sequence[MailResult]], Awaitable[None]]
"""Receives the results of mails as soon as they are known."""


class Mailer(Protocol):
    """Sends mails."""

    delivers: bool
    """Mails reach their recipients; False when they are only kept."""

    async def send(self, mails: Sequence[ClaimedMail], report: MailReport) -> None:
        """Send mails and report one result for each. Raises for nothing that a mail server does."""


# SMTP ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """The mail server that BOOKING_SMTP_URL names."""

    host: str
    port: int
    tls: bool
    """TLS from the first byte; otherwise STARTTLS when the server offers it."""
    username: str | None
    password: str | None

    @classmethod
    def of(cls, url: str) -> "SmtpServer":
        """Parse `smtp://user:pass@host:port` or `smtps://…`; the default port depends on the scheme and the user."""
        parts = urlsplit(url)
        tls, user = parts.scheme == "smtps", parts.username
        port = parts.port or (465 if tls else 587 if user else 25)
        secret = None if parts.password is None else unquote(parts.password)
        return cls(parts.hostname or "localhost", port, tls, unquote(user) if user else None, secret)


class _Unreachable(Exception):
    """No connection can be made; the message is the reason."""


class SmtpMailer:
    """Sends mails through an SMTP server. A connection sends one mail after the other and is closed with its batch.

    Args:
        sender: the envelope sender, which receives bounces.
        tls: trusted certificate authorities; by default the operating system's.
    """

    delivers = True

    def __init__(
        self, server: SmtpServer, sender: str, *, tls: ssl.SSLContext | None = None, mail_s: float = MAIL_S
    ) -> None:
        self._server = server
        self._sender = sender
        self._tls = tls or ssl.create_default_context()
        self._mail_s = mail_s

    async def send(self, mails: Sequence[ClaimedMail], report: MailReport) -> None:
        """Send mails one after the other over one connection.

        A mail is reported before the next one starts: if the process dies, at most one mail was accepted without a
        record of it. If the connection fails, the other mails do not try to connect again.
        """
        until = asyncio.get_running_loop().time() + BATCH_S
        client = self._client()
        try:
            for index, mail in enumerate(mails):
                if asyncio.get_running_loop().time() >= until:
                    await report([MailResult(untried, MailOutcome.UNTRIED) for untried in mails[index:]])
                    return
                try:
                    result = await self._send_one(client, mail)
                except _Unreachable as error:
                    await report([MailResult(untried, MailOutcome.DELAYED, str(error)) for untried in mails[index:]])
                    return
                await report([result])
        finally:
            await _close(client)

    def _client(self) -> aiosmtplib.SMTP:
        server = self._server
        return aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            use_tls=server.tls,
            username=server.username,
            password=server.password,
            # Without it the library would query DNS, and wait.
            local_hostname=self._sender.rpartition("@")[2],
            timeout=CONNECT_S,
            tls_context=self._tls,
        )

    async def _send_one(self, client: aiosmtplib.SMTP, mail: ClaimedMail) -> MailResult:
        """Send one mail and return its result.

        If the connection is lost or silent, the server may have accepted the mail: it is sent once more, with the same
        Message-ID.
        """
        try:
            await self._transmit(client, mail)
        except _Unreachable:
            raise
        except SMTPRecipientsRefused as error:
            return _refused(mail, error.recipients[0])
        except SMTPSenderRefused as error:
            # The sender is a setting: a wrong one must not make every mail fail for good.
            return MailResult(mail, MailOutcome.DELAYED, f"sender refused: {_reply(error)}")
        except SMTPResponseException as error:
            return _refused(mail, error)
        except SMTPNotSupported:
            return MailResult(mail, MailOutcome.REFUSED, "the mail server does not support this address")
        except TimeoutError:
            client.close()
            return MailResult(mail, MailOutcome.DELAYED, "timeout")
        except (aiosmtplib.SMTPException, OSError):
            client.close()
            return MailResult(mail, MailOutcome.DELAYED, "connection lost")
        except ValueError:
            return MailResult(mail, MailOutcome.REFUSED, "not an address")
        return MailResult(mail, MailOutcome.SENT)

    async def _transmit(self, client: aiosmtplib.SMTP, mail: ClaimedMail) -> None:
        async with asyncio.timeout(self._mail_s):
            if not client.is_connected:
                await _connect(client)
            await client.sendmail(
                self._sender, [mail.recipient], mail.message, mail_options=_options(mail), timeout=self._mail_s
            )


async def _connect(client: aiosmtplib.SMTP) -> None:
    """Connect to the mail server.

    Raises:
        _Unreachable: for any failure of settings, network or server, since each may be repaired while mails wait.
    """
    try:
        await client.connect()
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        client.close()
        raise _Unreachable(_failure(error)) from None


def _failure(error: Exception) -> str:
    """Return why no connection was made."""
    if isinstance(error, ssl.SSLError):
        return f"tls failed: {error.reason or type(error).__name__}"
    if isinstance(error, SMTPResponseException):
        kind = "login" if isinstance(error, SMTPAuthenticationError) else "connection"
        return f"{kind} refused: {_reply(error)}"
    if isinstance(error.__cause__, ssl.SSLError):  # the library wraps errors of TLS
        return "tls failed"
    # The host name is a setting: no mail must fail because it is invalid.
    return "connect failed: not a host name" if isinstance(error, ValueError) else "connect failed"


def _refused(mail: ClaimedMail, error: SMTPResponseException) -> MailResult:
    """Return the result for a negative reply: final for 5xx, to be tried again for 4xx."""
    return MailResult(mail, MailOutcome.REFUSED if 500 <= error.code < 600 else MailOutcome.DELAYED, _reply(error))


def _reply(error: SMTPResponseException) -> str:
    """Return the server's reply, printable and short, without the guest's link.

    A spam filter that blocks a mail for its link repeats the link, and this text is stored and logged.
    """
    text = _TOKEN.sub("***", " ".join(error.message.split()))
    return f"{error.code} {''.join(c if c.isprintable() else '?' for c in text)}"[:_REPLY_MAX]


def _options(mail: ClaimedMail) -> list[str]:
    """Return the SMTP extensions that this mail needs: SMTPUTF8 for an address beyond ASCII."""
    head = mail.message.partition(b"\r\n\r\n")[0]
    return [] if head.isascii() and mail.recipient.isascii() else ["SMTPUTF8"]


async def _close(client: aiosmtplib.SMTP) -> None:
    with contextlib.suppress(aiosmtplib.SMTPException, OSError, TimeoutError):
        await client.quit(timeout=QUIT_S)
    client.close()


# Sandboxes -------------------------------------------------------------------------------------------------------


class SandboxMailer:
    """Keeps the mails of a sandbox in its database, and sends none."""

    delivers = True

    async def send(self, mails: Sequence[ClaimedMail], report: MailReport) -> None:
        """Report every mail as sent. Its text is kept when the result is recorded."""
        await report([MailResult(mail, MailOutcome.SENT) for mail in mails])


# Files -----------------------------------------------------------------------------------------------------------


class FileMailer:
    """Writes each mail to a file that every mail program opens. Without a folder mails stay queued."""

    delivers = False

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    async def send(self, mails: Sequence[ClaimedMail], report: MailReport) -> None:
        """Write the mails to files and report them as parked."""
        await report(await asyncio.to_thread(lambda: [self._keep(mail) for mail in mails]))

    def _keep(self, mail: ClaimedMail) -> MailResult:
        if self._folder is None:
            return MailResult(mail, MailOutcome.PARKED)
        try:
            _write(self._folder, mail)
        except OSError as error:
            return MailResult(mail, MailOutcome.DELAYED, f"not written: {error.strerror}")
        return MailResult(mail, MailOutcome.PARKED)


def _write(folder: Path, mail: ClaimedMail) -> None:
    """Write a mail to a separate file, whose name sorts by time.

    The file replaces a draft: readers never see half a mail, and a second write makes no second file. It is private,
    because it holds the guest's secret link.
    """
    private_files.make_folder(folder)
    name = f"{to_datetime(mail.created_at):%Y%m%dT%H%M%S.%fZ}-{mail.kind}-{mail.id}.eml"
    private_files.replace(folder / name, mail.message, draft=folder / f".{name}.{mail.lease_token}")
