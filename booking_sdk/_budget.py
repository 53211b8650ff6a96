"""The time that one attempt may take, counted down as the transport asks for its parts."""

import time
from typing import Any

_SHORTEST_S = 0.001
"""A socket takes 0 for an error or for ever."""


class TooLate(Exception):
    """The attempt took longer than it may, although something arrived all the time."""


class Seconds(float):
    """A timeout that also says when the attempt ends, for reads that come one behind the other."""

    ends_at: float

    def left(self) -> float:
        """Return the seconds that are left, at most this timeout.

        Raises:
            TooLate: none are left.
        """
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TooLate
        return min(self, left)


class Budget(dict[str, float]):
    """The `timeout` extension of a request: httpx's transport asks it for each part of an attempt when that begins.

    Each part gets no more than what is left of the whole, so that a deadline is not passed once for every part. The
    part that was asked for last says how far the attempt has come.
    """

    def __init__(self, connect_s: float, total_s: float) -> None:
        super().__init__(connect=connect_s, read=total_s, write=total_s, pool=total_s)
        self.total_s: float = total_s
        self.ends_at: float = time.monotonic() + total_s
        self._part: str | None = None

    def get(self, part: str, default: Any = None) -> Any:
        """Return the seconds for a part, such as `read`."""
        seconds = super().get(part)
        if seconds is None:
            return default
        self._part = part
        granted = Seconds(max(_SHORTEST_S, min(seconds, self.ends_at - time.monotonic())))
        granted.ends_at = self.ends_at
        return granted

    @property
    def may_have_sent(self) -> bool:
        """Return whether something of the request may have left; true for a transport that asks for no timeouts."""
        return self._part not in ("pool", "connect")

    def check(self) -> None:
        """Raise TooLate when the time is over."""
        if time.monotonic() > self.ends_at:
            raise TooLate
