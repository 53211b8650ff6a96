"""`booking storefront`: what a guest's checkout does, at a shell."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.framework import arguments, context
from booking_cli.framework.amounts import parse_amount
from booking_cli.framework.command import command, group
from booking_cli.framework.durations import length_us
from booking_cli.operator import refund_summaries, storage, transactions, validation

if TYPE_CHECKING:
    from booking_core.context import Actor
    from booking_core.db.engine import Tx
    from booking_core.db.writes import Writes
    from booking_core.storefront import Checkout

app = group("The storefront: hold seats, check out, pay by card. The HTTP API never charges a card.")

Org = Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.", show_default=False)]
Departure = Annotated[str, typer.Option("--departure", metavar="ID", help="The departure's id; availability shows it.")]


@command(
    app,
    "hold",
    "booking storefront hold --org fjord-tours --departure ID --seats 2 --for 10m",
    shape="hold",
    changes=True,
)
def hold(
    ctx: typer.Context,
    org: Org,
    departure: Departure,
    seats: Annotated[int, typer.Option("--seats", metavar="N", help="How many.", min=1)],
    length: Annotated[str, typer.Option("--for", metavar="10m", help="How long; a day at most.")] = "10m",
) -> None:
    """Holds seats of a departure, so that nobody else can book them for a while.

    The hold ends by the clock; nothing has to run for that.
    """
    for_s = length_us(length) // 1_000_000
    with storage.installed():
        from booking_core import storefront

    _act(
        ctx,
        transactions.of(org),
        lambda tx, actor, pending: storefront.hold(
            tx, actor, pending, transactions.stored_id(departure, "departure"), seats, for_s=for_s
        ),
    )


@command(app, "release", "booking storefront release 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07", shape="hold", changes=True)
def release(
    ctx: typer.Context,
    hold_id: Annotated[str, typer.Argument(metavar="HOLD", help="The hold's id.")],
) -> None:
    """Gives the seats of a hold back at once. A hold that has ended already stays as it is."""
    with storage.installed():
        from booking_core import storefront

    _act(
        ctx,
        lambda tx: storefront.owner(tx, hold_id),
        lambda tx, actor, pending: storefront.release(tx, actor, pending, hold_id.lower()),
    )


@command(
    app,
    "checkout",
    "booking storefront checkout --org fjord-tours --departure ID --guest adult=2 --name Ada --email ada@example.com",
    "booking storefront checkout --org fjord-tours --departure ID --guest adult=1 --name Ada --email ada@example.com"
    " --hold HOLD --gift-card GIFT-ABCD-1234",
    shape="booking",
    changes=True,
)
def checkout(
    ctx: typer.Context,
    org: Org,
    departure: Departure,
    guest: Annotated[
        list[str], typer.Option("--guest", metavar="TIER=COUNT", help="A line of guests; may be repeated.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The guest's name.")],
    email: Annotated[str, typer.Option("--email", metavar="ADDRESS", help="The guest's e-mail address.")],
    phone: Annotated[str | None, typer.Option("--phone", metavar="NUMBER", help="The guest's phone number.")] = None,
    add_on: Annotated[
        list[str] | None, typer.Option("--add-on", metavar="ID=COUNT", help="An add-on; may be repeated.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="For staff.")] = None,
    discount: Annotated[
        str,
        typer.Option(
            "--discount", metavar="AMOUNT", help="Taken off the price: 50.00, or in minor units without a point: 5000."
        ),
    ] = "0",
    gift_card: Annotated[str | None, typer.Option("--gift-card", metavar="CODE", help="Pays what it can.")] = None,
    hold_id: Annotated[
        str | None, typer.Option("--hold", metavar="HOLD", help="The hold whose seats are booked; it is used up.")
    ] = None,
) -> None:
    """Checks out: a booking that waits for its card payment, and is abandoned when none comes in time.

    When a gift card or a discount leaves nothing to pay, it is confirmed at once.
    """
    guests, add_ons = arguments.counted(guest, "tier_id"), arguments.counted(add_on or [], "id")
    person = {"name": name, "email": email, "phone": phone}
    with storage.installed():
        from booking_core import storefront

    def act(tx: "Tx", actor: "Actor", pending: "Writes") -> bytes:
        basket = _basket(
            transactions.stored_id(departure, "departure"),
            guests,
            add_ons,
            person,
            note,
            parse_amount(discount, actor.organization.default_currency),
            gift_card,
            None if hold_id is None else transactions.stored_id(hold_id, "hold"),
        )
        return storefront.check_out(tx, actor, pending, basket)

    _act(ctx, transactions.of(org), act)


@command(
    app,
    "pay",
    "booking storefront pay 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --payment-intent pi_3OqX2eLkdIwHu7ix",
    shape="booking",
    changes=True,
)
def pay(
    ctx: typer.Context,
    booking_id: Annotated[str, typer.Argument(metavar="BOOKING", help="The booking's id.")],
    payment_intent: Annotated[
        str | None,
        typer.Option("--payment-intent", metavar="PI", help="The gateway's name for the payment; refunds need it."),
    ] = None,
) -> None:
    """Says that the card was charged: the booking is confirmed. One that is paid already stays as it is.

    A booking that was cancelled before has given back its seats and stays cancelled: all of the payment is owed back,
    and `refund` tells how much.
    """
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings, storefront

    paid = transactions.act(
        cli,
        lambda tx: bookings.owner(tx, booking_id),
        lambda tx, actor, pending: storefront.pay(
            tx, actor, pending, booking_id.lower(), payment_intent=payment_intent
        ),
        then=_with_refund,
    )
    sentence = paid.pop("sentence", None)
    cli.render.one(paid)
    if paid["status"] == "cancelled":
        cli.render.note("The booking was cancelled before its payment came, and stays cancelled.")
        cli.render.note(sentence)


def _with_refund(tx: "Tx", actor: "Actor", booking: dict[str, Any]) -> dict[str, Any]:
    """Return the booking; a cancelled one with its refund, which is what became of the payment."""
    if booking["status"] != "cancelled":
        return booking
    return booking | refund_summaries.outcome(tx, actor.organization.id, booking["id"])


def _basket(
    departure_id: str,
    guests: list[dict[str, Any]],
    add_ons: list[dict[str, Any]],
    person: dict[str, str | None],
    note: str | None,
    discount_minor: int,
    gift_card_code: str | None,
    hold_id: str | None,
) -> "Checkout":
    """What was typed, by the rules of the API.

    Raises:
        Malformed: naming each field that is wrong.
    """
    from pydantic import TypeAdapter, ValidationError

    from booking_core.storefront import Checkout

    try:
        return TypeAdapter(Checkout).validate_python(
            {
                "departure_id": departure_id,
                "guests": guests,
                "customer": person,
                "add_ons": add_ons,
                "note": note,
                "discount_minor": discount_minor,
                "gift_card_code": gift_card_code,
                "hold_id": hold_id,
            }
        )
    except ValidationError as error:
        raise validation.refusal(error) from None


def _act(ctx: typer.Context, owner: transactions.Owner, act: transactions.Verb) -> None:
    """Runs one verb in a transaction of its own, and shows what it gives."""
    cli = context.of(ctx)
    cli.render.one(transactions.act(cli, owner, act))
