"""Look-ups of keys that several requests share.

A look-up that began after a request had arrived says of its key what one of its own would say: whatever was committed
before the request was sent, a revocation included, is seen by both. So the requests that wait while a key is looked up
need no statement of their own, in whichever batch they are.
"""

from booking_core.base import tokens
from booking_core.base.context import Caller

SHARED_S = 0.1
"""Seconds for which a look-up is shared. A request that waits for longer is looked up when its turn comes."""
_REMEMBERED_MAX = 20_000


class SharedLookUps:
    """The latest look-up of each key that was valid, by the hash of the key. Used by several threads."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, Caller]] = {}
        self._latest_s = float("-inf")

    def find(self, key: str, arrived_s: float, now_s: float) -> Caller | None:
        """Return the caller by a look-up that began after the request had arrived; None without one.

        Args:
            arrived_s: when the request had arrived, and `now_s` the present, by the clock of `note`.
        """
        if arrived_s > self._latest_s:  # the usual case while no request waits, for which nothing is hashed
            return None
        begun_s, caller = self._found.get(tokens.hash_api_key(key), _NONE)
        return caller if begun_s >= max(arrived_s, now_s - SHARED_S) else None

    def note(self, key: str, caller: Caller, begun_s: float) -> None:
        """Remember the caller that was found by a look-up which began then."""
        if len(self._found) >= _REMEMBERED_MAX:
            self._found = {}
        self._found[tokens.hash_api_key(key)] = begun_s, caller
        self._latest_s = max(begun_s, self._latest_s)


_NONE: tuple[float, None] = (float("-inf"), None)
