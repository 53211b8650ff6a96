"""`booking checkouts`: create and show checkouts over HTTP."""

from typing import Annotated, Any

import typer

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import counts, identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.idempotency import idempotency_key as key_in_use
from booking_cli.framework.options import AddOns, GuestEmail, GuestLocale, GuestName, GuestPhone, Guests, StaffNote

app = command_group("Create and show checkouts that are paid by card.")

_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

Departure = Annotated[str, typer.Option("--departure", metavar="ID", help="The departure; see `booking availability`.")]
GiftCard = Annotated[str | None, typer.Option("--gift-card", metavar="CODE", help="A gift card to redeem.")]
HoldId = Annotated[str | None, typer.Option("--hold", metavar="HOLD", help="The hold whose seats are booked; it ends.")]


@command(
    app,
    "create",
    "booking checkouts create --departure ID --guest adult=2 --name Ada --email ada@example.com",
    shape="checkout",
    changes=True,
)
def create(
    ctx: typer.Context,
    departure: Departure,
    guest: Guests,
    name: GuestName,
    email: GuestEmail,
    phone: GuestPhone = None,
    add_on: AddOns = None,
    note: StaffNote = None,
    gift_card: GiftCard = None,
    hold_id: HoldId = None,
    locale: GuestLocale = None,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Create a pending booking with its payment at Stripe.

    The client secret confirms the payment in the guest's browser. The booking is confirmed by Stripe's webhook, or
    cancelled when the checkout ends without a payment.
    """
    cli: Cli = ctx.obj
    body: dict[str, Any] = {
        "experience_date_id": departure,
        "guests": counts(guest, "tier_id"),
        "customer": {"name": name, "email": email} | ({"phone": phone} if phone else {}),
    }
    body |= {"add_ons": counts(add_on, "id")} if add_on else {}
    given = {"note": note, "gift_card_code": gift_card, "hold_id": hold_id, "locale": locale}
    body |= {field: value for field, value in given.items() if value}
    with api_client.connect(cli) as client, key_in_use(cli, idempotency_key) as key:
        created = api_client.request(client, "POST", api_client.path("checkouts"), body=body, idempotency_key=key)
    cli.render.one(created.body)
    if created.is_replay:
        cli.render.note("The key was used before: this is the stored response.")


@command(app, "get", f"booking checkouts get {_ID}", shape="checkout")
def get(
    ctx: typer.Context,
    checkout_id: Annotated[str, typer.Argument(metavar="ID", parser=identifier, help="The checkout's id.")],
) -> None:
    """Show a checkout, its booking and its payment."""
    cli: Cli = ctx.obj
    with api_client.connect(cli) as client:
        checkout = api_client.get(client, "checkouts", checkout_id)
    cli.render.one(checkout)
