"""The slots of one process: how many delivery attempts are in flight, and how many more it may claim."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from booking_core.webhooks import ClaimedDelivery

SLOTS = 512
"""Attempts in flight at once, in one process."""
CLAIM_MAX = 128
"""The most that one statement claims. A good part of its cost, and of the cost of recording results together, is the
same for one row as for a hundred; with more than this, bookings on SQLite, which has one writer, would be slowed
down."""
SLOW_SLOTS = SLOTS // 2
"""The slots for endpoints whose last attempt timed out: however many hang, half of the slots stay free for the
others."""
PER_ENDPOINT = 16
FREE_PER_ENDPOINT = 4
"""An endpoint has at most one attempt in flight for this many free slots. The fewer are free, the less an endpoint may
add to its own, so that many endpoints that hang, and are not known to be slow yet, never hold all of them."""
PER_ORGANIZATION = 10 * PER_ENDPOINT
"""Enough for each endpoint of an organization: with less, nine that hang would keep the tenth waiting."""


class ClaimLimits(NamedTuple):
    """The most that one claim may take, for the arguments of `webhooks.claim`."""

    free: int
    in_flight: Mapping[str, int]
    slow_free: int
    per_endpoint: int
    per_organization: int = PER_ORGANIZATION


@dataclass(slots=True)
class Slots:
    """The attempts in flight, by endpoint."""

    by_endpoint: Counter[str] = field(default_factory=Counter)
    slow: int = 0
    """Attempts for endpoints whose last attempt timed out."""

    @property
    def free(self) -> int:
        return SLOTS - self.by_endpoint.total()

    def limits(self, *, full: Sequence[str] = ()) -> ClaimLimits:
        """Return the limits of the next claim: half of the free slots, so that the following one sees what is left.

        Args:
            full: endpoints that are to get nothing.
        """
        free = self.free
        return ClaimLimits(
            free=min((free + 1) // 2, CLAIM_MAX),
            in_flight={**self.by_endpoint, **dict.fromkeys(full, PER_ENDPOINT)},
            slow_free=max(0, SLOW_SLOTS - self.slow),
            per_endpoint=max(1, min(PER_ENDPOINT, free // FREE_PER_ENDPOINT)),
        )

    def take(self, claimed: ClaimedDelivery) -> None:
        self.by_endpoint[claimed.endpoint_id] += 1
        self.slow += claimed.timed_out_before

    def release(self, claimed: ClaimedDelivery) -> None:
        self.by_endpoint[claimed.endpoint_id] -= 1
        if not self.by_endpoint[claimed.endpoint_id]:
            del self.by_endpoint[claimed.endpoint_id]  # or the counter grows with every endpoint ever served
        self.slow -= claimed.timed_out_before
