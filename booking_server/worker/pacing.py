"""Wakes the delivery loop when the pause of an endpoint with a limit is over."""

from collections.abc import Iterable

from booking_core.base.clock import SECOND
from booking_core.webhooks import ClaimedDelivery


class Pauses:
    """The pauses after the claims of this process, by the loop's clock in seconds.

    Those of other processes are not known here: polling finds what they leave.
    """

    def __init__(self) -> None:
        self._ends_s: dict[str, float] = {}

    def note(self, claimed: Iterable[ClaimedDelivery], *, began_s: float, now_s: float) -> None:
        """Add the pauses after a claim, and drop those that were over when it began."""
        self._ends_s = {endpoint: end_s for endpoint, end_s in self._ends_s.items() if end_s > began_s}
        self._ends_s |= {each.endpoint_id: now_s + each.pause / SECOND for each in claimed if each.pause}

    def wait_s(self, now_s: float, at_most_s: float) -> float:
        """Return the seconds until the first pause is over, at most `at_most_s`."""
        return min([at_most_s, *(max(0.0, end_s - now_s) for end_s in self._ends_s.values())])
