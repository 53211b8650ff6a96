"""The address guard: tables of addresses, notations of hosts, and checks of names."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world.hosts import PRIVATE_HOSTS, PRIVATE_NAMES

from booking_core.base.settings import Settings
from booking_server.adapters import address_guard
from booking_server.adapters.address_guard import (
    AddressGuard,
    BlockedAddress,
    NoAddress,
    SystemResolver,
    parse_address,
    parse_target,
)
from booking_server.adapters.webhook_client import WebhookSender

# Written down a second time, as first and last addresses, from the IANA registries of special-purpose addresses and
# the well-known addresses of clouds.
DENIED_V4 = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.31.196.0", "192.31.196.255"),
    ("192.52.193.0", "192.52.193.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("192.175.48.0", "192.175.48.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
]
ALLOWED_V6 = [
    ("2000::", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:200::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db9::", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2003::", "2620:4f:7fff:ffff:ffff:ffff:ffff:ffff"),
    ("2620:4f:8001::", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("3fff:1000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
]


def number(text: str) -> int:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    return int.from_bytes(socket.inet_pton(family, text), "big")


def text_v4(value: int) -> str:
    return socket.inet_ntop(socket.AF_INET, value.to_bytes(4, "big"))


def text_v6(value: int) -> str:
    return socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big"))


DENIED_NUMBERS, ALLOWED_NUMBERS = ([(number(a), number(z)) for a, z in ranges] for ranges in (DENIED_V4, ALLOWED_V6))


def expected_v4(value: int) -> bool:
    return not any(first <= value <= last for first, last in DENIED_NUMBERS)


def expected_v6(value: int) -> bool:
    return any(first <= value <= last for first, last in ALLOWED_NUMBERS)


def is_public(text: str) -> bool:
    address = parse_address(text)
    return address is not None and address_guard.is_public(address)


# The tables ------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(("bits", "text", "expected"), [(32, text_v4, expected_v4), (128, text_v6, expected_v6)])
def test_every_16_of_an_address_matches_the_registries(
    bits: int, text: Callable[[int], str], expected: Callable[[int], bool]
) -> None:
    rest = bits - 16
    for prefix in range(65_536):
        value = (prefix << rest) | (0, 1, (1 << rest) - 1)[prefix % 3]
        assert is_public(text(value)) is expected(value), text(value)


@pytest.mark.parametrize(("first", "last"), [*DENIED_V4, *ALLOWED_V6])
def test_the_ends_of_a_range_are_exact(first: str, last: str) -> None:
    bits, text, expected = (128, text_v6, expected_v6) if ":" in first else (32, text_v4, expected_v4)
    for value in (number(first) - 1, number(first), number(last), number(last) + 1):
        if 0 <= value < 1 << bits:
            assert is_public(text(value)) is expected(value), text(value)


@given(st.integers(0, (1 << 32) - 1))
def test_no_form_of_ipv6_that_carries_an_ipv4_address_is_public(value: int) -> None:
    v4 = text_v4(value)
    six_to_four = text_v6((0x2002 << 112) | (value << 80))
    teredo = text_v6((0x20010000 << 96) | (value ^ 0xFFFF_FFFF))
    isatap = [text_v6(number("2a00:1450::") | (marker << 32) | value) for marker in (0x0000_5EFE, 0x0200_5EFE)]
    forms = [f"::{v4}", f"::ffff:{v4}", f"::ffff:0:{v4}", f"64:ff9b::{v4}", f"64:ff9b:1::{v4}"]
    for form in (*forms, six_to_four, teredo, *isatap):
        assert not is_public(form), form


@pytest.mark.parametrize(
    "text", ["", "example.com", "127.1", "0x7f000001", "2130706433", "8.8.8", "fe80::1%eth0", "2a00:1450::1%1", "[::1]"]
)
def test_an_invalid_address_is_not_public(text: str) -> None:
    assert not is_public(text)


# URLs ------------------------------------------------------------------------------------------------------------


def test_a_url_is_parsed() -> None:
    target = parse_target("HTTPS://Hooks.Example:8443/a/b?c=d")
    assert (target.is_tls, target.host, target.port, target.path) == (True, "hooks.example", 8443, "/a/b?c=d")
    assert (target.address, target.is_private_name, target.authority) == (None, False, "hooks.example:8443")


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://hooks.example", "hooks.example", "/"),
        ("https://hooks.example.", "hooks.example", "/"),
        ("https://hooks.example:443/", "hooks.example", "/"),
        ("https://hooks.example?a=b", "hooks.example", "/?a=b"),
        ("https://bücher.example/käse", "xn--bcher-kva.example", "/k%C3%A4se"),
        ("https://faß.example/", "xn--fa-hia.example", "/"),
        ("https://a_b.example/@c:d//e%20f", "a_b.example", "/@c:d//e%20f"),
        ("https://[2A00:1450::0001]:8443/", "[2a00:1450::1]:8443", "/"),
        ("https://8.8.8.8/", "8.8.8.8", "/"),
    ],
)
def test_the_request_has_the_host_and_path_of_the_url(url: str, authority: str, path: str) -> None:
    target = parse_target(url)
    assert (target.authority, target.path) == (authority, path)


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    for url in (text, f"https://{text}", f"https://hooks.example/{text}", f"https://{text}/"):
        try:
            target = parse_target(url)
        except BlockedAddress:
            continue
        assert (target.authority + target.path).isascii()
        assert not {" ", "\r", "\n", "#", "\\"} & set(target.authority + target.path)


# The guard -------------------------------------------------------------------------------------------------------

PUBLIC = "93.184.215.14"
PUBLIC_V6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"

SERVICE_HOSTS = ["booking.example", "BOOKING.example."]
PUBLIC_HOSTS = [
    *(f"{first}.{second}.8.8" for first in (1, 9, 11, 126, 128, 169, 172, 191, 192, 203, 223) for second in (1, 33)),
    *("172.15.255.255", "172.32.0.1", "192.167.255.255", "192.169.0.1", "169.253.255.255", "169.255.0.1"),
    *("100.63.255.255", "100.128.0.1", "198.17.255.255", "198.20.0.1", "8.8.8.8"),
    *("1.1.1.1", "9.9.9.9", "208.67.222.222", "208.67.220.220"),
    *("[2606:4700::1111]", "[2a00:1450:4001::200e]", "[2001:4860:4860::8888]", "[2400:cb00::1]", "[2c0f:f248::1]"),
    *("hooks.example", "localhost.example", "internal.example", "a.b.c.example", "xn--bcher-kva.example"),
    *("10.0.0.1.example", "127-0-0-1.example", "local.example"),
]  # fmt: skip


@pytest.fixture
def guard(names: Callable[..., Any]) -> AddressGuard:
    addresses = {host.strip("[]"): [PUBLIC] for host in [*PUBLIC_HOSTS, *PRIVATE_NAMES, *SERVICE_HOSTS]}
    resolver = names()
    resolver.addresses = {**addresses, "localhost": ["127.0.0.1"]}
    return AddressGuard(Settings(public_url="https://booking.example"), resolver)


@pytest.mark.parametrize("host", [*PRIVATE_HOSTS, *SERVICE_HOSTS])
def test_a_host_of_a_private_network_is_not_public(guard: AddressGuard, host: str) -> None:
    for url in (f"https://{host}/", f"https://{host}:8443/hook?a=b"):
        assert guard.is_public_url(url) is False
        with pytest.raises(BlockedAddress):
            asyncio.run(guard.resolve(url))


@pytest.mark.parametrize("host", PUBLIC_HOSTS)
def test_a_public_host_is_public(guard: AddressGuard, host: str) -> None:
    assert guard.is_public_url(f"https://{host}/") is True
    target, addresses = asyncio.run(guard.resolve(f"https://{host}/"))
    assert addresses == [target.address or PUBLIC]


def test_a_port_of_this_service_on_an_allowed_address_is_refused(names: Callable[..., Any]) -> None:
    settings = Settings(webhook_allow_http=True, webhook_allow_cidrs=("127.0.0.0/8",))
    guard = AddressGuard(settings, names())
    assert guard.is_public_url("http://127.0.0.1:9000/")
    assert not guard.is_public_url("http://127.0.0.1:8000/")


def test_fifty_public_addresses_are_public(names: Callable[..., Any]) -> None:
    addresses = [PUBLIC_V6, *(f"8.8.{i}.8" for i in range(49))]
    guard = AddressGuard(Settings(), names(hooks_example=addresses))
    assert guard.is_public_url("https://hooks.example/")
    assert asyncio.run(guard.resolve("https://hooks.example/"))[1] == addresses


@pytest.mark.parametrize(
    "answer",
    [[], socket.gaierror(socket.EAI_NONAME, "no"), TimeoutError()],
    ids=["no address", "no name", "no answer"],
)
def test_a_name_without_an_address_may_be_registered_but_not_called(names: Callable[..., Any], answer: Any) -> None:
    guard = AddressGuard(Settings(), names(hooks_example=answer))
    assert guard.is_public_url("https://hooks.example/")
    with pytest.raises(NoAddress):
        asyncio.run(guard.resolve("https://hooks.example/"))


def test_a_refusal_does_not_contain_the_addresses(names: Callable[..., Any]) -> None:
    guard = AddressGuard(Settings(), names(hooks_example=["10.0.0.1"]))
    for url in ("https://hooks.example/", "https://127.0.0.1/", "https://db/", "ftp://hooks.example/"):
        with pytest.raises(BlockedAddress) as raised:
            asyncio.run(guard.resolve(url))
        assert str(raised.value) == ""
        assert raised.value.__cause__ is None


def test_only_the_allowed_ranges_are_allowed(names: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(webhook_allow_cidrs=("10.1.0.0/16", "fd00::/64"))
    guard = AddressGuard(settings, names(hooks_example=["10.1.2.3", "fd00::1", PUBLIC], near_example=["10.2.0.1"]))
    assert guard.is_public_url("https://hooks.example/")
    assert guard.is_public_url("https://10.1.255.255/")
    assert guard.is_public_url("https://[fd00::1]/")
    for host in ("near.example", "10.2.0.1", "[::ffff:10.1.2.3]", "[fd00:0:0:1::1]", "127.0.0.1"):
        assert not guard.is_public_url(f"https://{host}/")
    assert not caplog.text
    WebhookSender(settings)
    assert "10.1.0.0/16, fd00::/64" in caplog.text


def test_a_private_name_is_allowed_only_with_allowed_addresses(names: Callable[..., Any]) -> None:
    resolver = names(
        localhost=["127.0.0.1"], receiver=["10.1.2.3"], x_internal=[PUBLIC], y_internal=["127.0.0.1", PUBLIC]
    )
    guard = AddressGuard(Settings(webhook_allow_cidrs=("127.0.0.0/8",)), resolver)
    assert guard.is_public_url("https://localhost/")
    for host in ("receiver", "x.internal", "y.internal", "metadata.google.internal"):
        assert not guard.is_public_url(f"https://{host}/")


# The system's resolver -------------------------------------------------------------------------------------------


class Lookups:
    """A replacement for getaddrinfo that blocks names that begin with "slow"."""

    def __init__(self) -> None:
        self.look_ups: list[str] = []
        self.free = threading.Event()

    def __call__(self, host: str, port: object, **options: object) -> list[Any]:
        self.look_ups.append(host)
        if host.startswith("slow"):
            self.free.wait(timeout=30)
        if host.startswith("none"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, 0))
        return [place, place, (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (PUBLIC_V6, 0, 0, 0))]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Lookups:
    lookups = Lookups()
    monkeypatch.setattr(address_guard.socket, "getaddrinfo", lookups)
    return lookups


def test_the_resolver_returns_each_address_once(lookups: Lookups) -> None:
    resolver = SystemResolver()
    assert resolver.resolve_now("a.example") == [PUBLIC, PUBLIC_V6]
    assert asyncio.run(resolver.resolve("a.example")) == [PUBLIC, PUBLIC_V6]
    assert resolver.resolve_now("none.example") == []
    assert lookups.look_ups == ["a.example", "a.example", "none.example"]


def test_a_slow_name_uses_one_thread_and_delays_no_other(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_guard, "_REGISTRATION_LOOKUP_S", 0.01)
    resolver = SystemResolver()

    async def scene() -> None:
        waiting = [asyncio.create_task(resolver.resolve("slow.example")) for _ in range(100)]
        assert await resolver.resolve("a.example")
        assert lookups.look_ups.count("slow.example") == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await resolver.resolve("slow.example")
        with pytest.raises(TimeoutError):
            resolver.resolve_now("slow.example")
        waiting[0].cancel()
        lookups.free.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [[PUBLIC, PUBLIC_V6]] * 99

    asyncio.run(scene())
    assert lookups.look_ups.count("slow.example") == 1


def test_a_name_is_looked_up_again_when_no_thread_started(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = SystemResolver()

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(OSError, match="thread"):
            resolver.resolve_now("a.example")
    assert resolver.resolve_now("a.example") == [PUBLIC, PUBLIC_V6]


def test_a_registration_does_not_wait_long_for_dns(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_guard, "_REGISTRATION_LOOKUP_S", 0.01)
    assert AddressGuard(Settings()).is_public_url("https://slow.example/")
    lookups.free.set()


def test_the_system_resolves_localhost() -> None:
    assert "127.0.0.1" in SystemResolver().resolve_now("localhost")
