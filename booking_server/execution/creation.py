"""A request to create a booking on its way through the lanes of bookings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from booking_core.base.context import Caller
from booking_core.bookings import CreateRequest
from booking_server.execution.authenticator import Credentials


@dataclass(slots=True)
class Creation:
    """A booking that waits for its batch."""

    credentials: Credentials
    prepare: Callable[[Caller], CreateRequest]
    """Makes the booking of a request, after the checks that come after its key."""
    size: int = 0
    """The bytes of the request's body."""
    traceparent: str | None = None
    """The trace context (W3C) of the request."""
    caller: Caller | Exception | None = None
    """The caller or its refusal; none while its key is not looked up."""
    create: CreateRequest | None = None
    """The prepared booking; none before its first batch."""
    refusal: Exception | None = None
    """The refusal of a request that becomes no booking."""
    tries: int = 0
    locked_since_s: float = 0.0
    """The time of its handing over to the lane that may wait."""

    def make(self) -> None:
        """Prepare the booking of the caller, or the refusal."""
        try:
            if not isinstance(self.caller, Caller):
                raise self.caller or AssertionError("a booking without a caller")
            self.create = self.made_for(self.caller)
        except Exception as error:  # noqa: BLE001 - the error belongs to this one request
            self.refusal = error

    def made_for(self, caller: Caller) -> CreateRequest:
        """Return the booking of a caller, or raise the refusal."""
        create = self.prepare(caller)
        return replace(create, traceparent=self.traceparent) if self.traceparent else create
