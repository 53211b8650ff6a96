"""The post: hands mails to a mail server, or, where there is none, lays them down as files.

It knows nothing of bookings: it is given messages that are ready, and says what became of each, whatever the other side
does.
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

from booking_core import private_files
from booking_core.clock import to_datetime
from booking_core.notifications import Claimed, Outcome, Tried

LANES = 4
"""Connections at once. Mail servers refuse many from one address."""
CONNECT_S = 10.0
MAIL_S = 20.0
"""For one mail, connecting included, however slowly the server answers."""
BATCH_S = 20.0
"""No mail of a batch is begun later than this: the rest is given back."""
QUIT_S = 2.0
_WORDS_MAX = 200
_TOKEN = re.compile(r"[A-Za-z0-9_-]{40,}")
"""As long as the token of a guest's link, and longer than the names that mail servers give to a mail."""


Tell = Callable[[Sequence[Tried]], Awaitable[None]]
"""Is told what became of mails, as soon as that is known."""


class Post(Protocol):
    """Takes mails away."""

    reaches_people: bool
    """Whether they are sent, and not only kept."""

    async def carry(self, mails: Sequence[Claimed], tell: Tell) -> None:
        """Tells what became of each, once. Never raises for what the other side does."""


# SMTP ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Where mails are handed in, as BOOKING_SMTP_URL says it."""

    host: str
    port: int
    tls: bool
    """From the first byte; otherwise STARTTLS when the server offers it."""
    username: str | None
    password: str | None

    @classmethod
    def of(cls, url: str) -> "SmtpServer":
        """The server of `smtp://user:pass@host:port` or `smtps://…`; without a port the one that is usual."""
        parts = urlsplit(url)
        tls, user = parts.scheme == "smtps", parts.username
        port = parts.port or (465 if tls else 587 if user else 25)
        secret = None if parts.password is None else unquote(parts.password)
        return cls(parts.hostname or "localhost", port, tls, unquote(user) if user else None, secret)


class _Unreachable(Exception):
    """There is no connection to be had, for this reason."""


class SmtpPost:
    """A mail server. A connection serves one mail after the other and is closed with its batch."""

    reaches_people = True

    def __init__(
        self, server: SmtpServer, sender: str, *, tls: ssl.SSLContext | None = None, mail_s: float = MAIL_S
    ) -> None:
        """Args:
        sender: the address that refusals come back to.
        tls: what is trusted; by default what the operating system trusts.
        """
        self._server = server
        self._sender = sender
        self._tls = tls or ssl.create_default_context()
        self._mail_s = mail_s

    async def carry(self, mails: Sequence[Claimed], tell: Tell) -> None:
        """A mail is told of before the next one of its connection begins: when the process dies, no more mails than
        there are connections were taken without anybody knowing."""
        until = asyncio.get_running_loop().time() + BATCH_S
        async with asyncio.TaskGroup() as group:
            for start in range(min(LANES, len(mails))):
                group.create_task(self._lane(mails[start::LANES], until, tell))

    async def _lane(self, mails: Sequence[Claimed], until: float, tell: Tell) -> None:
        """Mails that share a connection. When none is to be had, the rest does not try for one each."""
        client = self._client()
        try:
            for place, mail in enumerate(mails):
                if asyncio.get_running_loop().time() >= until:
                    await tell([Tried(each, Outcome.UNTRIED) for each in mails[place:]])
                    return
                try:
                    tried = await self._try(client, mail)
                except _Unreachable as error:
                    await tell([Tried(each, Outcome.DELAYED, str(error)) for each in mails[place:]])
                    return
                await tell([tried])
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
            # Else the library asks the DNS for it, and waits.
            local_hostname=self._sender.rpartition("@")[2],
            timeout=CONNECT_S,
            tls_context=self._tls,
        )

    async def _try(self, client: aiosmtplib.SMTP, mail: Claimed) -> Tried:
        """What became of one mail.

        A connection that is lost, or silent, leaves it unknown whether the mail was taken: it is sent once more, with
        the same Message-ID.
        """
        try:
            async with asyncio.timeout(self._mail_s):
                if not client.is_connected:
                    await _connect(client)
                await client.sendmail(
                    self._sender, [mail.recipient], mail.message, mail_options=_options(mail), timeout=self._mail_s
                )
        except _Unreachable:
            raise
        except SMTPRecipientsRefused as error:
            return _answered(mail, error.recipients[0])
        except SMTPSenderRefused as error:
            # The sender is a setting of ours: a wrong one must not cost every guest a mail.
            return Tried(mail, Outcome.DELAYED, f"sender refused: {_words(error)}")
        except SMTPResponseException as error:
            return _answered(mail, error)
        except SMTPNotSupported:
            return Tried(mail, Outcome.REFUSED, "the mail server takes no such address")
        except TimeoutError:
            client.close()
            return Tried(mail, Outcome.DELAYED, "timeout")
        except (aiosmtplib.SMTPException, OSError):
            client.close()
            return Tried(mail, Outcome.DELAYED, "connection lost")
        except ValueError:
            return Tried(mail, Outcome.REFUSED, "not an address")
        return Tried(mail, Outcome.SENT)


async def _connect(client: aiosmtplib.SMTP) -> None:
    """Raises:
    _Unreachable: whatever stood in the way; the settings, the network and the other side are not told apart, since
        each may be mended while the mails wait.
    """
    try:
        await client.connect()
    except ssl.SSLError as error:
        client.close()
        raise _Unreachable(f"tls failed: {error.reason or type(error).__name__}") from None
    except SMTPAuthenticationError as error:
        client.close()
        raise _Unreachable(f"login refused: {_words(error)}") from None
    except SMTPResponseException as error:
        client.close()
        raise _Unreachable(f"connection refused: {_words(error)}") from None
    except (aiosmtplib.SMTPException, OSError) as error:
        client.close()
        # The library wraps what TLS had to say.
        reason = "tls failed" if isinstance(error.__cause__, ssl.SSLError) else "connect failed"
        raise _Unreachable(reason) from None
    except ValueError:
        client.close()
        # A name that cannot be looked up, or said. It is ours, and no mail's: none of them must be lost for it.
        raise _Unreachable("connect failed: not a host name") from None


def _answered(mail: Claimed, error: SMTPResponseException) -> Tried:
    """4xx may be different next time; 5xx is the server's last word."""
    return Tried(mail, Outcome.REFUSED if 500 <= error.code < 600 else Outcome.DELAYED, _words(error))


def _words(error: SMTPResponseException) -> str:
    """The server's answer, printable and short, without the guest's link: a filter that blocks a mail for its link
    repeats it, and what is said here is stored and logged."""
    text = _TOKEN.sub("***", " ".join(error.message.split()))
    return f"{error.code} {''.join(c if c.isprintable() else '?' for c in text)}"[:_WORDS_MAX]


def _options(mail: Claimed) -> list[str]:
    """What the server has to understand for this mail: an address beyond ASCII."""
    head = mail.message.partition(b"\r\n\r\n")[0]
    return [] if head.isascii() and mail.recipient.isascii() else ["SMTPUTF8"]


async def _close(client: aiosmtplib.SMTP) -> None:
    if not client.is_connected:
        return
    with contextlib.suppress(aiosmtplib.SMTPException, OSError, TimeoutError):
        await client.quit(timeout=QUIT_S)
    client.close()


# Files -----------------------------------------------------------------------------------------------------------


class FilePost:
    """A folder: each mail becomes a file that every mail program opens. Without a folder mails only wait."""

    reaches_people = False

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    async def carry(self, mails: Sequence[Claimed], tell: Tell) -> None:
        await tell(await asyncio.to_thread(lambda: [self._keep(mail) for mail in mails]))

    def _keep(self, mail: Claimed) -> Tried:
        if self._folder is None:
            return Tried(mail, Outcome.PARKED)
        try:
            self._write(self._folder, mail)
        except OSError as error:
            return Tried(mail, Outcome.DELAYED, f"not written: {error.strerror}")
        return Tried(mail, Outcome.PARKED)

    def _write(self, folder: Path, mail: Claimed) -> None:
        """Under a name that is the mail's own and sorts by time. Written aside first: whoever looks sees a whole mail
        or none, and one that is written twice is still one file. It holds a secret link, so nobody else may read it."""
        private_files.make_folder(folder)
        name = f"{to_datetime(mail.created_at):%Y%m%dT%H%M%S.%fZ}-{mail.kind}-{mail.id}.eml"
        private_files.replace(folder / name, mail.message, draft=folder / f".{name}.{mail.lease_token}")
