"""Bound the calls of Stripe that requests wait for: so many at once for each organization.

A call holds neither a thread nor a connection of the database, only a task of the event loop. So a Stripe that hangs
for one organization holds that organization's own requests, and no others.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

from booking_core.errors import Unavailable
from booking_server.adapters.sandbox import SandboxIntents
from booking_server.adapters.stripe_intents import Intent, IntentRequest, StripeIntents

OF_ONE_MAX = 16
"""Calls at once for one organization. Stripe answers in half a second: thirty checkouts a second."""
IN_FLIGHT_MAX = 1_024
"""Calls at once altogether, which bounds the connections of a process."""
_RETRY_AFTER_S = 2


class PaymentCalls:
    """The calls of Stripe that requests of this process wait for."""

    def __init__(self, intents: StripeIntents, *, of_one_max: int = OF_ONE_MAX) -> None:
        self._intents = intents
        self._of_sandboxes = SandboxIntents()
        self._of_one_max = of_one_max
        self._in_flight: Counter[str] = Counter()

    async def create(self, request: IntentRequest) -> Intent:
        """Make an intent.

        Raises:
            IntentRefused: Stripe will never make it.
            Unavailable: Stripe does not answer, or too many requests of the organization wait for it already.
        """
        if request.api_key is None:
            return await self._of_sandboxes.create(request)
        with self._place(request.organization_id):
            return await self._intents.create(request)

    def require_place(self, organization_id: str) -> None:
        """Refuse a call that would be too many, also before anything is written for it.

        Raises:
            Unavailable: too many requests of the organization, or of all, wait for Stripe already.
        """
        if self._in_flight.get(organization_id, 0) >= self._of_one_max or self._in_flight.total() >= IN_FLIGHT_MAX:
            message = "Too many checkouts wait for Stripe at the moment; send the same request again."
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S, reason="payment_gateway")

    @contextlib.contextmanager
    def _place(self, organization_id: str) -> Iterator[None]:
        self.require_place(organization_id)
        self._in_flight[organization_id] += 1
        try:
            yield
        finally:
            self._in_flight[organization_id] -= 1
            if not self._in_flight[organization_id]:
                del self._in_flight[organization_id]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._intents.aclose()
