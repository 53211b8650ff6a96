"""SQL statements of bookings.

`rows` has the bookings themselves, `departures` and `references` the rows that a booking locks, `of_departures` the
bookings of a departure, `lists` the lists and searches, `due` the periodic jobs.
"""

from booking_core.bookings.store.departures import (
    BatchContext,
    BookingContext,
    DepartureDetails,
    cancelling_reason,
    contexts_query,
    departure_details,
    departures_query,
    existing,
    find_offered,
    get_context,
    lock_departures,
    read_departure,
)
from booking_core.bookings.store.of_departures import (
    count_by_status,
    count_live,
    count_participants,
    find_live,
    lock_live,
)
from booking_core.bookings.store.references import references_query, taken_query
from booking_core.bookings.store.rows import (
    CANCEL_DEPARTURE,
    COLUMNS,
    TAKE_SEATS,
    BookingDetails,
    BookingWithPayment,
    get_details,
    get_many,
    get_many_with_payment,
    get_with_payment,
    parse_with_payment,
)
