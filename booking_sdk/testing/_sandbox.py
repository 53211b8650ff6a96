"""The clock of the fake, moved as that of a sandbox, and the mails to its guests."""

from datetime import datetime, timedelta
from typing import Any

from booking_core.models.limits import SANDBOX_CLOCK_AHEAD_S_MAX
from booking_core.models.sandbox import SandboxClock, SandboxClockAdvance, SandboxDue, SandboxMail
from booking_sdk.testing._http import malformed, unprocessable
from booking_sdk.testing._store import Row, Store
from booking_sdk.testing.factories import new_id, resource_fields

_MAILS = {
    "booking.confirmed": ("booking_confirmation_mail", "Your booking {}"),
    "booking.cancelled": ("booking_cancellation_mail", "Your booking {} is cancelled"),
    "booking.rescheduled": ("booking_rescheduling_mail", "Your booking {} was moved"),
}
"""The kind and the subject of the mail to the guest by the type of the event."""


class Sandbox:
    """The clock and the mails. Nothing stays due: the fake does everything at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offset_s = 0
        self.mails: dict[str, Row] = {}
        store.on_publish.append(self._capture)

    def clock(self) -> Row:
        """Return the clock."""
        due = resource_fields(SandboxDue, **dict.fromkeys(SandboxDue.model_fields, 0))
        fields: dict[str, Any] = {"now": self._store.now, "offset_seconds": self._offset_s, "status": "ready"}
        return resource_fields(SandboxClock, **fields, due=due)

    def advance(self, request: SandboxClockAdvance) -> Row:
        """Move the clock, by the rules of the service."""
        seconds = request.seconds if request.to is None else self._seconds_to(request.to)
        assert seconds is not None, "the request has one of the two"
        if seconds < 0:
            raise unprocessable("to", "The clock of a sandbox never goes back.", "in_the_past")
        if self._offset_s + seconds > SANDBOX_CLOCK_AHEAD_S_MAX:
            field = "seconds" if request.to is None else "to"
            message = "The clock of a sandbox is never more than 731 days ahead of the real time."
            raise unprocessable(field, message, "too_far_ahead")
        self._offset_s += int(seconds)
        self._store.clock.advance(seconds)
        return self.clock()

    def _seconds_to(self, text: str) -> float:
        try:
            to = datetime.fromisoformat(text)
        except ValueError:
            raise malformed("to", "must be an ISO 8601 timestamp") from None
        to = to if to.tzinfo else to.replace(tzinfo=self._store.zone)
        return (to - self._store.clock.now) / timedelta(seconds=1)

    def _capture(self, event: Row) -> None:
        """Keep the mail to the guest that follows an event."""
        if event["type"] not in _MAILS:
            return
        kind, subject = _MAILS[event["type"]]
        booking = event["data"]["object"]
        row = resource_fields(
            SandboxMail,
            id=new_id(),
            kind=kind,
            booking_id=booking["id"],
            recipient=booking["customer"]["email"],
            subject=subject.format(booking["booking_number"]),
            text=f"{subject.format(booking['booking_number'])}: {booking['experience']['title']}",
            created_at=event["created_at"],
        )
        self._store.keep(self.mails, row)
