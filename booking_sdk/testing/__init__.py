"""Tools to test an integration: an in-memory fake of the service, a manual clock, and factories for resources.

    from booking_sdk.testing import FakeBookingAPI

    def test_a_lost_answer_books_once():
        api = FakeBookingAPI()
        departure = api.add_departure(seats=4)
        api.drop_connection_after_commit()
        my_shop.book(api.client(), departure.id)
        assert len(api.bookings) == 1

The fake passes the same contract tests as the service. It needs no network, no database and no event loop, and never
sleeps.
"""

from booking_sdk.testing._http import FakeRequest
from booking_sdk.testing.clock import ManualClock, on_clock
from booking_sdk.testing.factories import (
    make_booking,
    make_customer,
    make_departure,
    make_event,
    make_experience,
    make_gift_card,
)
from booking_sdk.testing.fake import FakeBookingAPI

__all__ = [
    "FakeBookingAPI",
    "FakeRequest",
    "ManualClock",
    "make_booking",
    "make_customer",
    "make_departure",
    "make_event",
    "make_experience",
    "make_gift_card",
    "on_clock",
]
