"""The effect of a change of a booking, as the API presents it: a move to another departure, or another party.

A preview and the change itself decide by the same checks, and present their result in the same shape. The preview
locks nothing and lists every refusal; the change raises the first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, InsufficientCapacity
from booking_core.bookings import queries, rules
from booking_core.bookings.store import ShownBooking
from booking_core.models.bookings import ChangeSettlement

Check = Callable[[], None]
"""A check that raises its refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedMoney:
    """The effect of a change on the money of a booking, in minor units of its currency."""

    settlement: ChangeSettlement
    price_difference: int = 0
    """The new price less the former one, after the discount."""
    list_price: int | None = None
    """The price of the same lines by today's prices; None where one of them is not offered any more."""
    refund: int = 0
    gift_card_refund: int = 0
    kept: int = 0
    balance_due: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A booking after a change, or before a change that is refused."""

    booking: ShownBooking
    seats: int
    money: ChangedMoney | None
    refusals: tuple[BookingError, ...] = ()


def require(checks: Iterable[Check]) -> None:
    """Run the checks in their order.

    Raises:
        BookingError: the first refusal.
    """
    for check in checks:
        check()


def refusals(checks: Iterable[Check]) -> tuple[BookingError, ...]:
    """Return every refusal of the checks, in their order."""
    found = []
    for check in checks:
        try:
            check()
        except BookingError as error:
            found.append(error)
    return tuple(found)


def render(actor: Actor, change: Change) -> bytes:
    """Render a change as JSON, with the guest's link in the booking when the actor may see it."""
    shown = {
        "allowed": not change.refusals,
        "refusals": present_refusals(change.refusals),
        "booking": orjson.Fragment(queries.show(actor, change.booking)),
        "seats": change.seats,
        "money": None if change.money is None else _present_money(change.money, change.booking.row.currency),
    }
    return orjson.dumps(shown)


def present_refusals(refused: Iterable[BookingError]) -> list[dict[str, Any]]:
    """Present each refusal once, though several checks may have it."""
    shown = [_present_refusal(each) for each in refused]
    return [each for i, each in enumerate(shown) if each not in shown[:i]]


def _present_refusal(error: BookingError) -> dict[str, Any]:
    detail = error.details[0] if error.details else None
    return {
        "code": error.code,
        "reason": detail.reason if detail else None,
        "field": detail.field if detail else None,
        "message": str(error),
        "seats_available": error.seats_available if isinstance(error, InsufficientCapacity) else None,
    }


def _present_money(money: ChangedMoney, currency: str) -> dict[str, Any]:
    def shown(amount: int) -> dict[str, Any]:
        return rules.money(amount, currency)

    return {
        "settlement": money.settlement,
        "price_difference": shown(money.price_difference),
        "list_price": None if money.list_price is None else shown(money.list_price),
        "refund": shown(money.refund),
        "gift_card_refund": shown(money.gift_card_refund),
        "kept": shown(money.kept),
        "balance_due": shown(money.balance_due),
    }
