"""Protects against server-side request forgery: resolves a webhook's URL to addresses that may be called.

Customers choose the URLs, and this service runs inside a private network: a URL must not lead to that network, to the
machine itself or to a cloud's metadata service, however it is written and whatever DNS answers. The tables are our own,
because the standard library's `is_global` allows a third of the addresses that must be refused; the library only parses
here. Connections go to the checked addresses: no name is resolved a second time.
"""

import asyncio
import functools
import ipaddress
import logging
import re
import socket
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import idna

from booking_core import webhooks
from booking_core.base.settings import Settings
from booking_core.models import limits

log = logging.getLogger("booking.webhooks")

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

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Ranges:
    """Disjoint networks of one address family, with binary search."""

    def __init__(self, networks: Iterable[str]) -> None:
        parsed = sorted((ipaddress.ip_network(text) for text in networks), key=lambda network: int(network[0]))
        self._firsts = [int(network[0]) for network in parsed]
        self._lasts = [int(network[-1]) for network in parsed]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]


_denied_v4 = _Ranges(_DENIED_V4)
_allowed_v6 = _Ranges([_ALLOWED_V6])
_denied_v6 = _Ranges(_DENIED_V6)


def is_public(address: str) -> bool:
    """Return whether the text is an address that is reachable on the public internet."""
    parsed = _address(address)
    return parsed is not None and _is_public(parsed)


@functools.lru_cache(maxsize=4096)
def _is_public(address: Address) -> bool:
    number = int(address)
    if address.version == 4:
        return number not in _denied_v4
    return number in _allowed_v6 and number not in _denied_v6 and (number >> 32) & 0xFFFF_FFFF not in _ISATAP


@functools.lru_cache(maxsize=4096)
def _address(text: str) -> Address | None:
    """Parse an address in its usual notation; None for anything else, and for a link-local zone (`%eth0`)."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


# Targets ---------------------------------------------------------------------------------------------------------


class TargetError(ValueError):
    """A URL that is invalid for webhooks, whatever its host resolves to. The message is for the customer."""


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
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


_URL = re.compile(r"(https?)://([^/?]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\#\u2028\u2029\ufeff\ud800-\udfff]|\s")
"""Control characters, white space, backslashes and fragments: parsers interpret such URLs differently."""
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@%]+))(?::([0-9]{1,5}))?")
"""Without user information, and without percent-encoding, which excludes IPv6 zones."""
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_HOST_LENGTH_MAX = 253
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PRIVATE_SUFFIXES = ("localhost", "local", "internal", "localdomain", "home.arpa")


@functools.lru_cache(maxsize=4096)
def parse_target(url: str, *, allow_http: bool = False) -> Target:
    """Parse a URL strictly.

    Raises:
        TargetError: the URL is ambiguous, or not allowed for webhooks.
    """
    if len(url) > limits.WEBHOOK_URL_LENGTH_MAX or _FORBIDDEN.search(url):
        raise TargetError("is too long, or has white space, control characters, a backslash or a fragment")
    parts = _URL.fullmatch(url)
    if not parts or (parts[1].lower() == "http" and not allow_http):
        raise TargetError("must begin with https://")
    authority = _AUTHORITY.fullmatch(parts[2])
    if not authority:
        raise TargetError("must name a host, without user or password")
    is_tls = parts[1].lower() == "https"
    host, address = _bracketed(authority[1]) if authority[1] else _host(authority[2])
    path = (parts[3] or "/") + (parts[4] or "")
    return Target(
        is_tls=is_tls,
        host=host,
        port=_port(authority[3], is_tls=is_tls),
        path=path if path.isascii() else _percent_encoded(path),
        address=address,
        is_private_name=address is None and _is_private_name(host),
    )


def _port(digits: str | None, *, is_tls: bool) -> int:
    port = int(digits) if digits else 443 if is_tls else 80
    if not webhooks.is_port_allowed(port, is_tls=is_tls):
        raise TargetError("must use port 443, or one from 1024 that is not known for another service")
    return port


def _bracketed(text: str) -> tuple[str, str]:
    try:
        address = str(ipaddress.IPv6Address(text))
    except ValueError:
        raise TargetError("must name a host, without user or password") from None
    return address, address


def _host(text: str) -> tuple[str, str | None]:
    """Return the host in ASCII, and as an address if the system's resolver would interpret it as one."""
    if not text.isascii():
        try:  # maps full-width digits and dots as browsers do, before any check
            text = idna.encode(text, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            raise TargetError("must name a host that can be written in ASCII") from None
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > _HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise TargetError("must name a host")
    if not _NUMBER.fullmatch(labels[-1]):
        return host, None
    address = str(_numeric(labels))
    return address, address


def _numeric(labels: Sequence[str]) -> ipaddress.IPv4Address:
    """Parse `127.1`, `0x7f000001`, `0177.0.0.1` and similar forms of IPv4, as inet_aton and browsers do."""
    try:
        *leading, last = [_number(label) for label in labels]
        number = last
        for place, value in enumerate(leading):
            if value > 255:
                raise ValueError
            number += value << 8 * (3 - place)
        if len(labels) > 4 or last >= 256 ** (4 - len(leading)):
            raise ValueError
    except ValueError:
        raise TargetError("must name a host") from None
    return ipaddress.IPv4Address(number)


def _number(label: str) -> int:
    """Parse a number: hexadecimal after 0x, octal after 0, else decimal."""
    if not _NUMBER.fullmatch(label):
        raise ValueError
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)


def _is_private_name(host: str) -> bool:
    return "." not in host or host.endswith(tuple(f".{suffix}" for suffix in _PRIVATE_SUFFIXES))


def _percent_encoded(path: str) -> str:
    return "".join(
        character if character.isascii() else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in path
    )


# Names -----------------------------------------------------------------------------------------------------------

_REGISTRATION_LOOKUP_S = 2.0
"""The time that a registration waits for DNS. After it the URL is accepted, and checked again before each attempt."""


class Resolver(Protocol):
    """Resolves names. An empty result or an OSError means that there is no address."""

    async def resolve(self, host: str) -> Sequence[str]: ...

    def resolve_now(self, host: str) -> Sequence[str]: ...


class SystemResolver:
    """The operating system's resolver, hosts file included.

    A lookup cannot be cancelled and may hang for half a minute. Each has a daemon thread of its own, so that it blocks
    neither another name nor the end of the process. Concurrent lookups of one name share a thread.
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
                future = self._running[host] = Future()
                future.set_running_or_notify_cancel()  # so that no caller can cancel it for the others
                thread = threading.Thread(target=self._run, args=(host, future), name="lookup", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no thread can be started
                    del self._running[host]  # or later lookups of this name would wait forever
                    raise OSError(str(error)) from error
            return future

    def _run(self, host: str, future: Future[Sequence[str]]) -> None:
        addresses: list[str] = []
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        except (OSError, UnicodeError):
            pass  # reported as no address
        finally:
            with self._lock:
                del self._running[host]
            future.set_result(addresses)


# The guard -------------------------------------------------------------------------------------------------------


class BlockedAddress(Exception):
    """The URL leads, or may lead, to a forbidden address. It has no message, so that it cannot help to map a
    network."""


class NoAddress(Exception):
    """The name has no address at present."""


class AddressGuard:
    """Resolves URLs to allowed addresses. Threads may share it."""

    def __init__(self, settings: Settings, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or SystemResolver()
        self._allow_http = settings.webhook_allow_http
        self._allowed: tuple[Network, ...] = tuple(map(ipaddress.ip_network, settings.webhook_allow_cidrs))
        self._own = _own_target(settings.public_url)
        if self._allowed:
            log.warning("webhooks may be sent to private addresses: %s", ", ".join(settings.webhook_allow_cidrs))

    def is_public_url(self, url: str) -> bool:
        """Return whether an endpoint may be registered with the URL. Waits for DNS, so not to be called in a
        transaction.

        A name without an address is allowed: DNS may be down, or the receiver not set up yet. Each attempt checks
        again.
        """
        try:
            target = self._target(url)
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
        target = self._target(url)
        try:
            found = [target.address] if target.address else await self._resolver.resolve(target.host)
        except OSError:
            raise NoAddress from None
        addresses = self._check(target, found)
        if not addresses:
            raise NoAddress
        return target, addresses

    def _target(self, url: str) -> Target:
        try:
            return parse_target(url, allow_http=self._allow_http)
        except TargetError:
            raise BlockedAddress from None

    def _addresses_now(self, target: Target) -> Sequence[str]:
        try:
            return [target.address] if target.address else self._resolver.resolve_now(target.host)
        except OSError:
            return []

    def _check(self, target: Target, found: Sequence[str]) -> list[str]:
        """Return the addresses if every one of them is allowed.

        A private name is allowed only if it leads to private addresses that the settings allow.
        """
        addresses = [address for address in map(_address, found) if address is not None]
        allowed = [any(address in network for network in self._allowed) for address in addresses]
        if target.is_private_name:
            is_allowed = bool(addresses) and all(allowed)
        else:
            is_allowed = all(exempt or _is_public(each) for each, exempt in zip(addresses, allowed, strict=True))
        if not is_allowed or len(addresses) < len(found) or self._is_own(target, allowed):
            raise BlockedAddress
        return [str(address) for address in addresses]

    def _is_own(self, target: Target, allowed: Sequence[bool]) -> bool:
        """Return whether the URL leads to this service: its host or, on an allowed private address, its host and
        port."""
        if self._own is None or target.host != self._own.host:
            return False
        return target.port == self._own.port or not (allowed and all(allowed))


def _own_target(public_url: str) -> Target | None:
    try:
        return parse_target(public_url, allow_http=True)
    except TargetError:
        return None
