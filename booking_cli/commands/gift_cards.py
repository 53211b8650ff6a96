"""`booking gift-cards`: list and show gift cards over HTTP; issue, deactivate and reactivate them in the database."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.framework import options
from booking_cli.framework.amounts import parse_amount
from booking_cli.framework.arguments import identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import money
from booking_cli.framework.options import argument, option
from booking_cli.framework.secret_files import secret_output
from booking_cli.operator import transactions
from booking_cli.operator.transactions import by_slug, stored_id
from booking_cli.operator.validation import parse_instant

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("Manage gift cards.")

COLUMNS = ("id", "code_last4", "status", "balance", "expires_at", "recipient.email", "initial_amount")
TRANSACTION_COLUMNS = ("created_at", "type", "amount", "booking_id", "id")
STATUSES = ("active", "expired", "inactive")
TRUNCATED = {"recipient.email": 24}
_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

CardId = Annotated[str, argument("ID", "The gift card's id; see `booking gift-cards list`.", parser=identifier)]
Amount = Annotated[str, option("--amount AMOUNT", "The amount: 500.00, or 50000 in minor units.")]
Currency = Annotated[str | None, option("--currency CODE", "ISO 4217 code; default: the organization's currency.")]
Code = Annotated[str | None, option("--code CODE", "The code to redeem it; default: a random code.")]
ValidFrom = Annotated[str | None, option("--valid-from T", "ISO 8601; default: now.")]
ExpiresAt = Annotated[str | None, option("--expires-at T", "ISO 8601, local time without an offset; default: never.")]
PurchaserName = Annotated[str | None, option("--purchaser-name NAME", "The purchaser's name.")]
PurchaserEmail = Annotated[str | None, option("--purchaser-email EMAIL", "The purchaser's e-mail address.")]
RecipientName = Annotated[str | None, option("--recipient-name NAME", "The recipient's name.")]
RecipientEmail = Annotated[str | None, option("--recipient-email EMAIL", "The recipient's e-mail address.")]
NoEmail = Annotated[bool, option("--no-email", "Send the recipient no mail.")]
SecretFile = Annotated[Path | None, option("--secret-file FILE", "Write the code to this new file (mode 0600).")]


@command(
    app,
    "list",
    "booking gift-cards list --status active",
    "booking gift-cards list --all --fields id,balance",
    shape="gift_card",
)
def list_(
    ctx: typer.Context,
    status: Annotated[str | None, options.choice("--status", choices=STATUSES, help="Filter by status.")] = None,
    updated_since: options.UpdatedSince = None,
    limit: options.Limit = options.DEFAULT_LIMIT,
    all_pages: options.AllPages = False,
    order: options.Order = "desc",
    starting_after: options.StartingAfter = None,
) -> None:
    """List gift cards without their codes, newest first."""
    pagination.write_list(
        ctx,
        api_client.path("gift-cards"),
        COLUMNS,
        params={"status": status, "updated_since": updated_since},
        truncated=TRUNCATED,
        empty="No gift card found.",
    )


@command(
    app,
    "get",
    f"booking gift-cards get {_ID}",
    f"booking gift-cards get {_ID} --include-code --fields code",
    shape="gift_card",
)
def get(
    ctx: typer.Context,
    card_id: CardId,
    include_code: Annotated[bool, option("--include-code", "Include the code, which anyone can spend.")] = False,
) -> None:
    """Show a gift card."""
    cli: Cli = ctx.obj
    params = {"include": "code"} if include_code else None
    with api_client.connect(cli) as client:
        card = api_client.request(client, "GET", api_client.path("gift-cards", card_id), params=params).body
    cli.render.one(card)


@command(
    app,
    "transactions",
    f"booking gift-cards transactions {_ID}",
    f"booking gift-cards transactions {_ID} --all -o jsonl",
    shape="gift_card_transaction",
)
def transactions_(
    ctx: typer.Context,
    card_id: CardId,
    limit: options.Limit = options.DEFAULT_LIMIT,
    all_pages: options.AllPages = False,
    order: options.Order = "desc",
    starting_after: options.StartingAfter = None,
) -> None:
    """List the changes of a gift card's balance, newest first."""
    pagination.write_list(
        ctx,
        api_client.path("gift-cards", card_id, "transactions"),
        TRANSACTION_COLUMNS,
        empty="The balance has not changed.",
    )


@command(
    app,
    "issue",
    "booking gift-cards issue --org fjord-tours --amount 500.00 --recipient-email ada@example.com",
    "booking gift-cards issue --org fjord-tours --amount 50000 --expires-at 2027-12-31 --secret-file card.code",
    shape="new_gift_card",
    changes=True,
)
def issue(
    ctx: typer.Context,
    org: options.Org,
    amount: Amount,
    currency: Currency = None,
    code: Code = None,
    valid_from: ValidFrom = None,
    expires_at: ExpiresAt = None,
    purchaser_name: PurchaserName = None,
    purchaser_email: PurchaserEmail = None,
    recipient_name: RecipientName = None,
    recipient_email: RecipientEmail = None,
    locale: options.GuestLocale = None,
    no_email: NoEmail = False,
    secret_file: SecretFile = None,
) -> None:
    """Issue a gift card that was paid for, and show its code (operator).

    A recipient with an e-mail address is mailed the code, unless --no-email is given.
    """
    cli: Cli = ctx.obj
    from booking_core.payments import gift_cards
    from booking_core.payments.gift_cards import GiftCardIssue

    def change(tx: "Tx", actor: "Actor") -> Any:
        organization = actor.organization
        request = GiftCardIssue(
            amount_minor=parse_amount(amount, currency or organization.default_currency),
            currency=currency,
            code=code,
            valid_from=parse_instant(organization, "--valid-from", valid_from),
            expires_at=parse_instant(organization, "--expires-at", expires_at),
            purchaser_name=purchaser_name,
            purchaser_email=purchaser_email,
            recipient_name=recipient_name,
            recipient_email=recipient_email,
            locale=locale,
            send_email=not no_email,
        )
        return gift_cards.issue(tx, actor, request)

    with secret_output(secret_file) as output:
        card_json, made_code = transactions.change(cli, by_slug(org), change)
        card = json.loads(card_json)
        cli.render.note(f"Issued a gift card of {money(card['initial_amount'])}.")
        output.write_with_secret(
            cli,
            card | {"code": made_code},
            "code",
            lost=f"The gift card {card['id']} was issued, but its code could not be written",
            hint=f"booking gift-cards get {card['id']} --include-code",
            note="Keep the code secret: anyone who has it can spend it.",
        )


@command(app, "deactivate", f"booking gift-cards deactivate {_ID}", shape="gift_card", changes=True)
def deactivate(ctx: typer.Context, card_id: CardId, org: options.OrgOfId = None) -> None:
    """Deactivate a gift card, so that it cannot be redeemed; `reactivate` undoes it (operator)."""
    from booking_core.payments import gift_cards

    _change(ctx.obj, card_id, org, gift_cards.deactivate)


@command(app, "reactivate", f"booking gift-cards reactivate {_ID}", shape="gift_card", changes=True)
def reactivate(ctx: typer.Context, card_id: CardId, org: options.OrgOfId = None) -> None:
    """Reactivate a gift card, within its validity and balance (operator)."""
    from booking_core.payments import gift_cards

    _change(ctx.obj, card_id, org, gift_cards.reactivate)


def _change(cli: Cli, card_id: str, org: str | None, change: Any) -> None:
    changed = transactions.change_by_id(
        cli,
        lambda tx, actor: change(tx, actor, stored_id(card_id, "gift card")),
        noun="gift card",
        org=org,
    )
    cli.render.one(changed)
