"""The storefront: seats held during a checkout, the checkout, its payment, and abandoned checkouts."""

from booking_core.bookings.storefront.holds import create_hold, delete_hold, get_hold
from booking_core.bookings.storefront.service import (
    OLD_HOLDS,
    Checkout,
    check_out,
    hold,
    organization_of_hold,
    pay,
    purge_holds,
    release,
)

__all__ = [
    "OLD_HOLDS",
    "Checkout",
    "check_out",
    "create_hold",
    "delete_hold",
    "get_hold",
    "hold",
    "organization_of_hold",
    "pay",
    "purge_holds",
    "release",
]
