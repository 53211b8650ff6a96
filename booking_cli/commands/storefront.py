"""`booking storefront`: hold seats, check out and pay as a guest does, in the database."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.commands import holds
from booking_cli.framework.arguments import parse_amount
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import Basket, BookingRef, Departure, GiftCard, HoldId, Org, OrgOfBooking, option
from booking_cli.operator import cancellations, staff_bookings, transactions
from booking_cli.operator.transactions import by_slug, stored_id

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("Hold seats, check out and pay, as a guest does (operator).")


Seats = Annotated[int, option("--seats N", "The number of seats.", min=1)]
Discount = Annotated[str, option("--discount AMOUNT", "A discount: 50.00, or 5000 in minor units.")]


@command(app, "hold", shape="hold", changes=True)
def hold(cli: Cli, org: Org, departure: Departure, seats: Seats, length: holds.Length = "10m") -> None:
    """Hold seats of a departure for a while, as `booking holds create --org` does.

    Examples:
        booking storefront hold --org fjord-tours --departure ID --seats 2 --for 10m
    """
    holds.create_in_database(cli, departure, org, {"seats": seats}, length)


@command(app, "release", shape="hold", changes=True)
def release(cli: Cli, hold_id: holds.HoldId) -> None:
    """Release the seats of a hold, as `booking holds delete` does in the database.

    Examples:
        booking storefront release 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    holds.release_in_database(cli, hold_id, None)


@command(app, "checkout", shape="booking", changes=True)
def checkout(
    cli: Cli,
    org: Org,
    departure: Departure,
    basket: Basket,
    discount: Discount = "0",
    gift_card: GiftCard = None,
    hold_id: HoldId = None,
) -> None:
    """Create a pending booking that waits for its card payment, and expires without one.

    If a gift card or a discount covers the whole price, the booking is confirmed at once.

    Examples:
        booking storefront checkout --org fjord-tours --departure ID --guest adult=2 --name Ada --email ada@example.com
        booking storefront checkout --org fjord-tours --departure ID --guest adult=1 --name Ada --email ada@example.com --hold HOLD --gift-card GIFT-ABCD-1234
    """  # noqa: E501
    fields = basket.fields(gift_card_code=gift_card)
    from booking_core.bookings import storefront
    from booking_core.bookings.storefront import CheckoutRequest

    def change(tx: "Tx", actor: "Actor") -> bytes:
        fields["departure_id"] = stored_id(departure, "departure")
        fields["discount_minor"] = parse_amount(discount, actor.organization.default_currency)
        fields["hold_id"] = None if hold_id is None else stored_id(hold_id, "hold")
        return storefront.check_out(tx, actor, transactions.parse_request(CheckoutRequest, fields))

    cli.render.one(transactions.change(cli, by_slug(org), change))


@command(app, "pay", shape="booking", changes=True)
def pay(
    cli: Cli,
    booking: BookingRef,
    payment_intent: Annotated[
        str | None, option("--payment-intent PI", "The gateway's id of the payment; needed for refunds.")
    ] = None,
    org: OrgOfBooking = None,
) -> None:
    """Confirm a booking whose card was charged. A paid booking stays unchanged.

    A booking that was cancelled before stays cancelled: the whole payment is refunded, and `refund` shows the amount.

    Examples:
        booking storefront pay 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --payment-intent pi_3OqX2eLkdIwHu7ix
        booking storefront pay 1017 --org fjord-tours
    """
    from booking_core import bookings

    paid = staff_bookings.change_booking(
        cli, booking, org, partial(bookings.pay, payment_intent=payment_intent), present=_with_refund
    )
    sentence = paid.pop("sentence", None)
    cli.render.one(paid)
    if paid["status"] == "cancelled":
        cli.render.note("The booking was cancelled before it was paid, and stays cancelled.")
        cli.render.note(sentence)


def _with_refund(tx: "Tx", actor: "Actor", booking: dict[str, Any]) -> dict[str, Any]:
    """Return the booking; a cancelled one with the refund of its payment."""
    if booking["status"] != "cancelled":
        return booking
    return booking | cancellations.of_cancelled_booking(tx, actor.organization.id, booking["id"])
