"""Describe the refund of a booking that was cancelled over HTTP."""

from collections.abc import Mapping
from typing import Any

from booking_cli.framework.formatting import money

_BACK = {
    "refunded": "The payment was refunded.",
    "partially_refunded": "The payment was partly refunded.",
    "failed": "No card was charged, so there is no refund.",
}


def after_cancelling(booking: Mapping[str, Any], refund: str) -> str:
    """Return a sentence about the refund of a cancelled booking.

    The API does not return the refunded amount. The guest's mail has it, and `booking refunds show` for operators.

    Args:
        booking: the API's response to the cancellation.
        refund: the requested mode, auto or none.
    """
    sentence = _payment(booking, refund)
    card = booking["totals"]["gift_card"]
    return f"{sentence} {money(card)} was returned to the gift card." if card["amount_minor"] else sentence


def _payment(booking: Mapping[str, Any], refund: str) -> str:
    payment, total = booking["payment"], booking["totals"]["total"]
    if payment["status"] in _BACK:
        return _BACK[payment["status"]] + _rest(payment, refund)
    if not total["amount_minor"]:
        return "Nothing else was paid, so there is no refund."
    if payment["source"] != "stripe":
        return _by_hand(payment, money(total), refund)
    if refund == "none":
        return f"{money(total)} was paid by card; with --refund none it is not refunded."
    return (
        f"{money(total)} was paid by card. The refund by the organization's policy is on its way; the guest's mail has"
        " its amount, and payment.status changes when it is done."
    )


def _rest(payment: Mapping[str, Any], refund: str) -> str:
    """Return a sentence about the rest of a card payment, a part of which was refunded before the cancellation or by
    it."""
    if refund == "none" or (payment["source"], payment["status"]) != ("stripe", "partially_refunded"):
        return ""
    return " What the organization's policy refunds of the rest is in the guest's mail."


def _by_hand(payment: Mapping[str, Any], total: str, refund: str) -> str:
    if payment["status"] == "paid" and payment["method"] == "external_paid":
        return f"{total} was paid outside the service, and is refunded there."
    if payment["status"] == "paid" and refund == "none":
        return f"{total} was paid by hand; with --refund none it is not refunded."
    if payment["status"] == "paid":
        return f"{total} was paid by hand. Staff was notified to pay the refund by the organization's policy."
    return "It was not paid by card and not fully paid; payments made by hand are refunded by hand."
