"""Departures: availability, and the changes of staff (close, reopen, set the number of seats).

`announcing` is the worker's part: it publishes departures that have changed. The package also exports the rules that
bookings share with availability: the two always agree. A departure is cancelled in `bookings`, because its bookings are
cancelled with it.
"""

from booking_core.catalogue.departures.announcing import TOUCHED, announce
from booking_core.catalogue.departures.rules import DepartureRow, closes_at, ends_at, seats_available, window
from booking_core.catalogue.departures.service import (
    close,
    find_available,
    find_between,
    find_start_times,
    get,
    lock,
    organizations_of,
    render_available,
    reopen,
    set_seats,
)
from booking_core.catalogue.departures.store import SEATS_HELD, hold_is_live, select_seats_held
