"""Clients without a key, identified by the network that one of them has."""

import threading
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

_NO_ADDRESS = "unknown"
_REMEMBERED_MAX = 20_000
_HOST_BITS = 64


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def unmapped(text: str) -> str:
    """Return an IPv4-mapped IPv6 address as the IPv4 address that it is, and any other text as it stands."""
    return str(_parsed(text) or text) if text.lower().startswith("::ffff:") else text


@lru_cache(maxsize=4096)
def network_of(text: str) -> str:
    """Return what counts as one client (decision K5): an IPv4 address, or the /64 of an IPv6 address.

    A provider hands each customer at least a /64, and with it 2^64 addresses to call from. What is no address, as a
    proxy may pass on, counts as one client.
    """
    address = _parsed(text)
    if address is None:
        return _NO_ADDRESS
    if isinstance(address, IPv4Address):
        return str(address)
    return f"{IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"


class SeenKeys:
    """API keys that were valid when this process last looked, the latest ones, as numbers that tell nothing of them.

    Whether a key is valid now is always asked of the database; this says only whether asking is worth a statement.
    """

    def __init__(self, size: int = _REMEMBERED_MAX) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[str, str]] = {}
        """The organization and the id of each key."""

    def __contains__(self, key: str) -> bool:
        return hash(key) in self._seen

    def organization_of(self, key: str) -> str | None:
        """Return the organization that the key belonged to; none for a key that was not seen."""
        found = self._seen.get(hash(key))
        return found[0] if found else None

    def id_of(self, key: str) -> str | None:
        """Return the id of the key; none for a key that was not seen."""
        found = self._seen.get(hash(key))
        return found[1] if found else None

    def note(self, key: str, organization_id: str | None, key_id: str = "") -> None:
        """Remember a valid key, its id and its organization; forget one that is not valid, which has none."""
        number = hash(key)
        if organization_id is None:
            self._seen.pop(number, None)
        elif number not in self._seen:
            with self._lock:
                if len(self._seen) >= self._size:
                    self._seen = dict(list(self._seen.items())[self._size // 2 :])
                self._seen[number] = organization_id, key_id
