"""Holds whose seats the bookings of a batch take over.

The rows of the holds are locked before their departures, so that no hold is released or taken over meanwhile. The seats
that are held on such a departure are counted at one instant for all requests of the batch: a hold that was counted must
not have expired when it is subtracted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from booking_core.catalogue import holds
from booking_core.catalogue.holds import Hold, HoldKey
from booking_core.db.engine import Tx


@dataclass(slots=True)
class HeldSeats:
    """The held seats of a departure, of which bookings take some over."""

    others: int
    """Seats of live holds that no request of the batch names."""
    unused: dict[str, Hold]
    """Live holds that requests of the batch name, and that no booking has taken over."""

    def without(self, hold_id: str | None) -> int:
        """Return the seats that are held by holds other than this one."""
        return self.others + sum(hold.seats for hold in self.unused.values() if hold.id != hold_id)


@dataclass(slots=True)
class TakeOvers:
    """The holds that the requests of a batch name; empty for most batches."""

    at: int = 0
    """The instant at which they are live or not."""
    locked: Mapping[HoldKey, Hold] = field(default_factory=dict)
    """Holds that this transaction has locked, as they were before the batch."""
    locked_by_others: Collection[HoldKey] = ()
    """Holds that exist, and that another transaction has locked."""
    held: dict[tuple[str, str], HeldSeats] = field(default_factory=dict)
    """The held seats by departure, of departures whose holds are taken over."""
    booked: set[HoldKey] = field(default_factory=set)
    """Holds that a booking of the batch has taken over."""

    def find(self, key: HoldKey) -> Hold | None:
        """Return a hold as the bookings before have left it."""
        hold = self.locked.get(key)
        return hold._replace(booking_id="") if hold and key in self.booked else hold

    def book(self, key: HoldKey, departure_key: tuple[str, str]) -> None:
        """Take a hold over."""
        self.booked.add(key)
        del self.held[departure_key].unused[key[1]]


def count_held(
    tx: Tx, locked: Mapping[HoldKey, Hold], departures: Iterable[tuple[str, str]], at: int
) -> dict[tuple[str, str], HeldSeats]:
    """Count the held seats of those of the locked departures that a locked and live hold is of."""
    named: dict[tuple[str, str], dict[str, Hold]] = {}
    known = set(departures)
    for (organization_id, hold_id), hold in locked.items():
        departure_key = organization_id, hold.departure_id
        if departure_key in known and holds.is_live(hold, at):
            named.setdefault(departure_key, {})[hold_id] = hold
    return {key: HeldSeats(holds.seats_held_by_others(tx, *key, own=own, at=at), own) for key, own in named.items()}
