"""`booking checkouts`: create and show checkouts over HTTP."""

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import Basket, CheckoutId, Departure, GiftCard, HoldId

app = command_group("Create and show checkouts that are paid by card.")


@command(app, "create", shape="checkout", changes=True)
def create(
    cli: Cli,
    departure: Departure,
    basket: Basket,
    gift_card: GiftCard = None,
    hold_id: HoldId = None,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Create a pending booking with its payment at Stripe.

    The client secret confirms the payment in the guest's browser. The booking is confirmed by Stripe's webhook, or
    cancelled when the checkout ends without a payment.

    Examples:
        booking checkouts create --departure ID --guest adult=2 --name Ada --email ada@example.com
    """
    body = {"departure_id": departure} | basket.fields(gift_card_code=gift_card, hold_id=hold_id)
    if api_client.write_posted(cli, "checkouts", body=body, key_option=idempotency_key).is_replay:
        cli.render.note("The key was used before: this is the stored response.")


@command(app, "get", shape="checkout")
def get(cli: Cli, checkout_id: CheckoutId) -> None:
    """Show a checkout, its booking and its payment.

    Examples:
        booking checkouts get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    api_client.write_resource(cli, f"checkouts/{checkout_id}")
