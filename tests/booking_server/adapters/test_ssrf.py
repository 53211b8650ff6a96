"""No URL and no DNS brings a connection to an address that is denied: rows S1 to S13, with canaries that would see one.

Beside the canaries, every connection that this process opens is recorded: a connection to an address outside this
machine is noticed as well.
"""

import itertools
import socket
from collections.abc import Callable
from typing import Any

import pytest
from support.world.hosts import PRIVATE_HOSTS

from booking_core.models.webhooks import AttemptError
from booking_server.adapters.address_guard import AddressGuard
from booking_server.adapters.webhook_client import Sent, WebhookSender

pytestmark = pytest.mark.usefixtures("descriptors")

BLOCKED = (None, None, AttemptError.BLOCKED_ADDRESS)
PUBLIC = "93.184.215.14"

Deliver = Callable[..., Any]
Receive = Callable[..., Any]


def visible_part(sent: Sent) -> tuple[Any, ...]:
    """Return everything that a customer learns about an attempt, except its duration."""
    return sent.status, sent.excerpt, sent.error


def test_a_canary_sees_a_connection(canaries: Any, connected_to: list[str]) -> None:
    canary = canaries("127.0.0.2")
    with socket.create_connection(("127.0.0.2", canary.port)):
        assert not canary.are_untouched
    assert connected_to == ["127.0.0.2"]


HOSTS = [
    *PRIVATE_HOSTS,
    *("192.0.2.2", "127.0.0.2", "2130706434", "0x7f.2", "[fd00::2]", "[2001:0:1::]", "[fe80::1%25lo]", "[::127.0.0.2]"),
    *("vm", "booking.example", "good.example@127.0.0.1", "127.0.0.1#@good.example", "good.example\\@127.0.0.1"),
    *("good.example\t@127.0.0.1", "127.0.0.1\r\n", "good.example:443@127.0.0.1", "a:b@good.example"),
]
"""Rows S2 to S7, as they stand in a URL before the port."""


@pytest.mark.parametrize("allow_http", [False, True], ids=["https", "http"])
def test_no_notation_of_a_private_address_is_called(
    deliver: Deliver, settings: Any, names: Any, canaries: Any, connected_to: list[str], allow_http: bool
) -> None:
    canary = canaries("127.0.0.1", "127.0.0.2", "::1", "192.0.2.2", "fd00::2")
    addresses = {name: ["127.0.0.1"] for name in ("localhost", "a.localhost", "x.internal", "x.local", "vm")}
    resolver = names()
    resolver.addresses = {**addresses, "metadata.google.internal": ["169.254.169.254"], "booking.example": [PUBLIC]}
    scheme = "http" if allow_http else "https"
    urls = [f"{scheme}://{host}:{canary.port}/hook" for host in HOSTS]
    urls += [f"{scheme}://{host}/" for host in HOSTS]
    closed = {"webhook_allow_http": allow_http, "webhook_allow_cidrs": ()}
    guard = AddressGuard(settings(**closed), resolver)
    assert not any(guard.is_public_url(url) for url in urls)
    assert {visible_part(sent) for sent in deliver(*urls, names=resolver, **closed)} == {BLOCKED}
    assert canary.are_untouched
    assert connected_to == []


@pytest.mark.parametrize(
    "url",
    [
        *("", "http://good.example/", "file:///etc/passwd", "https://good.example/#a", "https://good.example/\n"),
        *("https://good.example/" + "a" * 2028, "https://127.0.0.1:22/"),
        *(f"https://good.example:{port}/" for port in (22, 80, 444, 1023, 6379)),
    ],
)
def test_a_forbidden_url_is_not_called(
    deliver: Deliver, settings: Any, names: Any, connected_to: list[str], url: str
) -> None:
    """Rows S1 and S11, also when the row is in the database already."""
    resolver = names(good_example=["127.0.0.1"])
    assert not AddressGuard(settings(webhook_allow_http=False), resolver).is_public_url(url)
    assert visible_part(deliver(url, names=resolver, webhook_allow_http=False)) == BLOCKED
    assert connected_to == []
    assert resolver.look_ups == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.2"],
        ["127.0.0.1", "127.0.0.2"],
        ["::1", "127.0.0.1"],
        ["127.0.0.1", "::ffff:127.0.0.2"],
        ["127.0.0.1"] * 49 + ["127.0.0.2"],
        ["fe80::1%lo"],
        ["0.0.0.0"],
        ["127.2"],
        ["nonsense"],
    ],
    ids=lambda addresses: f"{addresses[-1]} of {len(addresses)}",
)
def test_one_denied_address_denies_all(
    deliver: Deliver, settings: Any, names: Any, canaries: Any, connected_to: list[str], addresses: list[str]
) -> None:
    """Row S8; 127.0.0.1 represents a public address."""
    canary = canaries("127.0.0.1", "127.0.0.2", "::1")
    resolver = names(good_example=addresses)
    url = f"http://good.example:{canary.port}/"
    assert not AddressGuard(settings(), resolver).is_public_url(url)
    assert visible_part(deliver(url, names=resolver)) == BLOCKED
    assert canary.are_untouched
    assert connected_to == []


def test_a_name_that_moves_to_a_private_address_is_not_called(
    run: Any, settings: Any, receive: Receive, names: Any, canaries: Any, connected_to: list[str]
) -> None:
    """Row S9: a thousand times public when registered, and one of four things when sent to."""
    receiver = receive()
    canary = canaries("127.0.0.2", "::1")
    turn = itertools.cycle([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"], ["::1"], ["127.0.0.1"], ["127.0.0.1"]])
    resolver = names(good_example=lambda: next(turn))

    async def main() -> list[AttemptError | None]:
        effective = settings()
        guard, sender = AddressGuard(effective, resolver), WebhookSender(effective, resolver=resolver)
        errors = []
        for i in range(1000):
            assert guard.is_public_url(receiver.url("good.example"))
            port = canary.port if i % 3 < 2 else receiver.port
            sent = await sender.send(f"http://good.example:{port}/", [], b"{}")
            errors.append(sent.error)
        await sender.close()
        return errors

    blocked = AttemptError.BLOCKED_ADDRESS
    assert run(main()) == ([blocked, blocked, None] * 334)[:1000]
    assert canary.are_untouched
    assert set(connected_to) == {"127.0.0.1"}
    assert len(resolver.look_ups) == 2000
    assert len(receiver.requests) == 333


def test_a_name_is_resolved_once_for_one_send(
    deliver: Deliver, receive: Receive, names: Any, canaries: Any, connected_to: list[str]
) -> None:
    """Row S9: the client connects to the checked address, however short its TTL is."""
    receiver = receive()
    canary = canaries("127.0.0.2")
    answers = iter([["127.0.0.1"]])
    resolver = names(good_example=lambda: next(answers, ["127.0.0.2"]))
    assert deliver(receiver.url("good.example"), names=resolver).error is None
    assert resolver.look_ups == ["good.example"]
    assert connected_to == ["127.0.0.1"]
    assert canary.are_untouched


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(
    deliver: Deliver, receive: Receive, canaries: Any, connected_to: list[str], status: int
) -> None:
    """Row S10."""
    canary = canaries("127.0.0.2", "::1")

    def handle(call: Any) -> None:
        while head := call.read():
            location = head.split()[1][1:].decode().replace("self", call.receiver.url())
            call.send(f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())

    receiver = receive(handle)
    places = ["http://169.254.169.254/latest/", "self", f"http://127.0.0.2:{canary.port}/", "//[::1]/", "/other", "a"]
    sent = deliver(*(receiver.url(path=f"/{place}") for place in places))
    assert {visible_part(result) for result in sent} == {(status, None, AttemptError.REDIRECT)}
    assert len(receiver.requests) == len(places)
    assert set(connected_to) == {"127.0.0.1"}
    assert canary.are_untouched


def test_no_proxy_of_the_environment_is_used(
    deliver: Deliver, receive: Receive, authority: Any, names: Any, canaries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row S12."""
    canary = canaries("127.0.0.2")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.2:{canary.port}")
        monkeypatch.setenv(name.lower(), f"http://127.0.0.2:{canary.port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    resolver = names(good_example=["127.0.0.1"])
    for receiver in (receive(), receive(tls=authority.server("good.example"))):
        assert deliver(receiver.url("good.example"), names=resolver).error is None
        assert len(receiver.requests) == 1
    assert canary.are_untouched


def test_registration_reveals_nothing_about_a_private_address(
    settings: Any, receive: Receive, canaries: Any, connected_to: list[str]
) -> None:
    """Row S13: nothing is called when an endpoint is registered, so open, closed and silent look alike."""
    listening, closed = receive(), canaries("127.0.0.1")
    closed.close()
    outside = AddressGuard(settings(webhook_allow_cidrs=()))
    inside = AddressGuard(settings())
    for port in (listening.port, closed.port):
        assert outside.is_public_url(f"http://127.0.0.1:{port}/") is False
        assert outside.is_public_url(f"http://10.0.0.1:{port}/") is False
        assert inside.is_public_url(f"http://127.0.0.1:{port}/") is True
    assert listening.connections == 0
    assert connected_to == []


def test_an_address_in_the_standard_form_is_compared_with_the_ranges(
    run: Any, settings: Any, receive: Receive, names: Any
) -> None:
    """Resolvers may return any form of an IPv6 address."""
    resolver = names(good_example=["0000:0:0::0001"])

    async def main() -> Any:
        guard = AddressGuard(settings(webhook_allow_cidrs=("::1/128",)), resolver)
        return (await guard.resolve("https://good.example/"))[1]

    assert run(main()) == ["::1"]
