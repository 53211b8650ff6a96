"""The pace of deliveries to an endpoint with a limit (`max_per_second`, decisions/0064).

A claim takes at most `burst` deliveries for such an endpoint, of whatever kind, and nothing more is claimed for it, by
any worker, until the `pause` after it is over: no second holds more claims than the limit allows, counted from any
instant. The end of the pause is written with the claim, into the cursor that the claim has locked.
"""

from collections.abc import Iterable
from typing import Protocol

CLAIMS_PER_SECOND = 10
"""At most so many claims serve an endpoint in a second: up to this limit they take one delivery each."""
WINDOW_US = 1_050_000
"""A second, and what the ways from two claims to their requests may differ by."""


class Claimed(Protocol):
    """A claimed delivery of an endpoint."""

    @property
    def endpoint_id(self) -> str: ...
    @property
    def pause(self) -> int: ...


def burst(max_per_second: int) -> int:
    """Return the number of deliveries that one claim may take."""
    return -(-max_per_second // CLAIMS_PER_SECOND)


def pause(max_per_second: int) -> int:
    """Return the microseconds after a claim in which nothing more is claimed.

    Bursts are not divided: a limit of 15 is seven claims of two.
    """
    claims = max_per_second // burst(max_per_second)
    return -(-WINDOW_US // claims)


def ends(at: int, claimed: Iterable[Claimed]) -> dict[str, int]:
    """Return by endpoint id the end of the pause after a claim at that instant, of the endpoints that have a limit.

    An endpoint of which nothing was claimed has none: its events may all wait for others about the same resource.
    """
    return {each.endpoint_id: at + each.pause for each in claimed if each.pause}
