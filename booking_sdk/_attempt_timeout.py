"""The timeout of one attempt, shared between its phases: waiting for a connection, connecting, writing, reading."""

import time
from typing import Any

_SHORTEST_S = 0.001
"""The shortest timeout of a phase: sockets read 0 as an error, or as no timeout at all."""


class AttemptTimedOut(Exception):
    """The attempt took longer than its timeout, although data kept arriving."""


class PhaseTimeout(float):
    """The timeout of a phase in seconds. It also knows when the attempt ends."""

    ends_at: float

    def remaining(self) -> float:
        """Return the seconds that remain, at most this timeout.

        Raises:
            AttemptTimedOut: no time remains.
        """
        remaining = self.ends_at - time.monotonic()
        if remaining <= 0:
            raise AttemptTimedOut
        return min(self, remaining)


class AttemptTimeout(dict[str, float]):
    """The `timeout` extension of an httpx request. httpx looks up each phase when the phase begins.

    A phase gets at most the remaining time of the attempt, so the phases together cannot exceed it. The phase that was
    looked up last shows the progress of the attempt.
    """

    def __init__(self, connect_s: float, total_s: float) -> None:
        super().__init__(connect=connect_s, read=total_s, write=total_s, pool=total_s)
        self.total_s: float = total_s
        self.ends_at: float = time.monotonic() + total_s
        self._phase: str | None = None

    def get(self, phase: str, default: Any = None) -> Any:
        """Return the timeout of a phase, such as `read`, in seconds."""
        seconds = super().get(phase)
        if seconds is None:
            return default
        self._phase = phase
        granted = PhaseTimeout(max(_SHORTEST_S, min(seconds, self.ends_at - time.monotonic())))
        granted.ends_at = self.ends_at
        return granted

    @property
    def may_have_sent(self) -> bool:
        """Return True when part of the request may have been sent. Always True for a client that reads no timeouts."""
        return self._phase not in ("pool", "connect")

    def check(self) -> None:
        """Raise AttemptTimedOut when no time remains."""
        if time.monotonic() > self.ends_at:
            raise AttemptTimedOut
