"""Announcements of departures in the fake, as the worker of the service makes them."""

from datetime import datetime, timedelta
from typing import NamedTuple

from booking_sdk.testing._store import Row, Store, shown

WINDOW = timedelta(seconds=5)
"""A departure has at most one event in this time."""
TYPE = "departure.updated"
_ABOUT_SEATS = frozenset({"booking.created", "booking.cancelled", "booking.rescheduled", "booking.updated"})


class _Announced(NamedTuple):
    at: datetime
    departure: Row


class Announcements:
    """Publishes departures that bookings, holds or staff have changed, while an endpoint subscribes to the type."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[str, datetime] = {}
        self._last: dict[str, _Announced] = {}
        store.on_publish.append(self._follow)

    def touch(self, departure_id: str, at: datetime | None = None) -> None:
        """Look at a departure now, or at an instant to come unless it is looked at before."""
        wanted = at or self._store.clock.now
        self._due[departure_id] = min(wanted, self._due.get(departure_id, wanted))

    def _follow(self, event: Row) -> None:
        if event["type"] in _ABOUT_SEATS:
            data = event["data"]
            for departure in (data["object"]["departure"], data.get("previous_departure")):
                if departure is not None and departure["id"] in self._store.departures:
                    self.touch(departure["id"])

    def announce(self, *, is_wanted: bool) -> None:
        """Publish the departures that are due and differ from their last event; without a subscription, forget them."""
        now = self._store.clock.now
        due = [departure_id for departure_id, at in self._due.items() if at <= now]
        for departure_id in due if is_wanted else list(self._due):
            del self._due[departure_id]
            if is_wanted:
                self._announce(departure_id, now)

    def _announce(self, departure_id: str, now: datetime) -> None:
        last = self._last.get(departure_id)
        if last and now - last.at < WINDOW:
            self.touch(departure_id, last.at + WINDOW)
            return
        held_until = self._store.holds.next_end(departure_id)
        if held_until:
            self.touch(departure_id, held_until)
        departure = shown(self._store.seats_shown(self._store.departures[departure_id]))
        changes = None if last is None else _changes(last.departure, departure)
        if changes is None or changes:
            self._last[departure_id] = _Announced(now, departure)
            self._store.publish(TYPE, departure, changes=changes)


def _changes(before: Row, after: Row) -> Row:
    return {name: before[name] for name, value in after.items() if name != "updated_at" and before[name] != value}
