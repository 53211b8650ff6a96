"""`booking storefront`: hold seats, check out and pay as a guest does, in the database."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework.arguments import duration_us, parse_amount
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import (
    AddOns,
    BookingRef,
    Departure,
    ExternalReference,
    GiftCard,
    GuestEmail,
    GuestLocale,
    GuestName,
    GuestPhone,
    Guests,
    HoldId,
    Metadata,
    Org,
    OrgOfBooking,
    StaffNote,
    UniqueReference,
    argument,
    basket,
    option,
)
from booking_cli.operator import cancellations, staff_bookings, transactions
from booking_cli.operator.transactions import by_slug, stored_id

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("Hold seats, check out and pay, as a guest does (operator).")


Discount = Annotated[str, option("--discount AMOUNT", "A discount: 50.00, or 5000 in minor units.")]


@command(app, "hold", shape="guest_hold", changes=True)
def hold(
    cli: Cli,
    org: Org,
    departure: Departure,
    seats: Annotated[int, option("--seats N", "The number of seats.", min=1)],
    length: Annotated[str, option("--for 10m", "The duration, at most a day.")] = "10m",
) -> None:
    """Hold seats of a departure for a while.

    Examples:
        booking storefront hold --org fjord-tours --departure ID --seats 2 --for 10m
    """
    for_s = duration_us(length) // 1_000_000
    from booking_core.bookings import storefront

    result = transactions.change(
        cli,
        by_slug(org),
        lambda tx, actor: storefront.hold(tx, actor, stored_id(departure, "departure"), seats, for_s=for_s),
    )
    cli.render.one(result)


@command(app, "release", shape="guest_hold", changes=True)
def release(cli: Cli, hold_id: Annotated[str, argument("HOLD", "The hold's id.")]) -> None:
    """Release the seats of a hold. A hold that has ended stays unchanged.

    Examples:
        booking storefront release 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    from booking_core.bookings import storefront

    released = transactions.change(
        cli,
        lambda tx: storefront.organization_of_hold(tx, hold_id),
        lambda tx, actor: storefront.release(tx, actor, hold_id.lower()),
    )
    cli.render.one(released)


@command(app, "checkout", shape="booking", changes=True)
def checkout(
    cli: Cli,
    org: Org,
    departure: Departure,
    guest: Guests,
    name: GuestName,
    email: GuestEmail,
    phone: GuestPhone = None,
    add_on: AddOns = None,
    note: StaffNote = None,
    discount: Discount = "0",
    gift_card: GiftCard = None,
    hold_id: HoldId = None,
    locale: GuestLocale = None,
    external_reference: ExternalReference = None,
    unique: UniqueReference = False,
    metadata: Metadata = None,
) -> None:
    """Create a pending booking that waits for its card payment, and expires without one.

    If a gift card or a discount covers the whole price, the booking is confirmed at once.

    Examples:
        booking storefront checkout --org fjord-tours --departure ID --guest adult=2 --name Ada --email ada@example.com
        booking storefront checkout --org fjord-tours --departure ID --guest adult=1 --name Ada --email ada@example.com --hold HOLD --gift-card GIFT-ABCD-1234
    """  # noqa: E501
    fields = basket(cli.params)
    from booking_core.bookings import storefront
    from booking_core.bookings.storefront import CheckoutRequest

    def change(tx: "Tx", actor: "Actor") -> bytes:
        fields["departure_id"] = stored_id(departure, "departure")
        fields["discount_minor"] = parse_amount(discount, actor.organization.default_currency)
        fields["hold_id"] = None if hold_id is None else stored_id(hold_id, "hold")
        return storefront.check_out(tx, actor, transactions.parse(CheckoutRequest, fields))

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
