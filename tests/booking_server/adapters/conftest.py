"""Receivers of every kind on 127.0.0.1, a DNS with prepared answers, canaries, and certificates.

Only 127.0.0.1 may be called; every other address of this machine is denied, and where a canary listens, a connection
would be seen.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from support.receivers.sockets import HOST, Call, Handle, Receiver

from booking_core.base.settings import Settings
from booking_server.adapters.webhook_client import Sent, WebhookSender

LATE_S = 20.0
"""The tolerance after a deadline on a busy machine; an attempt without a deadline lasts longer."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# Receivers -------------------------------------------------------------------------------------------------------


def answer(head_and_body: bytes) -> Handle:
    """Read a request, send the answer, and close."""

    def handle(call: Call) -> None:
        call.read()
        call.send(head_and_body)

    return handle


def keep_answering(call: Call) -> None:
    """Respond like an ordinary server."""
    while call.read():
        call.send(OK)


@pytest.fixture
def receive(authority: "Authority") -> Iterator[Callable[..., Receiver]]:
    """Start a receiver with a function, or with the bytes of its response; `https` brings a certificate of HOST."""
    started: list[Receiver] = []

    def start(handle: Handle | bytes = keep_answering, scheme: str = "http", **options: Any) -> Receiver:
        certified = {"tls": authority.server(HOST)} if scheme == "https" else {}
        started.append(Receiver(answer(handle) if isinstance(handle, bytes) else handle, **certified | options))
        return started[-1]

    yield start
    for receiver in started:
        receiver.close()


# Names -----------------------------------------------------------------------------------------------------------


class Names:
    """A DNS resolver. A value is a list of addresses, an exception, or a function that returns either."""

    def __init__(self, addresses: Mapping[str, Any]) -> None:
        self.addresses = dict(addresses)
        self.look_ups: list[str] = []

    async def resolve(self, host: str) -> Sequence[str]:
        answer = self.resolve_now(host)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        return answer

    def resolve_now(self, host: str) -> Any:
        self.look_ups.append(host)
        answer = self.addresses.get(host, [])
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def names() -> Callable[..., Names]:
    return lambda **addresses: Names({name.replace("_", "."): answer for name, answer in addresses.items()})


# Sending ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def uvloop_begun() -> None:
    """Start uvloop once, since its first loop opens descriptors that all later ones share."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.sleep(0))


@pytest.fixture(params=[pytest.param("asyncio", marks=pytest.mark.exhaustive), "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Run a coroutine on either event loop, and fail if the loop reports an error.

    `make test` has that of the worker, and the other one where a test says so.
    """

    def runs(main: Any) -> Any:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        complaints: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            result = runner.run(main)
        assert complaints == []
        return result

    return runs


@pytest.fixture
def settings(authority: "Authority") -> Callable[..., Settings]:
    """Return settings that allow calls to 127.0.0.1."""
    usual = {
        "webhook_allow_http": True,
        "webhook_allow_cidrs": (f"{HOST}/32",),
        "webhook_deadline_s": 10.0,
        "webhook_ca_file": str(authority.file),
        "public_url": "https://booking.example",
    }
    return lambda **changes: Settings(**{**usual, **changes})


@pytest.fixture
def deliver(run: Callable[[Any], Any], settings: Callable[..., Settings]) -> Callable[..., Any]:
    """Send once to each URL with the same client, and return the result, or a list of results."""

    def delivers(
        *urls: str,
        names: Names | None = None,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"{}",
        **changes: Any,
    ) -> Sent | list[Sent]:
        effective = settings(**changes)

        async def main() -> list[Sent]:
            sender = WebhookSender(effective, resolver=names)
            try:
                return [await in_time(sender, url) for url in urls]
            finally:
                await sender.close()

        async def in_time(sender: WebhookSender, url: str) -> Sent:
            started = time.monotonic()
            sent = await sender.send(url, headers, body)
            assert time.monotonic() - started < effective.webhook_deadline_s + LATE_S
            return sent

        outcomes = run(main())
        return outcomes[0] if len(urls) == 1 else outcomes

    return delivers


@pytest.fixture
def with_sender(run: Callable[[Any], Any], settings: Callable[..., Settings]) -> Callable[..., Any]:
    """Run a function of an open sender, and return its result."""

    def runs(act: Callable[[WebhookSender], Awaitable[Any]], **changes: Any) -> Any:
        async def main() -> Any:
            sender = WebhookSender(settings(**changes))
            try:
                return await act(sender)
            finally:
                await sender.close()

        return run(main())

    return runs


@pytest.fixture
def descriptors(uvloop_begun: None) -> Iterator[None]:
    """Assert that no socket of the test is left open."""
    before = set(Path("/proc/self/fd").iterdir())
    yield
    assert set(Path("/proc/self/fd").iterdir()) <= before


# Canaries --------------------------------------------------------------------------------------------------------


class Canaries:
    """Open listeners on one port of several addresses of this machine, which must never be called."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.port = 0
        self._listeners: list[socket.socket] = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError):  # a machine without IPv6 has fewer
                self._listeners.append(socket.create_server((address, self.port), family=family))
                self.port = self._listeners[-1].getsockname()[1]

    @property
    def are_untouched(self) -> bool:
        return not select.select(self._listeners, [], [], 0)[0]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()


@pytest.fixture
def canaries() -> Iterator[Callable[..., Canaries]]:
    instances: list[Canaries] = []

    def make(*addresses: str) -> Canaries:
        instances.append(Canaries(addresses or ("127.0.0.2", "::1")))
        return instances[-1]

    yield make
    for instance in instances:
        instance.close()


_watchers: list[list[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        for watcher in _watchers:
            watcher.append(arguments[1][0])


@pytest.fixture
def connected_to(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Record every address that this process connects to during the test."""
    _install_audit()
    addresses: list[str] = []
    _watchers.append(addresses)
    yield addresses
    _watchers.remove(addresses)


_installed = threading.Lock()


def _install_audit() -> None:
    if _installed.acquire(blocking=False):  # an audit hook stays for the life of the process
        sys.addaudithook(_audit)


# Certificates ----------------------------------------------------------------------------------------------------

_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Create a certificate authority that the client trusts through its setting."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._count = 0
        self.file = folder / "authority.pem"
        certificate = (
            self._builder("Authority", "Authority", self._key.public_key(), -_DAY, 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True)
            .add_extension(self._key_id, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    @staticmethod
    def _builder(subject: str, issuer: str, key: Any, since: Any, until: Any) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer)).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(_NOW + since).not_valid_after(_NOW + until)

    @staticmethod
    def _signer_id(key: Any) -> x509.AuthorityKeyIdentifier:
        """Return the extension that names the signing key; Python 3.13 and newer refuse a certificate without it."""
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())

    def server(self, *names: str, expired: bool = False, self_signed: bool = False, weak: bool = False) -> Any:
        """Return a server's TLS context with a certificate for these names or addresses."""
        key: Any = rsa.generate_private_key(65_537, 1024) if weak else ec.generate_private_key(ec.SECP256R1())
        since, until = (-2 * _DAY, -_DAY) if expired else (-_DAY, _DAY)
        subjects = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdecimal() else x509.DNSName(name) for name in names
        ]
        issuer, signer = ("Server", key) if self_signed else ("Authority", self._key)
        certificate = (
            self._builder("Server", issuer, key.public_key(), since, until)
            .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(self._signer_id(key if self_signed else self._key), critical=False)
            .sign(signer, hashes.SHA256())
        )
        self._count += 1
        file = self._folder / f"server-{self._count}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if weak:
            context.set_ciphers("DEFAULT@SECLEVEL=0")
        context.load_cert_chain(file)
        return context


@pytest.fixture(autouse=True)
def no_authority_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the system's certificate authorities, which the tests do not need and which are slow to load."""
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    monkeypatch.setenv("SSL_CERT_DIR", "/dev/null")


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))
