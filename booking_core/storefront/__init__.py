"""The storefront: seats held during a checkout, the checkout, its payment, and abandoned checkouts."""

from booking_core.storefront.service import (
    Checkout,
    abandon_due,
    check_out,
    hold,
    organization_of_hold,
    pay,
    purge_holds,
    release,
)

__all__ = ["Checkout", "abandon_due", "check_out", "hold", "organization_of_hold", "pay", "purge_holds", "release"]
