"""Bound the requests that call Stripe: so many at once for each organization.

A request has its place before it writes anything. Otherwise those that come together would write more bookings than may
wait for Stripe: their seats would be kept for guests who cannot pay yet, and each write is in the way of others.

A call holds neither a thread nor a connection of the database, only a task of the event loop. So a Stripe that hangs
for one organization holds that organization's own requests, and no others.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

from booking_core.base.context import Organization
from booking_core.base.errors import Unavailable
from booking_server.adapters.sandbox import SandboxIntents
from booking_server.adapters.stripe_intents import Intent, IntentRequest, StripeIntents

OF_ONE_MAX = 16
"""Calls at once for one organization. Stripe answers in half a second: thirty checkouts a second."""
IN_FLIGHT_MAX = 1_024
"""Calls at once altogether, which bounds the connections of a process."""
_RETRY_AFTER_S = 2


class PaymentCalls:
    """The requests of this process that may call Stripe, and their calls."""

    def __init__(self, intents: StripeIntents, *, of_one_max: int = OF_ONE_MAX) -> None:
        self._intents = intents
        self._of_sandboxes = SandboxIntents()
        self._of_one_max = of_one_max
        self._in_flight: Counter[str] = Counter()

    async def create(self, request: IntentRequest) -> Intent:
        """Make an intent, for a request that has a place.

        Raises:
            IntentRefused: Stripe will never make it.
            Unavailable: Stripe does not answer.
        """
        intents = self._of_sandboxes if request.api_key is None else self._intents
        return await intents.create(request)

    @contextlib.contextmanager
    def place(self, organization: Organization) -> Iterator[None]:
        """Count a request that may call Stripe; a sandbox never does.

        Raises:
            Unavailable: too many requests of the organization, or of all, are under way already.
        """
        if organization.is_sandbox:
            yield
            return
        organization_id = organization.id
        if self._in_flight[organization_id] >= self._of_one_max or self._in_flight.total() >= IN_FLIGHT_MAX:
            message = "Too many checkouts wait for Stripe at the moment; send the same request again."
            # As a queue refuses: the admission repeats it to the next requests while the places are taken.
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S, reason="queue")
        self._in_flight[organization_id] += 1
        try:
            yield
        finally:
            self._in_flight[organization_id] -= 1
            if not self._in_flight[organization_id]:
                del self._in_flight[organization_id]

    async def open(self) -> None:
        """Prepare for calls, as the first one does otherwise."""
        await self._intents.open()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._intents.aclose()
