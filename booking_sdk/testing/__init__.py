"""Tools to test an integration: the service in the test's own process, a manual clock, and factories for resources.

    from booking_sdk.testing import FakeBookingAPI

    def test_a_lost_answer_books_once():
        api = FakeBookingAPI()
        departure = api.add_departure(seats=4)
        api.drop_connection_after_commit()
        my_shop.book(api.client(), departure.id)
        assert len(api.bookings) == 1

`FakeBookingAPI` is the service itself, with a database in memory; it comes with `pip install "booking-sdk[testing]"`.
It needs no network, and never sleeps. The other names need only the SDK.
"""

from typing import TYPE_CHECKING, Any

from booking_sdk.testing._requests import FakeRequest
from booking_sdk.testing.clock import ManualClock, on_clock
from booking_sdk.testing.factories import (
    make_booking,
    make_customer,
    make_departure,
    make_event,
    make_experience,
    make_gift_card,
)

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Import the service when a test first uses it."""
    if name != "FakeBookingAPI":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from booking_sdk.testing.fake import FakeBookingAPI
    except ModuleNotFoundError as error:
        message = f'{error}: FakeBookingAPI needs the service, pip install "booking-sdk[testing]"'
        raise ModuleNotFoundError(message, name=error.name) from None
    return FakeBookingAPI
