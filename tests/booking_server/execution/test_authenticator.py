"""Clients without a key, and keys that were seen to work."""

import pytest
from support.connections import Connection, SteppedLoop, echo, stepped_loop

from booking_server.execution.authenticator import SeenKeys, network_of, unmapped


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("", "unknown"),
        ("192.0.2.1, 192.0.2.2", "unknown"),
        ("x" * 10_000, "unknown"),
    ],
)
def test_a_client_is_an_ipv4_address_or_a_64(text: str, network: str) -> None:
    assert network_of(text) == network


def test_only_a_mapped_address_is_unmapped() -> None:
    given = ("::ffff:192.0.2.1", "::FFFF:192.0.2.1", "::1", "192.0.2.1", "", "::ffff:nonsense")
    assert [unmapped(text) for text in given] == ["192.0.2.1", "192.0.2.1", "::1", "192.0.2.1", "", "::ffff:nonsense"]


def test_a_connection_over_a_socket_for_both_families_has_its_ipv4_address() -> None:
    """So that a proxy is known by the network that is trusted."""
    with stepped_loop() as loop:
        assert client_of(loop, ("::ffff:10.0.0.1", 5000)) == ("10.0.0.1", 5000)
        assert client_of(loop, ("2001:db8::1", 5000)) == ("2001:db8::1", 5000)


def client_of(loop: SteppedLoop, peer: tuple[object, ...]) -> object:
    return Connection(loop, echo, peer=peer).protocol.client


def test_keys_that_worked_are_remembered_and_not_kept() -> None:
    seen = SeenKeys(4)
    seen.note("svc_good", "an organization")
    seen.note("svc_bad", None)
    assert ("svc_good" in seen, "svc_bad" in seen, "svc_other" in seen) == (True, False, False)
    assert (seen.organization_of("svc_good"), seen.organization_of("svc_bad")) == ("an organization", None)
    assert "svc_good" not in repr(seen.__dict__)
    seen.note("svc_good", None)
    assert "svc_good" not in seen


def test_no_more_than_so_many_keys_are_remembered() -> None:
    seen = SeenKeys(4)
    for number in range(100):
        seen.note(f"svc_{number}", "an organization")
        assert len(seen._seen) <= 4
        assert f"svc_{number}" in seen
