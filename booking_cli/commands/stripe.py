"""`booking stripe`: the Stripe accounts of organizations, and payments that wait for a person."""

from functools import partial
from pathlib import Path
from typing import Annotated

from booking_cli.framework.arguments import read_bytes
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import DEFAULT_LIMIT, BookingRef, Limit, Org, OrgOfBooking, choice, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import staff_bookings, transactions
from booking_cli.operator.transactions import by_slug

app = command_group("Set Stripe accounts, and list payments that wait for a person (operator).")

STATES = ("waiting", "needs_review", "disputed")
COLUMNS = Columns(
    "booking_number status reason amount payment_status dispute.status payment_intent updated_at booking_id".split(),
    empty="No payment found.",
)

KeyFile = Annotated[Path, option("--api-key-file FILE", "A file with the secret or restricted key; - is stdin.")]
SecretFile = Annotated[
    Path, option("--webhook-secret-file FILE", "A file with the endpoint's signing secret, whsec_...")
]
PublishableKey = Annotated[str | None, option("--publishable-key PK", "The key for Stripe.js, which is no secret.")]


@command(app, "set", shape="stripe_account", changes=True)
def set_(
    cli: Cli,
    org: Org,
    api_key_file: KeyFile,
    webhook_secret_file: SecretFile,
    publishable_key: PublishableKey = None,
) -> None:
    """Set the Stripe account of an organization.

    The keys are stored sealed, and replace former keys. At Stripe, the endpoint `webhook_url` has to receive
    payment_intent.succeeded, payment_intent.payment_failed, payment_intent.canceled, charge.refunded and
    charge.dispute.* events.

    Examples:
        booking stripe set --org fjord-tours --api-key-file stripe.key --webhook-secret-file whsec.key \\
            --publishable-key pk_live_51Hx
    """
    from booking_core.payments import stripe_accounts

    configure = partial(
        stripe_accounts.configure,
        api_key=_secret(api_key_file),
        webhook_secret=_secret(webhook_secret_file),
        publishable_key=publishable_key,
    )
    cli.render.one(transactions.change(cli, by_slug(org), configure))


def _secret(path: Path) -> str:
    """Return the secret of a file, without the line break at its end."""
    try:
        return read_bytes(path).decode("ascii").strip()
    except UnicodeDecodeError:
        raise CliError(f"{path} holds no key of Stripe.") from None


@command(app, "show", shape="stripe_account")
def show(cli: Cli, org: Org) -> None:
    """Show the Stripe account of an organization, without its secrets.

    Examples:
        booking stripe show --org fjord-tours
    """
    from booking_core.payments import stripe_accounts

    cli.render.one(transactions.read(cli, by_slug(org), stripe_accounts.get))


@command(app, "remove", shape="stripe_account", changes=True)
def remove(cli: Cli, org: Org) -> None:
    """Remove the Stripe account of an organization.

    Its checkouts are refused from now on, webhooks of Stripe are not found, and the staff make refunds.

    Examples:
        booking stripe remove --org fjord-tours
    """
    from booking_core.payments import stripe_accounts

    cli.confirm(f"Remove the Stripe account of {org}?")
    cli.render.one(transactions.change(cli, by_slug(org), stripe_accounts.remove))


@command(app, "payments", shape="stripe_payment")
def payments(
    cli: Cli,
    org: Org,
    state: Annotated[str | None, choice("--state", choices=STATES, help="Filter by state.")] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> None:
    """List payments at Stripe, the last changed first.

    \b
    needs_review   Stripe took money that does not fit the booking
    disputed       the cardholder's bank has asked for the money back
    waiting        one of both: a person has to act

    Examples:
        booking stripe payments --org fjord-tours --state waiting
        booking stripe payments --org fjord-tours --state disputed -o json
    """
    from booking_core.bookings import checkouts

    rows = transactions.read(cli, by_slug(org), partial(checkouts.find_intents, state=state, limit=limit))
    cli.render.many(rows, COLUMNS)


@command(app, "resolve", shape="stripe_payment", changes=True)
def resolve(
    cli: Cli,
    booking: BookingRef,
    note: Annotated[str, option("--note TEXT", "How it was decided; shown in the timeline.")],
    org: OrgOfBooking = None,
) -> None:
    """Close the review of a payment that does not fit its booking.

    To take the payment after all, run `booking storefront pay` before; otherwise refund it at Stripe.

    Examples:
        booking stripe resolve 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --note 'Refunded at the dashboard'
    """
    from booking_core.bookings import checkouts

    cli.render.one(staff_bookings.change_booking(cli, booking, org, partial(checkouts.resolve, note=note)))
