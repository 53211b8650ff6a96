"""Sentences about the money of a cancelled booking, for whoever cancelled it at a shell."""

from collections.abc import Mapping
from typing import Any

from booking_cli.framework.output import money

_BACK = {
    "refunded": "The payment was returned.",
    "partially_refunded": "A part of the payment was returned.",
    "failed": "No card was charged, so nothing is returned.",
}


def after_cancelling(booking: Mapping[str, Any], refund: str) -> str:
    """Return what an answer of the API lets a client say about the money of a cancelled booking.

    The API does not name the amount that goes back: the guest's mail does, and so does `booking refunds show` for an
    operator.

    Args:
        booking: as the API showed it after the cancellation.
        refund: the refund mode that was asked for, auto or none.
    """
    sentence = _payment(booking, refund)
    card = booking["totals"]["gift_card"]
    return f"{sentence} {money(card)} went back to the gift card." if card["amount_minor"] else sentence


def _payment(booking: Mapping[str, Any], refund: str) -> str:
    payment, total = booking["payment"], booking["totals"]["total"]
    if payment["status"] in _BACK:
        return _BACK[payment["status"]]
    if not total["amount_minor"]:
        return "Nothing else was paid, so nothing is returned."
    if payment["source"] != "stripe":
        return _by_hand(payment, money(total), refund)
    if refund == "none":
        return f"{money(total)} was paid by card; with --refund none nothing is returned now."
    return (
        f"{money(total)} was paid by card; what the organization's refund policy gives back is on its way, and the"
        " guest's mail names the amount. payment.status tells when it was returned."
    )


def _by_hand(payment: Mapping[str, Any], total: str, refund: str) -> str:
    if payment["status"] == "paid" and payment["method"] == "external_paid":
        return f"{total} was paid outside the service: whatever goes back is returned there."
    if payment["status"] == "paid" and refund == "none":
        return f"{total} was paid by hand; with --refund none nothing is returned now."
    if payment["status"] == "paid":
        return f"{total} was paid by hand: what the refund policy gives back is returned by hand, and staff was told."
    return "It was not paid by card and not wholly paid: what was taken by hand is returned by hand."
