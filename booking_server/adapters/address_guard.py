"""Protects against server-side request forgery: resolves a webhook's URL to addresses that may be called.

Customers choose the URLs, and this service runs inside a private network. No spelling of a URL and no answer of DNS may
lead to that network, to the machine itself or to a cloud's metadata service. The module has its own tables, because the
standard library's `is_global` allows a third of the addresses that must be refused. Connections go to the checked
addresses: no name is resolved a second time.
"""

import asyncio
import contextlib
import functools
import ipaddress
import socket
import string
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import quote

from booking_core import webhooks
from booking_core.base.settings import Settings
from booking_core.models import limits
from booking_core.models.reasons import Fault
from booking_core.models.webhook_urls import is_host, split_url

# The tables ------------------------------------------------------------------------------------------------------

_DENIED_V4 = (
    "0.0.0.0/8",  # this network
    "10.0.0.0/8",  # private
    "100.64.0.0/10",  # carrier-grade NAT; the metadata of Alibaba Cloud
    "127.0.0.0/8",  # loopback
    "168.63.129.16/32",  # Azure's host, a public address that answers only from inside
    "169.254.0.0/16",  # link-local; the metadata of most clouds
    "172.16.0.0/12",  # private
    "192.0.0.0/24",  # protocol assignments; the metadata of Oracle Cloud
    "192.0.2.0/24",  # documentation
    "192.31.196.0/24",  # AS112
    "192.52.193.0/24",  # automatic multicast tunnelling
    "192.88.99.0/24",  # 6to4 relays
    "192.168.0.0/16",  # private
    "192.175.48.0/24",  # AS112
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/3",  # multicast, reserved, broadcast
)
_ALLOWED_V6 = "2000::/3"
"""The only part of IPv6 that is allocated for global use. Everything else is refused: loopback, unique local,
link-local, multicast, and IPv4 as mapped, compatible, translated or NAT64 addresses."""
_DENIED_V6 = (
    "2001::/23",  # protocol assignments, among them Teredo, which carries an IPv4 address
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4, which carries an IPv4 address
    "2620:4f:8000::/48",  # AS112
    "3fff::/20",  # documentation
)
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Bits 64 to 95 of an address that carries an IPv4 address in the other 32 (RFC 5214), under any prefix."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


_denied = {4: tuple(map(ipaddress.ip_network, _DENIED_V4)), 6: tuple(map(ipaddress.ip_network, _DENIED_V6))}
_allowed_v6 = ipaddress.ip_network(_ALLOWED_V6)


@functools.lru_cache(maxsize=4096)
def is_public(address: IpAddress) -> bool:
    """Return whether the address is reachable on the public internet."""
    if any(address in network for network in _denied[address.version]):
        return False
    return address.version == 4 or (address in _allowed_v6 and (int(address) >> 32) & 0xFFFF_FFFF not in _ISATAP)


@functools.lru_cache(maxsize=4096)
def parse_address(text: str) -> IpAddress | None:
    """Parse an address in its usual notation; None for anything else, and for a link-local zone (`%eth0`)."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


# Targets ---------------------------------------------------------------------------------------------------------


class BlockedAddress(Exception):
    """The URL is invalid for webhooks, or leads to a forbidden address, or may lead to one. It has no message, which
    could help to map a network."""


class NoAddress(Exception):
    """The name has no address at present."""


Origin = tuple[bool, str, int]
"""TLS, host and port. Requests to one origin may share a connection."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL."""

    is_tls: bool
    host: str
    """The name that TLS verifies: ASCII, lower case; an address in its usual notation, without brackets."""
    port: int
    path: str
    """Path and query in ASCII, as the request line carries them."""
    address: str | None
    """The host, when it is an address."""
    is_private_name: bool
    """The form of the name shows that it belongs to a private network."""

    @property
    def origin(self) -> Origin:
        return self.is_tls, self.host, self.port

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


_PRIVATE_SUFFIXES = ("localhost", "local", "internal", "localdomain", "home.arpa")


@functools.lru_cache(maxsize=4096)
def parse_target(url: str, *, allow_http: bool = False) -> Target:
    """Parse a URL as strictly as at its registration.

    Raises:
        BlockedAddress: the URL is ambiguous, or not allowed for webhooks.
    """
    if len(url) > limits.WEBHOOK_URL_LENGTH_MAX:
        raise BlockedAddress
    try:
        parts = split_url(url, allow_http=allow_http)
    except Fault:
        raise BlockedAddress from None
    if not webhooks.is_port_allowed(parts.port, is_tls=parts.is_tls):
        raise BlockedAddress
    host = _in_ascii(parts.host)
    address = parse_address(host)
    if address is None and not is_host(host):
        raise BlockedAddress
    return Target(
        is_tls=parts.is_tls,
        host=host if address is None else str(address),
        port=parts.port,
        path=quote(parts.path, safe=string.printable),
        address=None if address is None else str(address),
        is_private_name=address is None and _is_private_name(host),
    )


def _in_ascii(host: str) -> str:
    """Return the host in ASCII. Full-width digits and dots are mapped as browsers do, before any check."""
    if not host.isascii():
        import idna  # its tables take 50 ms to load, which a start without such a host does not need

        try:
            host = idna.encode(host, uts46=True).decode()
        except UnicodeError:
            raise BlockedAddress from None
    return host.lower().removesuffix(".")


def _is_private_name(host: str) -> bool:
    return "." not in host or host.endswith(tuple(f".{suffix}" for suffix in _PRIVATE_SUFFIXES))


# Names -----------------------------------------------------------------------------------------------------------

_REGISTRATION_LOOKUP_S = 2.0
"""The time that a registration waits for DNS. After it the URL is accepted, and checked again before each attempt."""


class SystemResolver:
    """The operating system's resolver, hosts file included. An empty result means that a name has no address.

    A lookup cannot be cancelled and may hang for half a minute. Each has a separate daemon thread, so it blocks neither
    other names nor the end of the process. Concurrent lookups of one name share a thread.
    """

    def __init__(self) -> None:
        self._running: dict[str, Future[Sequence[str]]] = {}
        self._lock = threading.Lock()

    async def resolve(self, host: str) -> Sequence[str]:
        return await asyncio.wrap_future(self._lookup(host))

    def resolve_now(self, host: str) -> Sequence[str]:
        return self._lookup(host).result(timeout=_REGISTRATION_LOOKUP_S)

    def _lookup(self, host: str) -> Future[Sequence[str]]:
        with self._lock:
            future = self._running.get(host)
            if future is None:
                future = Future()
                future.set_running_or_notify_cancel()  # so that no caller can cancel it for the others
                thread = threading.Thread(target=self._run, args=(host, future), name="lookup", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no thread can be started
                    raise OSError(str(error)) from error
                self._running[host] = future
            return future

    def _run(self, host: str, future: Future[Sequence[str]]) -> None:
        addresses: list[str] = []
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in infos))
        except (OSError, UnicodeError):
            pass  # reported as no address
        finally:
            with self._lock:
                del self._running[host]
            future.set_result(addresses)


# The guard -------------------------------------------------------------------------------------------------------


class AddressGuard:
    """Resolves URLs to allowed addresses. Threads may share it."""

    def __init__(self, settings: Settings, resolver: SystemResolver | None = None) -> None:
        self._resolver = resolver or SystemResolver()
        self._allow_http = settings.webhook_allow_http
        self._allowed: tuple[Network, ...] = tuple(map(ipaddress.ip_network, settings.webhook_allow_cidrs))
        self._service: Target | None = None
        with contextlib.suppress(BlockedAddress):
            self._service = parse_target(settings.public_url, allow_http=True)

    def is_public_url(self, url: str) -> bool:
        """Return whether an endpoint may be registered with the URL. Waits for DNS, so not to be called in a
        transaction.

        A name without an address is allowed: DNS may be down, or the receiver not set up yet. Each attempt checks
        again.
        """
        try:
            target = parse_target(url, allow_http=self._allow_http)
            self._check(target, self._addresses_now(target))
        except BlockedAddress:
            return False
        return True

    async def resolve(self, url: str) -> tuple[Target, Sequence[str]]:
        """Return the parts of the URL and its addresses, all of them checked, in the order of preference.

        Raises:
            BlockedAddress: the URL is invalid for webhooks, or one of its addresses is not allowed.
            NoAddress: the name has no address.
        """
        target = parse_target(url, allow_http=self._allow_http)
        try:
            candidates = [target.address] if target.address else await self._resolver.resolve(target.host)
        except OSError:
            raise NoAddress from None
        addresses = self._check(target, candidates)
        if not addresses:
            raise NoAddress
        return target, addresses

    def _addresses_now(self, target: Target) -> Sequence[str]:
        try:
            return [target.address] if target.address else self._resolver.resolve_now(target.host)
        except OSError:
            return []

    def _check(self, target: Target, texts: Sequence[str]) -> list[str]:
        """Return the addresses if every one of them is allowed.

        A private name is allowed only if it leads to private addresses that the settings allow.
        """
        addresses = [address for address in map(parse_address, texts) if address is not None]
        allowed = [any(address in network for network in self._allowed) for address in addresses]
        if target.is_private_name:
            is_allowed = bool(addresses) and all(allowed)
        else:
            is_allowed = all(exempt or is_public(address) for address, exempt in zip(addresses, allowed, strict=True))
        if not is_allowed or len(addresses) < len(texts) or self._is_own(target, allowed):
            raise BlockedAddress
        return [str(address) for address in addresses]

    def _is_own(self, target: Target, allowed: Sequence[bool]) -> bool:
        """Return whether the URL leads to this service: its host or, on an allowed private address, its host and
        port."""
        if self._service is None or target.host != self._service.host:
            return False
        return target.port == self._service.port or not (allowed and all(allowed))
