"""The choice of the payment gateway: the installation's for live organizations, the test gateway for sandboxes."""

from typing import Protocol

from booking_core.db.engine import Database
from booking_core.payments import ClaimedRefund, RefundResult
from booking_server.adapters.sandbox import SandboxGateway


class Gateway(Protocol):
    """A payment provider. Threads may share it."""

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        """Make a refund, or find out its state. Blocks, and raises for no answer or failure of the provider."""


class Gateways:
    """The gateway of each organization: no other place chooses one.

    Args:
        live: that of live organizations; None where the installation has none.
        database: has the cards of sandboxes.
    """

    def __init__(self, live: Gateway | None, database: Database) -> None:
        self._live = live
        self._test = SandboxGateway(database)

    def of(self, claimed: ClaimedRefund) -> Gateway:
        """Return the gateway that makes a refund."""
        if claimed.is_of_sandbox:
            return self._test
        assert self._live is not None, "without a gateway, refunds are referred to staff"
        return self._live
