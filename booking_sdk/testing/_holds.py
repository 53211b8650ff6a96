"""The holds of the fake."""

from datetime import datetime
from typing import Any

from booking_core.models.bookings import BookingOrder
from booking_sdk.testing._http import Refusal, conflict, named
from booking_sdk.testing.clock import ManualClock

Row = dict[str, Any]


class Holds:
    """The holds of one organization, by their ids."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.rows: dict[str, Row] = {}

    def seats_held(self, departure_id: str, but: str | None = None) -> int:
        """Return the seats of a departure that live holds other than one keep."""
        return sum(row["seats"] for row in self.live() if row["departure_id"] == departure_id and row["id"] != but)

    def next_end(self, departure_id: str) -> datetime | None:
        """Return the instant at which the next live hold of a departure ends."""
        ends = (row["expires_at"] for row in self.live() if row["departure_id"] == departure_id)
        return min(map(datetime.fromisoformat, ends), default=None)

    def live(self) -> list[Row]:
        """Return the holds that keep their seats."""
        return [row for row in self.rows.values() if self.status(row) == "live"]

    def status(self, row: Row) -> str:
        """Return the present status of a hold."""
        is_over = datetime.fromisoformat(row["expires_at"]) <= self._clock.now
        return "expired" if row["status"] == "live" and is_over else str(row["status"])

    def release(self, row: Row) -> None:
        """Release a hold; one that is over stays as it is."""
        if row["status"] == "booked":
            raise conflict("hold_booked", "A booking has taken over the hold.")
        if self.status(row) == "live":
            row["status"] = "released"

    def require_usable(self, order: BookingOrder) -> None:
        """Check the hold that a booking takes over, if it names one."""
        if order.hold_id is None:
            return
        row = self.rows.get(order.hold_id)
        if row is None:
            raise named(404, "not_found", "hold_id", "There is no such hold.", "unknown_hold")
        if row["departure_id"] != order.experience_date_id:
            raise _refusal("hold_of_another_departure")
        if self.status(row) != "live":
            raise _refusal(f"hold_{self.status(row)}")

    def take_over(self, hold_id: str | None, booking_id: str) -> None:
        """End a hold, whose seats a booking has from now on."""
        if hold_id is not None:
            self.rows[hold_id] |= {"status": "booked", "booking_id": booking_id}


def _refusal(reason: str) -> Refusal:
    return named(409, "conflict", "hold_id", "The hold cannot be taken over.", reason)
