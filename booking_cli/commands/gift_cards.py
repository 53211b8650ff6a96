"""`booking gift-cards`: list and show gift cards over HTTP; issue, deactivate and reactivate them in the database."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import identifier, parse_amount
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import grouped_money
from booking_cli.framework.options import argument, option
from booking_cli.framework.secret_files import secret_output
from booking_cli.framework.tables import Columns
from booking_cli.operator import transactions
from booking_cli.operator.transactions import by_slug, parse_instant

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("Manage gift cards.")

COLUMNS = Columns(
    ("id", "code_last4", "status", "balance", "expires_at", "recipient.email", "initial_amount"),
    empty="No gift card found.",
    truncated={"recipient.email": 24},
)
TRANSACTION_COLUMNS = Columns(
    ("created_at", "type", "amount", "balance", "booking_id", "id"), empty="The balance has not changed."
)
STATUSES = ("active", "expired", "inactive")

CardId = Annotated[str, argument("ID", "The gift card's id; see `booking gift-cards list`.", parser=identifier)]
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


@command(app, "list", shape="gift_card")
def list_(
    cli: Cli,
    status: Annotated[str | None, options.choice("--status", choices=STATUSES, help="Filter by status.")] = None,
    updated_since: options.UpdatedSince = None,
    paging: options.Paging = options.FIRST_PAGE,
) -> None:
    """List gift cards without their codes, newest first.

    Examples:
        booking gift-cards list --status active
        booking gift-cards list --all --fields id,balance
    """
    api_client.write_list(cli, paging, "gift-cards", COLUMNS, status=status, updated_since=updated_since)


@command(app, "get", shape="gift_card")
def get(
    cli: Cli,
    card_id: CardId,
    include_code: Annotated[bool, option("--include-code", "Include the code, which anyone can spend.")] = False,
) -> None:
    """Show a gift card.

    Examples:
        booking gift-cards get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking gift-cards get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --include-code --fields code
    """
    api_client.write_resource(cli, f"gift-cards/{card_id}", params={"include": "code"} if include_code else None)


@command(app, "transactions", shape="gift_card_transaction")
def transactions_(cli: Cli, card_id: CardId, paging: options.Paging = options.FIRST_PAGE) -> None:
    """List the changes of a gift card's balance, newest first.

    Examples:
        booking gift-cards transactions 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking gift-cards transactions 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --all -o jsonl
    """
    api_client.write_list(cli, paging, f"gift-cards/{card_id}/transactions", TRANSACTION_COLUMNS)


@command(app, "issue", shape="new_gift_card", changes=True)
def issue(
    cli: Cli,
    org: options.Org,
    amount: options.Amount,
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

    Examples:
        booking gift-cards issue --org fjord-tours --amount 500.00 --recipient-email ada@example.com
        booking gift-cards issue --org fjord-tours --amount 50000 --expires-at 2027-12-31 --secret-file card.code
    """
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
        cli.render.receipt(f"Issued a gift card of {grouped_money(card['initial_amount'])}.")
        output.write_with_secret(
            cli,
            card | {"code": made_code},
            "code",
            lost=f"The gift card {card['id']} was issued, but its code could not be written",
            hint=f"booking gift-cards get {card['id']} --include-code",
            note="Keep the code secret: anyone who has it can spend it.",
        )


@command(app, "deactivate", shape="gift_card", changes=True)
def deactivate(cli: Cli, card_id: CardId, org: options.OrgOfId = None) -> None:
    """Deactivate a gift card: it cannot be redeemed. `reactivate` undoes it (operator).

    Examples:
        booking gift-cards deactivate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    from booking_core.payments import gift_cards

    cli.render.one(transactions.change_by_id(cli, card_id, gift_cards.deactivate, noun="gift card", org=org))


@command(app, "reactivate", shape="gift_card", changes=True)
def reactivate(cli: Cli, card_id: CardId, org: options.OrgOfId = None) -> None:
    """Reactivate a gift card, within its validity and balance (operator).

    Examples:
        booking gift-cards reactivate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    from booking_core.payments import gift_cards

    cli.render.one(transactions.change_by_id(cli, card_id, gift_cards.reactivate, noun="gift card", org=org))
