"""The storefront's side of booking: seats held during a checkout, the checkout, the payment, and what is abandoned."""

from booking_core.storefront.service import Checkout, abandon_due, check_out, hold, owner, pay, purge_holds, release

__all__ = ["Checkout", "abandon_due", "check_out", "hold", "owner", "pay", "purge_holds", "release"]
