"""Results that cannot be recorded, and the endpoints they belong to."""

import logging
from collections import Counter
from collections.abc import Sequence

from booking_core.base.clock import MINUTE
from booking_core.base.errors import BookingError
from booking_core.webhooks import DeliveryResult

log = logging.getLogger("booking.worker")

TRIES = 3
"""A lock or a timeout may pass: a result is recorded again in so many turns."""
APART = MINUTE
"""For this time the results of an endpoint with a parked one are recorded one by one, and nothing more is claimed for
it: its next results would undo those of others, again and again."""

Endpoint = tuple[str, str]
"""(organization id, endpoint id)."""


def endpoint_of(result: DeliveryResult) -> Endpoint:
    """Return the endpoint of a result."""
    return result.claimed.organization_id, result.claimed.endpoint_id


class Parking:
    """Decides about results that could not be recorded by themselves.

    A parked result is forgotten: its lease expires, and the delivery is rescued, or put off when that fails too.
    """

    def __init__(self) -> None:
        self.count = 0
        """The results parked since the process began."""
        self._failures: Counter[str] = Counter()
        self._apart: dict[Endpoint, int] = {}

    def is_parked(self, result: DeliveryResult, error: Exception) -> bool:
        """Return whether the result is given up, and not kept for the next turn."""
        attempt_id = result.claimed.attempt_id
        self._failures[attempt_id] += 1
        return not isinstance(error, BookingError) or self._failures[attempt_id] >= TRIES

    def park(self, result: DeliveryResult, error: Exception, now: int) -> None:
        """Log and count a result that is given up."""
        claimed = result.claimed
        self.forget(result)
        self.count += 1
        self._apart[claimed.organization_id, claimed.endpoint_id] = now + APART
        log.error(
            "the result of attempt %s of delivery %s to endpoint %s cannot be recorded (parked so far: %d)",
            claimed.attempt_id,
            claimed.delivery_id,
            claimed.endpoint_id,
            self.count,
            exc_info=error,
        )

    def forget(self, result: DeliveryResult) -> None:
        """Drop what is known of a result that was recorded."""
        self._failures.pop(result.claimed.attempt_id, None)

    def split(self, results: Sequence[DeliveryResult]) -> tuple[list[DeliveryResult], list[DeliveryResult]]:
        """Return the results to be recorded together, and those to be recorded one by one.

        Those of an endpoint stay in one of the two, in their order: a later event must not count as attempted before an
        earlier one about the same resource.
        """
        if not self._failures and not self._apart:
            return list(results), []
        failed = {endpoint_of(each) for each in results if each.claimed.attempt_id in self._failures}
        together: list[DeliveryResult] = []
        apart: list[DeliveryResult] = []
        for each in results:
            endpoint = endpoint_of(each)
            (apart if endpoint in self._apart or endpoint in failed else together).append(each)
        return together, apart

    def endpoints(self, now: int) -> list[str]:
        """Return the ids of the endpoints for which nothing is claimed now."""
        self._apart = {endpoint: until for endpoint, until in self._apart.items() if now < until <= now + APART}
        return [endpoint_id for _, endpoint_id in self._apart]
